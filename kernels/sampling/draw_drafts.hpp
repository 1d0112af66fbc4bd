/// Draws one draft per sequence from the drafter's own distribution, and keeps that distribution
/// for the acceptance rule that needs it (reject_drafts).
///   q  = the drafter's logits over the request's bias, temperature and cuts (filter_row)
///   id = argmax of log q + gumbel_noise(seed, position, draft, id); arg-max of the logits where
///        the sequence is greedy, and then q is not kept
/// Shapes: below. rows == 0 is a legal call; slot < 0: id -1, nothing else is written. `scratch` as
/// of reject_drafts.
/// Errors: logits that are not finite give id 0, and q is one-hot there: so the rule stays right.
/// Source: model-v41.md 11.4; architecture.md 4.
#pragma once

#include <cstdint>

#include "kernels/sampling/slot_sampling.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct draw_drafts_args {
  const float* logits = nullptr;  ///< [rows, logits_stride]
  std::int64_t logits_stride = 0;
  const std::int32_t* slot = nullptr;       ///< [rows] or -1
  const std::int32_t* position = nullptr;   ///< [rows] of the draft
  const slot_sampling* sampling = nullptr;  ///< [rows] without penalties: they need true ids
  std::int32_t rows = 0;
  std::int32_t vocab = 0;

  std::int32_t draft = 0;       ///< which draft of its sequence this is
  std::int32_t drafts_max = 0;  ///< of a sequence
  float* probs = nullptr;       ///< [slots, drafts_max, vocab] out
  std::int32_t* id = nullptr;   ///< [rows, id_stride] out, the first of each
  std::int64_t id_stride = 1;
  void* scratch = nullptr;
};

void draw_drafts_ref(const stream_ref& stream, const draw_drafts_args& args);

}  // namespace deepinfer::kernels
