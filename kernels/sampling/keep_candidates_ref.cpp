#include "kernels/sampling/keep_candidates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deepinfer::kernels {

namespace {

// In units of 2^-40: a sum of whole numbers is the same in any order.
std::uint64_t mass(const std::uint64_t* begin, const std::uint64_t* end) {
  std::uint64_t sum = 0;
  for (; begin != end; ++begin)
    sum += static_cast<std::uint64_t>(std::exp(static_cast<double>(x_of(*begin))) * 0x1p40 + 0.5);
  return sum;
}

// An id of weight w has at least total - size * w before it: below (1 - top_p) * total / size it is
// out, whatever the others are. Half of that leaves room for rounding. A peaked distribution loses
// nearly all its ids here.
std::int32_t drop_hopeless(double top_p, double total, std::uint64_t* keys, std::int32_t size) {
  const double least = std::log(0.5 * (1.0 - top_p) * total / size);
  const auto end = std::partition(
    keys, keys + size, [&](std::uint64_t key) { return static_cast<double>(x_of(key)) >= least; });
  return static_cast<std::int32_t>(end - keys);
}

// Halves [low, high) until the first rank whose mass before it exceeds the limit is found. Keys
// before `low` rank before all later ones, and `before` is their mass; rank `low` stays.
std::int32_t keep_top_p(double top_p, std::uint64_t* keys, std::int32_t size) {
  const auto total = static_cast<double>(mass(keys, keys + size));
  const double limit = top_p * total;
  size = drop_hopeless(top_p, total * 0x1p-40, keys, size);
  std::int32_t low = 0;
  std::int32_t high = size;
  std::uint64_t before = 0;
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(keys + low, keys + middle, keys + high);
    const auto upper = mass(keys + low, keys + middle);
    if (static_cast<double>(before + upper) <= limit) {
      before += upper;
      low = middle;
    } else {
      high = middle;
    }
  }
  return low + 1;
}

std::int32_t keep_min_p(double min_p, std::uint64_t* keys, std::int32_t size) {
  const double least = std::log(min_p);
  const auto end = std::partition(
    keys, keys + size, [&](std::uint64_t key) { return static_cast<double>(x_of(key)) >= least; });
  return static_cast<std::int32_t>(end - keys);
}

}  // namespace

std::int32_t list_candidates(const float* x, std::int32_t vocab, std::uint64_t* keys) {
  std::int32_t size = 0;
  for (std::int32_t id = 0; id < vocab; ++id)
    if (x[id] > -std::numeric_limits<float>::infinity()) keys[size++] = rank_key(x[id], id);
  return size;
}

void rank_first(std::uint64_t* keys, std::int32_t size, std::int32_t count) {
  if (count < size) std::nth_element(keys, keys + count, keys + size);
  std::sort(keys, keys + std::min(count, size));
}

std::int32_t keep_candidates_ref(const slot_sampling& sampling, std::uint64_t* keys,
                                 std::int32_t size) {
  if (sampling.top_k > 0 && sampling.top_k < size) {
    std::nth_element(keys, keys + sampling.top_k, keys + size);
    size = sampling.top_k;
  }
  if (sampling.top_p < 1.0f) size = keep_top_p(static_cast<double>(sampling.top_p), keys, size);
  if (sampling.min_p > 0.0f) size = keep_min_p(static_cast<double>(sampling.min_p), keys, size);
  return size;
}

}  // namespace deepinfer::kernels
