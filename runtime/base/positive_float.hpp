/// A number above 0 as a float that is above 0.
#pragma once

#include <algorithm>
#include <limits>

namespace deepinfer {

/// One below the smallest float would read as 0, which is no share or divisor.
inline float positive_float(double value) {
  return std::max(static_cast<float>(value), std::numeric_limits<float>::min());
}

}  // namespace deepinfer
