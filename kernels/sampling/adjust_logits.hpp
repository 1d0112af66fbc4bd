/// The first half of sampling, for one row: what is added to, taken from and masked out of its
/// logits before the temperature.
///
///   x += bias
///   x  = x > 0 ? x / repetition : x * repetition        for ids in prompt or outputs
///   x -= frequency * count + presence                   for ids with count > 0 among the outputs
///   x  = -inf                                           for stop ids before min_tokens outputs
///   x  = -inf                                           for ids the grammar mask lacks
///
/// The penalties read the ids at positions [0, position) through the block table. `counts` is zero
/// on entry and on return. Called by sample_rows; runs on one thread.
/// Errors: bad_history when the history holds an id outside [0, vocab) (x is then undefined).
/// Cost: O(lists), O(position) with penalties, O(vocab / 32) with a mask.
#pragma once

#include <cstdint>

#include "kernels/sampling/slot_sampling.hpp"

namespace deepinfer::kernels {

enum class sample_status : std::uint8_t {
  ok,
  bad_logits,    ///< a NaN or +inf among the row's logits
  no_candidate,  ///< every id is masked or at -inf
  bad_history,   ///< an id outside [0, vocab) in the history the penalties read
};

struct adjust_logits_args {
  float* x = nullptr;  ///< [vocab] in and out
  std::int32_t vocab = 0;
  std::int32_t position = 0;  ///< of the token produced
  const slot_sampling* sampling = nullptr;
  const std::int32_t* history = nullptr;  ///< [blocks, block_size]
  const std::int32_t* table = nullptr;    ///< block ids of this sequence
  std::int32_t block_size = 1;
  const std::uint32_t* mask = nullptr;  ///< allowed ids, or null
  std::uint32_t* counts = nullptr;      ///< [vocab] scratch, zero
  std::int32_t* touched = nullptr;      ///< [vocab] scratch: ids with a count
};

/// Whether the row's logits would change at all.
bool adjusts_logits(const slot_sampling& sampling, std::int32_t position, bool has_mask);

sample_status adjust_logits_ref(const adjust_logits_args& args);

}  // namespace deepinfer::kernels
