#include "runtime/model/weights.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "runtime/base/check.hpp"
#include "runtime/model/weight_arena.hpp"

namespace deepinfer {

namespace {

using kernels::packed_matrix;
using kernels::packing;
using kernels::row_table;
using kernels::stored_matrix;

/// Reads tensors one by one into a model_weights.
class weight_loader {
public:
  weight_loader(model_weights& into, packing how, weight_source& source,
                const load_progress& progress)
    : into_(into),
      how_(how),
      source_(source),
      progress_(progress),
      config_(into.config) {}

  result<void> load_all();

private:
  result<weight_tensor> get(const std::string& name, const std::vector<std::int64_t>& shape,
                            scale_layout scales = scale_layout::blocks);
  /// A product that `how_` may round.
  result<packed_matrix> matrix(const std::string& name, std::int64_t out, std::int64_t in);
  /// One that stays exact in every mode: small, or what follows hangs on its last bits.
  result<packed_matrix> exact_matrix(const std::string& name, std::int64_t out, std::int64_t in);
  result<std::vector<packed_matrix>> matrix_groups(const std::string& name, std::int64_t groups,
                                                   std::int64_t out, std::int64_t in);
  result<std::vector<float>> values(const std::string& name,
                                    const std::vector<std::int64_t>& shape);
  result<row_table> table(const std::string& name, std::int64_t rows, std::int64_t columns);
  packed_matrix pack(const stored_matrix& stored, packing how);

  result<hyper_weights> hyper(const std::string& prefix);
  result<kernels::expert_weights> expert(const std::string& prefix);
  result<attention_weights> attention(const std::string& prefix, const layer_config& layer);
  result<void> compressed_memory(attention_weights& weights, const std::string& prefix,
                                 const layer_config& layer);
  result<moe_weights> moe(const std::string& prefix, std::int32_t experts);
  result<block_weights> block(const std::string& prefix, const layer_config& layer,
                              std::int32_t experts);
  result<engram_weights> engram(const engram_layer_config& layer);
  result<draft_weights> draft();

  model_weights& into_;
  const packing how_;
  std::shared_ptr<weight_arena> memory_ = std::make_shared<weight_arena>();
  weight_source& source_;
  const load_progress& progress_;
  const model_config& config_;
  std::uint64_t done_bytes_ = 0;
};

result<weight_tensor> weight_loader::get(const std::string& name,
                                         const std::vector<std::int64_t>& shape,
                                         scale_layout scales) {
  DI_TRY(auto tensor, source_.get(name, shape, scales));
  done_bytes_ += tensor.values.bytes() + (tensor.scale.data ? tensor.scale.bytes() : 0);
  if (progress_) progress_(done_bytes_, source_.total_bytes());
  return tensor;
}

packed_matrix weight_loader::pack(const stored_matrix& stored, packing how) {
  const auto bytes =
    kernels::packed_bytes(kernels::panel_type_of(stored.type, how), stored.out, stored.in);
  into_.packed_bytes += static_cast<std::int64_t>(bytes);
  return kernels::pack_matrix(stored, how, memory_->take(bytes));
}

result<packed_matrix> weight_loader::matrix(const std::string& name, std::int64_t out,
                                            std::int64_t in) {
  DI_TRY(const auto tensor, get(name, {out, in}));
  return pack({tensor.values.type, out, in, tensor.values.data, tensor.scale.data}, how_);
}

result<packed_matrix> weight_loader::exact_matrix(const std::string& name, std::int64_t out,
                                                  std::int64_t in) {
  DI_TRY(const auto tensor, get(name, {out, in}));
  return pack({tensor.values.type, out, in, tensor.values.data, tensor.scale.data}, packing::exact);
}

/// Rows g * out ... of one stored matrix are the matrix of group g. A group whose first row does
/// not begin a block of scales goes through f32.
result<std::vector<packed_matrix>> weight_loader::matrix_groups(const std::string& name,
                                                                std::int64_t groups,
                                                                std::int64_t out, std::int64_t in) {
  constexpr std::int64_t scale_rows = 32;
  DI_TRY(const auto tensor, get(name, {groups * out, in}));
  const stored_matrix whole{tensor.values.type, groups * out, in, tensor.values.data,
                            tensor.scale.data};
  std::vector<packed_matrix> packed;
  std::vector<float> wide;
  for (std::int64_t group = 0; group < groups; ++group) {
    if (whole.scale && (whole.type != dtype::f8_e4m3 || out % scale_rows != 0)) {
      wide.resize(static_cast<std::size_t>(out * in));
      for (std::int64_t row = 0; row < out; ++row)
        kernels::dequantise_row(whole, group * out + row, wide.data() + row * in);
      packed.push_back(pack(
        {dtype::f32, out, in, reinterpret_cast<const std::byte*>(wide.data()), nullptr}, how_));
      continue;
    }
    auto part = whole;
    part.out = out;
    part.data += static_cast<std::size_t>(group * out * in) * size_of(whole.type);
    if (part.scale) part.scale += group * (out / scale_rows) * ((in + scale_rows - 1) / scale_rows);
    packed.push_back(pack(part, how_));
  }
  return packed;
}

result<std::vector<float>> weight_loader::values(const std::string& name,
                                                 const std::vector<std::int64_t>& shape) {
  DI_TRY(const auto tensor, get(name, shape));
  std::vector<float> wide(static_cast<std::size_t>(tensor.values.elements()));
  kernels::dequantise_row(
    {tensor.values.type, 1, tensor.values.elements(), tensor.values.data, tensor.scale.data}, 0,
    wide.data());
  return wide;
}

result<row_table> weight_loader::table(const std::string& name, std::int64_t rows,
                                       std::int64_t columns) {
  DI_TRY(auto tensor, get(name, {rows, columns}, scale_layout::rows));
  if (tensor.values.type == dtype::i8)
    return fail(errc::bad_checkpoint,
                fmt::format("tensor {}: found type I8, expected F32, BF16 or F8_E4M3", name));
  row_table made{tensor.values.type, tensor.values.data, tensor.scale.data, rows, columns};
  into_.owners.push_back(std::move(tensor.owner));
  return made;
}

result<hyper_weights> weight_loader::hyper(const std::string& prefix) {
  const std::int64_t rows = config_.mix_rows();
  hyper_weights made;
  DI_TRY(made.fn, exact_matrix(prefix + "_fn", rows,
                               std::int64_t{config_.stream_count} * config_.hidden_size));
  DI_TRY(made.base, values(prefix + "_base", {rows}));
  DI_TRY(made.scale, values(prefix + "_scale", {3}));
  return made;
}

result<kernels::expert_weights> weight_loader::expert(const std::string& prefix) {
  kernels::expert_weights made;
  DI_TRY(made.w1, matrix(prefix + "w1.weight", config_.expert_dim, config_.hidden_size));
  DI_TRY(made.w3, matrix(prefix + "w3.weight", config_.expert_dim, config_.hidden_size));
  DI_TRY(made.w2, matrix(prefix + "w2.weight", config_.hidden_size, config_.expert_dim));
  return made;
}

result<attention_weights> weight_loader::attention(const std::string& prefix,
                                                   const layer_config& layer) {
  const std::int64_t heads = config_.head_count, dim = config_.head_dim;
  const std::int64_t hidden = config_.hidden_size, groups = config_.o_groups;
  attention_weights made;
  DI_TRY(made.sink, values(prefix + "attn_sink", {heads}));
  DI_TRY(made.wq_a, matrix(prefix + "wq_a.weight", config_.q_rank, hidden));
  DI_TRY(made.q_norm, values(prefix + "q_norm.weight", {config_.q_rank}));
  DI_TRY(made.wq_b, matrix(prefix + "wq_b.weight", heads * dim, config_.q_rank));
  DI_TRY(made.wkv, matrix(prefix + "wkv.weight", dim, hidden));
  DI_TRY(made.kv_norm, values(prefix + "kv_norm.weight", {dim}));
  DI_TRY(made.wo_a,
         matrix_groups(prefix + "wo_a.weight", groups, config_.o_rank, heads / groups * dim));
  DI_TRY(made.wo_b, matrix(prefix + "wo_b.weight", hidden, groups * config_.o_rank));
  DI_TRY_VOID(compressed_memory(made, prefix, layer));
  return made;
}

result<void> weight_loader::compressed_memory(attention_weights& weights, const std::string& prefix,
                                              const layer_config& layer) {
  const std::int64_t dim = config_.head_dim, hidden = config_.hidden_size;
  const std::int64_t index_dim = config_.index_head_dim;
  if (layer.owns_rows) {
    const auto name = prefix + "compressor.";
    DI_TRY(weights.compressor.wkv, exact_matrix(name + "wkv.weight", dim, hidden));
    if (layer.ratio > 1) {
      DI_TRY(weights.compressor.wgate, exact_matrix(name + "wgate.weight", dim, hidden));
    }
    DI_TRY(weights.compressor.norm, values(name + "norm.weight", {dim}));
  }
  const auto name = prefix + "indexer.";
  if (layer.owns_index_keys) {
    DI_TRY(weights.index_keys.wk, exact_matrix(name + "wk.weight", index_dim, dim));
    DI_TRY(weights.index_keys.norm, values(name + "k_norm.weight", {index_dim}));
  }
  if (layer.runs_indexer) {
    const std::int64_t heads = config_.index_head_count;
    DI_TRY(weights.indexer.wq_b, matrix(name + "wq_b.weight", heads * index_dim, config_.q_rank));
    DI_TRY(weights.indexer.weights_proj, exact_matrix(name + "weights_proj.weight", heads, hidden));
  }
  return {};
}

result<moe_weights> weight_loader::moe(const std::string& prefix, std::int32_t experts) {
  moe_weights made;
  DI_TRY(made.gate, exact_matrix(prefix + "gate.weight", experts, config_.hidden_size));
  DI_TRY(made.bias, values(prefix + "gate.bias", {experts}));
  for (std::int32_t i = 0; i < experts; ++i) {
    DI_TRY(auto one, expert(fmt::format("{}experts.{}.", prefix, i)));
    made.experts.push_back(one);
  }
  DI_TRY(made.shared, expert(prefix + "shared_experts."));
  return made;
}

result<block_weights> weight_loader::block(const std::string& prefix, const layer_config& layer,
                                           std::int32_t experts) {
  block_weights made;
  DI_TRY(made.attn_norm, values(prefix + "attn_norm.weight", {config_.hidden_size}));
  DI_TRY(made.ffn_norm, values(prefix + "ffn_norm.weight", {config_.hidden_size}));
  DI_TRY(made.attn_mix, hyper(prefix + "hc_attn"));
  DI_TRY(made.ffn_mix, hyper(prefix + "hc_ffn"));
  DI_TRY(made.attention, attention(prefix + "attn.", layer));
  DI_TRY(made.moe, moe(prefix + "ffn.", experts));
  return made;
}

result<engram_weights> weight_loader::engram(const engram_layer_config& layer) {
  const auto prefix = fmt::format("layers.{}.engram.", layer.layer);
  const std::int64_t hidden = config_.hidden_size, streams = config_.stream_count;
  engram_weights made;
  DI_TRY(made.table, table(prefix + "embed.weight", layer.rows, config_.engram.head_dim));
  DI_TRY(made.wkv,
         matrix(prefix + "wkv.weight", (streams + 1) * hidden, config_.engram.input_dim()));
  DI_TRY(made.q_weight, values(prefix + "q_weight", {streams, hidden}));
  DI_TRY(made.k_weight, values(prefix + "k_weight", {streams, hidden}));
  made.constants = make_engram_constants(config_.engram, layer);
  return made;
}

result<draft_weights> weight_loader::draft() {
  const std::int64_t hidden = config_.hidden_size, rank = config_.draft.markov_rank;
  const auto taps = static_cast<std::int64_t>(config_.draft.target_layers.size());
  const auto last = fmt::format("mtp.{}.", config_.draft.stage_count - 1);
  draft_weights made;
  DI_TRY(made.main_proj, matrix("mtp.0.main_proj.weight", hidden, taps * hidden));
  DI_TRY(made.main_norm, values("mtp.0.main_norm.weight", {hidden}));
  DI_TRY(made.norm, values(last + "norm.weight", {hidden}));
  DI_TRY(made.markov_embed, table(last + "markov_head.embed.weight", config_.vocab_size, rank));
  DI_TRY(made.markov_head, matrix(last + "markov_head.head.weight", config_.vocab_size, rank));
  DI_TRY(made.confidence, values(last + "confidence_head.proj.weight", {1, hidden + rank}));
  return made;
}

result<void> weight_loader::load_all() {
  const std::int64_t vocab = config_.vocab_size, hidden = config_.hidden_size;
  into_.owners.push_back(memory_);
  DI_TRY(into_.embed, table("embed.weight", vocab, hidden));
  DI_TRY(into_.head, matrix("head.weight", vocab, hidden));
  DI_TRY(into_.norm, values("norm.weight", {hidden}));
  const auto stages = config_.draft.stage_count;
  for (std::int32_t i = 0; i < config_.layer_count + stages; ++i) {
    const bool is_stage = i >= config_.layer_count;
    const auto prefix =
      is_stage ? fmt::format("mtp.{}.", i - config_.layer_count) : fmt::format("layers.{}.", i);
    const auto experts = is_stage ? config_.draft.expert_count : config_.expert_count;
    const auto& layer = config_.layers[static_cast<std::size_t>(i)];
    DI_TRY(auto made, block(prefix, layer, experts));
    into_.blocks.push_back(std::move(made));
  }
  for (const auto& layer : config_.engram_layers) {
    DI_TRY(auto made, engram(layer));
    into_.engrams.push_back(std::move(made));
  }
  if (config_.has_draft()) {
    DI_TRY(into_.draft, draft());
  }
  if (progress_) progress_(std::max(done_bytes_, source_.total_bytes()), source_.total_bytes());
  return {};
}

/// A wrong map would not crash: it would silently look up other n-grams.
result<void> check_classes(const model_config& config, const std::vector<std::int32_t>& classes) {
  if (!config.has_engram()) return {};
  if (classes.size() != static_cast<std::size_t>(config.vocab_size))
    return fail(errc::bad_checkpoint,
                fmt::format("Engram token classes: found {} entries, expected "
                            "one for each of {} ids",
                            classes.size(), config.vocab_size));
  const auto [least, most] = std::minmax_element(classes.begin(), classes.end());
  if (*least < 0 || *most + 1 != config.engram.class_count)
    return fail(errc::bad_checkpoint,
                fmt::format("Engram token classes: found {} to {}, expected 0 to {} "
                            "(text_config.engram_compressed_vocab_size - 1)",
                            *least, *most, config.engram.class_count - 1));
  return {};
}

}  // namespace

result<std::shared_ptr<const model_weights>> load_weights(const model_config& config,
                                                          std::vector<std::int32_t> token_classes,
                                                          packing how, weight_source& source,
                                                          const load_progress& progress) {
  DI_TRY_VOID(check_classes(config, token_classes));
  auto weights = std::make_shared<model_weights>();
  weights->config = config;
  if (config.has_engram()) weights->token_classes = std::move(token_classes);
  weights->packed_for = how;
  weight_loader loader(*weights, how, source, progress);
  DI_TRY_VOID(loader.load_all());
  return weights;
}

}  // namespace deepinfer
