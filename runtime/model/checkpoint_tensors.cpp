#include "runtime/model/checkpoint_tensors.hpp"

#include <fmt/format.h>

namespace deepinfer {
namespace {

/// Appends tensors under a prefix; the one place that knows which ones have scales.
class tensor_list {
public:
  tensor_list(const model_config& config, std::vector<expected_tensor>& out)
    : config_(config),
      out_(out) {}

  void enter(std::string prefix, bool is_draft) {
    prefix_ = std::move(prefix);
    is_draft_ = is_draft;
  }
  void add(std::string_view name, std::vector<std::int64_t> shape, storage_rule rule,
           tensor_kind kind, bool is_optional = false) {
    if (is_draft_)
      kind = kind == tensor_kind::experts ? tensor_kind::draft_experts : tensor_kind::draft;
    out_.push_back({prefix_ + std::string(name), std::move(shape), rule, kind, is_optional});
  }
  /// `name`.weight [outputs, inputs], never quantised.
  void plain(const std::string& name, std::int64_t outputs, std::int64_t inputs, tensor_kind kind) {
    add(name + ".weight", {outputs, inputs}, storage_rule::plain, kind);
  }
  void norm(const std::string& name, std::int64_t width, tensor_kind kind) {
    add(name + ".weight", {width}, storage_rule::plain, kind);
  }
  /// `name`.weight, FP8 with its scale where the checkpoint is quantised.
  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs,
              tensor_kind kind) {
    if (!config_.quantization) return plain(name, outputs, inputs, kind);
    const auto groups = [](std::int64_t size, std::int64_t group) {
      return (size + group - 1) / group;
    };
    add(name + ".weight", {outputs, inputs}, storage_rule::fp8, kind);
    add(name + ".scale",
        {groups(outputs, config_.quantization->block_rows),
         groups(inputs, config_.quantization->block_columns)},
        storage_rule::scale, kind);
  }
  /// `name`.weight, FP4 with its scale where the checkpoint is quantised.
  void expert(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    if (!config_.quantization) return plain(name, outputs, inputs, tensor_kind::experts);
    add(name + ".weight", {outputs, inputs / 2}, storage_rule::fp4, tensor_kind::experts);
    add(name + ".scale", {outputs, inputs / config_.quantization->expert_group},
        storage_rule::scale, tensor_kind::experts);
  }
  /// The Engram table: FP8 with a scale per row and group of columns.
  void table(std::int64_t rows, std::int64_t columns) {
    constexpr auto kind = tensor_kind::engram_tables;
    if (!config_.quantization) return plain("engram.embed", rows, columns, kind);
    add("engram.embed.weight", {rows, columns}, storage_rule::fp8, kind);
    add("engram.embed.scale", {rows, columns / config_.quantization->block_columns},
        storage_rule::scale, kind);
  }

private:
  const model_config& config_;
  std::vector<expected_tensor>& out_;
  std::string prefix_;
  bool is_draft_ = false;
};

/// What every decoder layer and every draft stage has.
void add_block(tensor_list& list, const model_config& config, std::int32_t expert_count) {
  const std::int64_t hidden = config.hidden_size, streams = config.stream_count;
  const std::int64_t row = config.head_dim, rank = config.q_rank, inner = config.expert_dim;
  const std::int64_t heads = config.head_count, groups = config.o_groups;
  list.norm("attn_norm", hidden, tensor_kind::attention);
  list.norm("ffn_norm", hidden, tensor_kind::attention);
  for (const std::string part : {"hc_attn_", "hc_ffn_"}) {
    const std::int64_t rows = config.mix_rows();
    list.add(part + "fn", {rows, streams * hidden}, storage_rule::f32, tensor_kind::mixing);
    list.add(part + "base", {rows}, storage_rule::f32, tensor_kind::mixing);
    list.add(part + "scale", {3}, storage_rule::f32, tensor_kind::mixing);
  }
  list.add("attn.attn_sink", {heads}, storage_rule::f32, tensor_kind::attention);
  list.linear("attn.wq_a", rank, hidden, tensor_kind::attention);
  list.norm("attn.q_norm", rank, tensor_kind::attention);
  list.linear("attn.wq_b", heads * row, rank, tensor_kind::attention);
  list.linear("attn.wkv", row, hidden, tensor_kind::attention);
  list.norm("attn.kv_norm", row, tensor_kind::attention);
  list.linear("attn.wo_a", groups * config.o_rank, heads / groups * row, tensor_kind::attention);
  list.linear("attn.wo_b", hidden, groups * config.o_rank, tensor_kind::attention);
  list.plain("ffn.gate", expert_count, hidden, tensor_kind::routers);
  list.add("ffn.gate.bias", {expert_count}, storage_rule::f32, tensor_kind::routers);
  list.add("ffn.gate.bias_vl", {expert_count}, storage_rule::f32, tensor_kind::routers, true);
  for (std::int32_t id = 0; id < expert_count; ++id) {
    const auto expert = fmt::format("ffn.experts.{}.", id);
    list.expert(expert + "w1", inner, hidden);
    list.expert(expert + "w3", inner, hidden);
    list.expert(expert + "w2", hidden, inner);
  }
  list.linear("ffn.shared_experts.w1", inner, hidden, tensor_kind::shared_experts);
  list.linear("ffn.shared_experts.w3", inner, hidden, tensor_kind::shared_experts);
  list.linear("ffn.shared_experts.w2", hidden, inner, tensor_kind::shared_experts);
}

/// Compressor, index keys, indexer, Engram: where the layer has them.
void add_extras(tensor_list& list, const model_config& config, const layer_config& layer) {
  const std::int64_t hidden = config.hidden_size, row = config.head_dim;
  const std::int64_t heads = config.index_head_count, width = config.index_head_dim;
  if (layer.owns_rows) {
    list.plain("attn.compressor.wkv", row, hidden, tensor_kind::attention);
    if (layer.ratio > 1) list.plain("attn.compressor.wgate", row, hidden, tensor_kind::attention);
    list.norm("attn.compressor.norm", row, tensor_kind::attention);
  }
  if (layer.owns_index_keys) {
    list.plain("attn.indexer.wk", width, row, tensor_kind::attention);
    list.norm("attn.indexer.k_norm", width, tensor_kind::attention);
  }
  if (layer.runs_indexer) {
    list.linear("attn.indexer.wq_b", heads * width, config.q_rank, tensor_kind::attention);
    list.plain("attn.indexer.weights_proj", heads, hidden, tensor_kind::attention);
  }
  if (layer.engram < 0) return;
  const std::int64_t streams = config.stream_count;
  list.table(config.engram_layers[static_cast<std::size_t>(layer.engram)].rows,
             config.engram.head_dim);
  list.linear("engram.wkv", (streams + 1) * hidden, config.engram.input_dim(), tensor_kind::engram);
  list.add("engram.q_weight", {streams, hidden}, storage_rule::plain, tensor_kind::engram);
  list.add("engram.k_weight", {streams, hidden}, storage_rule::plain, tensor_kind::engram);
}

void add_draft(tensor_list& list, const model_config& config) {
  const std::int64_t hidden = config.hidden_size, rank = config.draft.markov_rank;
  for (std::int32_t stage = 0; stage < config.draft.stage_count; ++stage) {
    list.enter(fmt::format("mtp.{}.", stage), true);
    add_block(list, config, config.draft.expert_count);
    if (stage == 0) {
      const auto taps = static_cast<std::int64_t>(config.draft.target_layers.size());
      list.linear("main_proj", hidden, taps * hidden, tensor_kind::draft);
      list.norm("main_norm", hidden, tensor_kind::draft);
    }
    if (stage != config.draft.stage_count - 1) continue;
    list.norm("norm", hidden, tensor_kind::draft);
    list.plain("markov_head.embed", config.vocab_size, rank, tensor_kind::draft);
    list.plain("markov_head.head", config.vocab_size, rank, tensor_kind::draft);
    list.plain("confidence_head.proj", 1, hidden + rank, tensor_kind::draft);
  }
}

}  // namespace

std::string_view name_of(tensor_kind kind) {
  switch (kind) {
  case tensor_kind::embeddings: return "embeddings";
  case tensor_kind::attention: return "attention";
  case tensor_kind::mixing: return "mixing";
  case tensor_kind::routers: return "routers";
  case tensor_kind::experts: return "experts";
  case tensor_kind::shared_experts: return "shared experts";
  case tensor_kind::engram_tables: return "engram tables";
  case tensor_kind::engram: return "engram";
  case tensor_kind::draft: return "draft";
  case tensor_kind::draft_experts: return "draft experts";
  }
  return "?";
}

std::vector<expected_tensor> expected_tensors(const model_config& config) {
  std::vector<expected_tensor> out;
  tensor_list list(config, out);
  list.enter("", false);
  list.plain("embed", config.vocab_size, config.hidden_size, tensor_kind::embeddings);
  list.plain("head", config.vocab_size, config.hidden_size, tensor_kind::embeddings);
  list.norm("norm", config.hidden_size, tensor_kind::embeddings);
  for (std::int32_t id = 0; id < config.layer_count; ++id) {
    list.enter(fmt::format("layers.{}.", id), false);
    add_block(list, config, config.expert_count);
    add_extras(list, config, config.layers[static_cast<std::size_t>(id)]);
  }
  add_draft(list, config);
  return out;
}

bool allows(storage_rule rule, dtype type) {
  switch (rule) {
  case storage_rule::plain: return type == dtype::bf16 || type == dtype::f32;
  case storage_rule::f32: return type == dtype::f32;
  case storage_rule::fp8: return type == dtype::f8_e4m3;
  case storage_rule::fp4: return type == dtype::i8;
  case storage_rule::scale: return type == dtype::f8_e8m0;
  }
  return false;
}

std::string_view text_of(storage_rule rule) {
  switch (rule) {
  case storage_rule::plain: return "BF16 or F32";
  case storage_rule::f32: return "F32";
  case storage_rule::fp8: return "F8_E4M3";
  case storage_rule::fp4: return "I8 (FP4 pairs)";
  case storage_rule::scale: return "F8_E8M0";
  }
  return "?";
}

bool is_skipped(std::string_view name, const model_config& config) {
  if (name.starts_with("vision.") || name.starts_with("aligner.")) return true;
  if (name == "image_start" || name == "image_end" || name == "image_newline") return true;
  for (std::int32_t stage = 0; stage < config.draft.stage_count; ++stage) {
    const auto prefix = fmt::format("mtp.{}.", stage);
    if (!name.starts_with(prefix)) continue;
    const auto rest = name.substr(prefix.size());
    return rest == "embed.weight" || rest == "head.weight";
  }
  return false;
}

}  // namespace deepinfer
