/// The DSpark drafter: context rows beside every forward, and draft passes.
///
/// Context rows are made from the taps of all tokens of a step, rejected drafts' included: they
/// stand at positions that the next step writes again before anybody reads them. A draft pass of a
/// sequence sees the context rows of positions max(0, p - window + 1) .. p and its own K block
/// rows, which live for the pass only: it leaves no trace, so running it twice gives the same.
/// Source: model-v41.md 11.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/forward_context.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer {

/// Chooses draft i of every sequence from its fixed-up logits; the seam for sampled drafts.
class draft_chooser {
public:
  virtual ~draft_chooser() = default;
  /// Row s of `count` belongs to sequence first + s: logits at logits + s * logits_stride, its id
  /// goes to ids[s * id_stride].
  virtual void choose(const stream_ref& stream, std::int32_t draft, std::int64_t first,
                      std::int64_t count, const float* logits, std::int64_t logits_stride,
                      std::int32_t* ids, std::int64_t id_stride) = 0;
};

/// One pass over `sequences`. All arrays are the device's. Slot or position < 0: no drafts wanted,
/// its outputs mean nothing.
struct draft_pass {
  std::int32_t sequences = 0;
  std::int32_t drafts = 0;                 ///< K, any number >= 1
  const std::int32_t* slot = nullptr;      ///< [sequences]
  const std::int32_t* position = nullptr;  ///< [sequences] p: last position with known taps
  const std::int32_t* anchor = nullptr;    ///< [sequences] the id that belongs to p + 1
  draft_chooser* chooser = nullptr;        ///< null: the arg-max
  std::int32_t* ids = nullptr;             ///< [sequences, K] out
  float* confidence = nullptr;             ///< [sequences, K] out, raw logits: sigmoid(z / T) is c
};

struct draft_buffers {
  draft_buffers() = default;
  draft_buffers(const model_config& config, const forward_limits& limits);

  std::int32_t tokens = 0;  ///< most tokens of a pass that run together
  lazy_array<std::int32_t> id, slot, position, row_token, row_first;  ///< [tokens]
  lazy_array<float> logits;                                           ///< [tokens, vocab]
  lazy_array<float> markov;                                           ///< [tokens, rank]
  input_buffer markov_input;
};

/// Context rows of every token of the step into the rings of the draft stages, from buffers.taps.
void store_draft_context(const forward_context& context, const model_weights& weights);

/// Runs passes for as many sequences at a time as fit. `base` is a context whose step is not used.
void run_draft_pass(const forward_context& base, const model_weights& weights,
                    draft_buffers& buffers, const draft_pass& pass);

}  // namespace deepinfer
