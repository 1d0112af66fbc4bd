/// Random events for tests.
#pragma once

#include <cstdint>

#include "runtime/base/random.hpp"

namespace deepinfer::test {

/// Draws from a seed; the n-th draw depends on nothing else.
class seeded_draws {
public:
  explicit seeded_draws(std::uint64_t seed) : state_(split_mix64(seed)) {}
  std::int32_t below(std::int32_t bound) {
    state_ = split_mix64(state_);
    return static_cast<std::int32_t>(state_ % static_cast<std::uint64_t>(bound));
  }
  std::int32_t between(std::int32_t low, std::int32_t high) { return low + below(high - low + 1); }
  bool one_in(std::int32_t n) { return below(n) == 0; }

private:
  std::uint64_t state_;
};

}  // namespace deepinfer::test
