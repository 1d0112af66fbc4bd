#include "runtime/model/make_model_shape.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/checkpoint_tensors.hpp"

namespace deepinfer {
namespace {

constexpr std::int32_t draft_stages = 3;
constexpr std::int32_t window_layers = 2;
constexpr std::int32_t source_distance = 3;  // the release: 6, in 18 layers instead of 5
constexpr std::int32_t index_distance = 2;   // the release: 4, in 20 layers instead of 5

/// The lists of layers that a depth gives.
struct layer_lists {
  json::array ratios, kv_sources, index_sources, engrams, taps;
  std::int32_t candidate_source = 0;
};

layer_lists lists_of(std::int32_t layers) {
  layer_lists lists;
  const auto first_decoder = window_layers + (layers - window_layers) / 2;
  for (std::int32_t layer = 0; layer < layers; ++layer)
    lists.ratios.push_back(layer < window_layers ? 0 : layer < first_decoder ? 2 : 1);
  for (std::int32_t stage = 0; stage < draft_stages; ++stage) lists.ratios.push_back(0);
  for (auto layer = window_layers; layer < first_decoder; layer += source_distance)
    lists.kv_sources.push_back(layer);
  lists.index_sources = lists.kv_sources;
  lists.kv_sources.push_back(first_decoder);
  lists.candidate_source = first_decoder;
  for (auto layer = first_decoder; layer < layers; layer += index_distance)
    lists.index_sources.push_back(layer);
  lists.engrams = {1, layers / 2};
  for (auto layer = layers - draft_stages; layer < layers; ++layer) lists.taps.push_back(layer);
  return lists;
}

void put_attention(json::object& out, const random_model_shape& shape, const layer_lists& lists) {
  out["num_attention_heads"] = shape.head_count;
  out["num_key_value_heads"] = 1;
  out["head_dim"] = shape.head_dim;
  out["qk_rope_head_dim"] = shape.rope_dim;
  out["q_lora_rank"] = shape.q_rank;
  out["o_groups"] = shape.o_groups;
  out["o_lora_rank"] = shape.o_rank;
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  out["sliding_window"] = 128;
  out["compress_ratios"] = lists.ratios;
  out["kv_source_layer_ids"] = lists.kv_sources;
  out["index_source_layer_ids"] = lists.index_sources;
  out["index_n_heads"] = shape.index_head_count;
  out["index_head_dim"] = shape.index_head_dim;
  out["index_topk"] = shape.index_topk;
  out["candidate_source_layer_id"] = lists.candidate_source;
  out["candidate_topk_blocks"] = shape.candidate_blocks;
  out["candidate_block_size"] = 8;
  out["rope_theta"] = 10000;
  out["compress_rope_theta"] = 160000;
  out["rope_scaling"] = {{"rope_type", "yarn"},
                         {"factor", 16},
                         {"beta_fast", 32},
                         {"beta_slow", 1},
                         {"original_max_position_embeddings", 65536}};
}

void put_sublayers(json::object& out, const random_model_shape& shape) {
  out["n_routed_experts"] = shape.expert_count;
  out["n_shared_experts"] = 1;
  out["num_experts_per_tok"] = shape.experts_per_token;
  out["moe_intermediate_size"] = shape.expert_dim;
  out["hidden_act"] = "silu";
  out["swiglu_limit"] = 10.0;
  out["scoring_func"] = "sqrtsoftplus";
  out["topk_method"] = "noaux_tc";
  out["norm_topk_prob"] = true;
  out["routed_scaling_factor"] = 1.5;
  out["hc_mult"] = 4;
  out["hc_sinkhorn_iters"] = 20;
  out["hc_eps"] = 1e-6;
}

void put_engram_and_draft(json::object& out, const random_model_shape& shape,
                          const random_model_text& text, const layer_lists& lists) {
  out["engram_layer_ids"] = lists.engrams;
  out["engram_vocab_size"] = shape.engram_vocab_size;
  out["engram_max_ngram_size"] = 4;
  out["engram_n_heads"] = 4;
  out["engram_head_dim"] = shape.engram_head_dim;
  out["engram_pad_token_id"] = text.pad_token;
  out["engram_compressed_vocab_size"] = text.class_count;
  out["num_nextn_predict_layers"] = draft_stages;
  out["dspark_block_size"] = 5;
  out["dspark_noise_token_id"] = text.noise_token;
  out["dspark_target_layer_ids"] = lists.taps;
  out["dspark_markov_rank"] = shape.markov_rank;
  out["dspark_n_routed_experts"] = std::min(shape.draft_expert_count, shape.expert_count);
  out["dspark_num_experts_per_tok"] = std::min(shape.draft_experts_per_token, shape.expert_count);
}

std::int64_t elements_of(const expected_tensor& tensor) {
  std::int64_t count = tensor.rule == storage_rule::fp4 ? 2 : 1;
  for (const auto extent : tensor.shape) count *= extent;
  return tensor.rule == storage_rule::scale ? 0 : count;
}

}  // namespace

std::optional<random_model_shape> random_model_shape_of(std::string_view name) {
  random_model_shape shape{.vocab_size = 16384,
                           .hidden_size = 512,
                           .layer_count = 8,
                           .head_count = 16,
                           .head_dim = 128,
                           .rope_dim = 32,
                           .q_rank = 128,
                           .o_groups = 4,
                           .o_rank = 128,
                           .index_head_count = 8,
                           .index_head_dim = 64,
                           .index_topk = 128,
                           .candidate_blocks = 32,
                           .expert_count = 64,
                           .experts_per_token = 6,
                           .expert_dim = 256,
                           .engram_head_dim = 32,
                           .engram_vocab_size = 2000,
                           .draft_expert_count = 8,
                           .draft_experts_per_token = 3,
                           .markov_rank = 32};
  if (name == "S") return shape;
  if (name != "M") return std::nullopt;
  shape.vocab_size = 32768;
  shape.hidden_size = 1024;
  shape.layer_count = 12;
  shape.head_dim = 256;
  shape.q_rank = 256;
  shape.o_rank = 256;
  shape.expert_dim = 512;
  shape.engram_head_dim = 64;
  shape.engram_vocab_size = 4000;
  shape.markov_rank = 64;
  return shape;
}

result<std::string> random_model_config(const random_model_shape& shape,
                                        const random_model_text& text) {
  DI_CHECK(shape.layer_count >= 4, "{} layers", shape.layer_count);
  const auto lists = lists_of(shape.layer_count);
  json::object inner;
  inner["model_type"] = "deepseek_v41_text";
  inner["vocab_size"] = shape.vocab_size;
  inner["hidden_size"] = shape.hidden_size;
  inner["num_hidden_layers"] = shape.layer_count;
  inner["rms_norm_eps"] = 1e-20;
  inner["max_position_embeddings"] = 16384;
  inner["tie_word_embeddings"] = false;
  put_attention(inner, shape, lists);
  put_sublayers(inner, shape);
  put_engram_and_draft(inner, shape, text, lists);
  json::object top;
  top["architectures"] = {"DeepseekV41ForCausalLM"};
  top["model_type"] = "deepseek_v41";
  top["dtype"] = "bfloat16";
  top["bos_token_id"] = text.bos_token;
  top["eos_token_id"] = text.eos_token;
  top["pad_token_id"] = text.pad_token;
  top["quantization_config"] = {{"quant_method", "fp8"},
                                {"activation_scheme", "dynamic"},
                                {"weight_block_size", {32, 32}},
                                {"scale_fmt", "ue8m0"},
                                {"expert_dtype", "fp4"}};
  top["text_config"] = std::move(inner);
  auto out = to_text(top);
  auto parsed = parse_model_config(out);
  if (!parsed) return fail(errc::bad_config, std::move(parsed).error().message);
  return out;
}

parameter_count count_parameters(const model_config& config) {
  parameter_count count;
  for (const auto& tensor : expected_tensors(config)) {
    const auto elements = elements_of(tensor);
    count.total += elements;
    switch (tensor.kind) {
    case tensor_kind::draft:
    case tensor_kind::draft_experts: count.drafter += elements; break;
    case tensor_kind::engram_tables:
      count.engram_tables += elements;
      if (elements > 0) count.active += config.engram.input_dim();
      break;
    case tensor_kind::experts:
      count.active += elements * config.experts_per_token / config.expert_count;
      break;
    default:
      if (tensor.name != "embed.weight") count.active += elements;
    }
  }
  return count;
}

}  // namespace deepinfer
