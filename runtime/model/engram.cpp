#include "runtime/model/engram.hpp"

namespace deepinfer {

void run_engram(const forward_context& context, std::int32_t layer, const engram_weights& weights,
                const std::vector<std::int32_t>& token_classes) {
  auto& buffers = context.buffers;
  const auto& config = context.config;
  const auto tokens = context.tokens();
  const auto columns = config.engram.columns();
  kernels::ngram_ids_args ids;
  ids.batch = context.step.batch;
  ids.history = context.state.tokens.data();
  ids.token_class = token_classes.data();
  ids.vocab = config.vocab_size;
  ids.pad_class = token_classes[static_cast<std::size_t>(config.engram.pad_token)];
  ids.ngram = config.engram.max_ngram;
  ids.heads = config.engram.head_count;
  ids.multiplier = weights.constants.multipliers.data();
  ids.prime = weights.constants.primes.data();
  ids.offset = weights.constants.offsets.data();
  ids.id = buffers.engram_ids.data();
  context.ops.ngram_ids(context.stream, ids);
  context.show(model_point::engram_ids, layer, buffers.engram_ids.data(), tokens * columns);

  kernels::lookup_args lookup;
  lookup.table = &weights.table;
  lookup.index64 = buffers.engram_ids.data();
  lookup.y = buffers.engram_rows.data();
  lookup.count = tokens * columns;
  lookup.bf16 = context.rounding.bf16;
  context.ops.lookup(context.stream, lookup);
  const auto rows = context.input_of(buffers.engram_rows.data(), buffers.engram_input, tokens,
                                     config.engram.input_dim());
  context.linear(weights.wkv, rows, buffers.engram_kv.data(), tokens, context.rounding.bf16);

  kernels::engram_gate_args gate;
  gate.x = buffers.streams.data();
  gate.kv = buffers.engram_kv.data();
  gate.q_weight = weights.q_weight.data();
  gate.k_weight = weights.k_weight.data();
  gate.tokens = tokens;
  gate.streams = config.stream_count;
  gate.dim = config.hidden_size;
  gate.eps = static_cast<float>(config.rms_norm_eps);
  gate.bf16 = context.rounding.bf16;
  context.ops.engram_gate(context.stream, gate);
  context.show(model_point::engram_out, layer, buffers.streams.data(),
               tokens * config.stream_count * config.hidden_size);
}

}  // namespace deepinfer
