/// Sees what a forward computes on its way: for golden tests and for comparing with another engine.
/// A null observer costs one comparison per point.
///
/// Values are the device's own arrays and valid during the call only. Rows of all tokens of the
/// step, in batch order.
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

enum class model_point : std::uint8_t {
  engram_ids,        ///< i64 [tokens, columns], `layer` = model layer
  engram_out,        ///< [tokens, S, D] streams after Engram, before the layer
  attention_out,     ///< [tokens, D] sublayer output, before the stream update
  ffn_out,           ///< [tokens, D]
  stream,            ///< [tokens, S, D] after the layer
  premix,            ///< [tokens, S] outgoing collapse weights, after the layer
  index_list,        ///< i32 [tokens, topk] of an index source
  candidate_blocks,  ///< i32 [tokens, blocks] of the candidate source
  router_ids,        ///< i32 [tokens, k] ascending
  router_weights,    ///< [tokens, k]
  main_hidden,       ///< [tokens, taps * D], `layer` = -1
  draft_logits,      ///< [sequences, K, vocab] after the Markov correction, `layer` = -1
};

class model_observer {
public:
  virtual ~model_observer() = default;
  virtual void see(model_point, std::int32_t layer, std::span<const float>) { (void)layer; }
  virtual void see(model_point, std::int32_t layer, std::span<const std::int32_t>) { (void)layer; }
  virtual void see(model_point, std::int32_t layer, std::span<const std::int64_t>) { (void)layer; }
};

}  // namespace deepinfer
