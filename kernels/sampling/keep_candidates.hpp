/// The cuts of sampling, for one row: which ids stay after top-k, top-p and min-p.
///
/// Ids are ranked by falling x, equal ones by rising id. Of the ranked ids: the first top_k; of
/// these, with probabilities renormalised, the ids with a mass before them <= top_p (so the first
/// always stays, and the one that crosses the line does too); of these the ids with
/// p >= min_p * p_max. No full sort: selection by halves, O(vocab) on average.
///
/// A mass is a whole number of units of 2^-40 of the first id's: exp(x) in f64, rounded to them. So
/// what stays does not depend on the order of summing. Holds for up to 2^23 ids.
///
/// A key holds an id and its x so that a smaller key ranks first: integer order is rank order.
/// Called by sample_rows; runs on one thread. Source: architecture 4; model-v41.md 11.6 (the sum
/// before an id excludes the id itself).
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/sampling/slot_sampling.hpp"

namespace deepinfer::kernels {

/// `x` is not NaN; -0 ranks as +0.
constexpr std::uint64_t rank_key(float x, std::int32_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0f);
  const auto rising = bits >> 31 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{~rising} << 32 | static_cast<std::uint32_t>(id);
}
constexpr std::int32_t id_of(std::uint64_t key) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(key));
}
constexpr float x_of(std::uint64_t key) {
  const auto rising = ~static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>(rising >> 31 ? rising & 0x7fffffffu : ~rising);
}

/// Whether any of the cuts is on.
constexpr bool has_cuts(const slot_sampling& sampling, std::int32_t vocab) {
  return (sampling.top_k > 0 && sampling.top_k < vocab) || sampling.top_p < 1.0f ||
         sampling.min_p > 0.0f;
}

/// Writes the keys of all ids with x > -inf to keys[0, result): unordered.
std::int32_t list_candidates(const float* x, std::int32_t vocab, std::uint64_t* keys);

/// Moves the `count` first-ranked keys to the front, in rank order.
void rank_first(std::uint64_t* keys, std::int32_t size, std::int32_t count);

/// Applies the cuts to keys[0, size), of which the largest x is 0; the kept ones are
/// keys[0, result), unordered. size >= 1 gives >= 1.
std::int32_t keep_candidates_ref(const slot_sampling& sampling, std::uint64_t* keys,
                                 std::int32_t size);

}  // namespace deepinfer::kernels
