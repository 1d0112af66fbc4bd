/// A JSON number that is whole and fits 64 bits with a sign; nothing where it is another or none.
/// "-0" and "1e3" are doubles as parsed, and so no whole numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "runtime/base/json.hpp"

namespace deepinfer {

inline std::optional<std::int64_t> whole_number(const json::value& value) {
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  if (value.is_int64()) return value.get_int64();
  // Parsed ones of this kind are beyond; those that a program made need not be.
  if (value.is_uint64() && value.get_uint64() <= most)
    return static_cast<std::int64_t>(value.get_uint64());
  return std::nullopt;
}

}  // namespace deepinfer
