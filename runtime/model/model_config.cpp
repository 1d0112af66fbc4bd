#include "runtime/model/model_config.hpp"

#include <array>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/config_reader.hpp"
#include "runtime/model/model_topology.hpp"

namespace deepinfer {
namespace {

// Bounds are far above any model of this kind; they keep products of two sizes inside 64 bits, and
// a damaged file from asking for absurd memory.
constexpr integer_range width{1, 1 << 20};
constexpr integer_range few{1, 1 << 10};
constexpr integer_range count{1, 1 << 16};
constexpr std::int64_t most_layers = 1024;
constexpr auto largest = std::numeric_limits<double>::max();

constexpr integer_range ids_of(const model_config& config) {
  return {0, std::int64_t{config.vocab_size} - 1};
}

void read_text(config_reader& keys, model_config& config) {
  keys.integer({"vocab_size"}, config.vocab_size, {1, 1 << 24});
  keys.integer({"max_position_embeddings", "max_seq_len"}, config.max_positions, {1, 1 << 30});
  keys.integer({"hidden_size", "dim"}, config.hidden_size, width);
  keys.integer({"num_hidden_layers", "n_layers"}, config.layer_count, {1, most_layers});
  keys.real({"rms_norm_eps", "norm_eps"}, config.rms_norm_eps, 0, 1);
  keys.only({"tie_word_embeddings"}, {"false"});
}

void read_attention(config_reader& keys, model_config& config) {
  keys.integer({"num_attention_heads", "n_heads"}, config.head_count, count);
  keys.only({"num_key_value_heads"}, {"1"});
  keys.integer({"head_dim"}, config.head_dim, count);
  keys.integer({"qk_rope_head_dim", "rope_head_dim"}, config.rope_dim, {2, 1 << 16});
  keys.integer({"q_lora_rank"}, config.q_rank, width);
  keys.integer({"o_groups"}, config.o_groups, few);
  keys.integer({"o_lora_rank"}, config.o_rank, width);
  keys.integer({"sliding_window", "window_size"}, config.window, {1, 1 << 20});
  keys.only({"attention_bias"}, {"false"});
  keys.only({"attention_dropout"}, {"0"});
}

/// YaRN, from the nested object or from the flat keys of the released script.
void read_rope(config_reader& keys, model_config& config, std::optional<error>& latch) {
  keys.real({"rope_theta"}, config.window_rope.theta, 1, 1e12);
  keys.real({"compress_rope_theta"}, config.compressed_rope.theta, 1, 1e12);
  auto& rope = config.compressed_rope;
  const auto numbers = [&](config_reader& from, config_key factor, config_key original) {
    from.real(factor, rope.factor, 1, 1e6);
    from.real({"beta_fast"}, rope.beta_fast, 1e-6, 1e6);
    from.real({"beta_slow"}, rope.beta_slow, 1e-6, 1e6);
    from.integer(original, rope.original_max_positions, {std::int64_t{-1} << 30, 1 << 30});
    rope.is_yarn = rope.original_max_positions > 0;
  };
  if (const auto* nested = keys.child({"rope_scaling"})) {
    config_reader scaling(*nested, keys.path("rope_scaling"), latch);
    std::string type;
    scaling.text({"rope_type", "type"}, type);
    if (type == "default") return;
    scaling.exactly({"rope_type", "type"}, "\"yarn\"");
    numbers(scaling, {"factor"}, {"original_max_position_embeddings"});
    for (const auto& name : scaling.unread())
      config.warnings.push_back(scaling.path(name) + ": unknown key, not used");
  } else if (keys.has({"rope_factor"}) || keys.has({"original_seq_len"})) {
    numbers(keys, {"rope_factor"}, {"original_seq_len"});
  }
}

void read_sources(config_reader& keys, model_config& config, topology_lists& lists) {
  const integer_range layer{0, std::int64_t{config.layer_count} - 1};
  keys.integers({"compress_ratios"}, lists.ratios, {0, 64}, most_layers + 64);
  keys.integers({"kv_source_layer_ids", "kv_source_layers"}, lists.kv_sources, layer, most_layers);
  keys.integers({"index_source_layer_ids", "index_source_layers"}, lists.index_sources, layer,
                most_layers);
  lists.index_key_sources = lists.kv_sources;
  constexpr config_key index_keys{"index_k_source_layer_ids", "index_k_source_layers"};
  if (keys.has(index_keys)) keys.integers(index_keys, lists.index_key_sources, layer, most_layers);
  if (lists.kv_sources.empty()) return;
  keys.integer({"index_n_heads"}, config.index_head_count, count);
  keys.integer({"index_head_dim"}, config.index_head_dim, count);
  keys.integer({"index_topk"}, config.index_topk, {1, 1 << 30});
  keys.optional_boolean({"use_fp4_sparse_kv"}, config.fp4_sparse_kv);
  constexpr config_key source{"candidate_source_layer_id", "candidate_source_layer"};
  keys.optional_integer(source, config.candidate_source,
                        integer_range{std::numeric_limits<std::int32_t>::min(), layer.most});
  if (config.candidate_source < 0) {
    config.candidate_source = -1;
    return;
  }
  keys.integer({"candidate_topk_blocks"}, config.candidate_blocks, {1, 1 << 24});
  keys.integer({"candidate_block_size"}, config.candidate_block_size, count);
}

void read_experts(config_reader& keys, model_config& config) {
  keys.integer({"n_routed_experts"}, config.expert_count, count);
  keys.exactly({"n_shared_experts"}, "1");
  keys.integer({"num_experts_per_tok", "n_activated_experts"}, config.experts_per_token, few);
  keys.integer({"moe_intermediate_size", "moe_inter_dim"}, config.expert_dim, width);
  keys.only({"scoring_func", "score_func"}, {"\"sqrtsoftplus\""});
  keys.only({"topk_method"}, {"\"noaux_tc\""});
  keys.only({"hidden_act"}, {"\"silu\""});
  keys.boolean({"norm_topk_prob"}, config.normalizes_weights);
  keys.real({"routed_scaling_factor", "route_scale"}, config.routed_scale, 1e-6, 1e6);
  keys.optional_real({"gate_temp"}, config.gate_temperature, 1e-6, 1e6);
  keys.real({"swiglu_limit"}, config.swiglu_limit, 0, 1e30);
}

void read_streams(config_reader& keys, model_config& config) {
  keys.integer({"hc_mult"}, config.stream_count, {1, 64});
  keys.integer({"hc_sinkhorn_iters"}, config.sinkhorn_rounds, {1, 1000});
  keys.real({"hc_eps"}, config.hyper_eps, 0, 1);
  keys.only({"hc_shifted"}, {"true"});
}

void read_engram(config_reader& keys, model_config& config, topology_lists& lists) {
  constexpr config_key layers{"engram_layer_ids"};
  const auto read = [&] {
    auto& engram = config.engram;
    keys.integer({"engram_max_ngram_size"}, engram.max_ngram, {2, 16});
    keys.integer({"engram_n_heads"}, engram.head_count, {1, 256});
    keys.integer({"engram_head_dim"}, engram.head_dim, {1, 1 << 14});
    keys.integer({"engram_vocab_size"}, engram.vocab_size, {2, 1 << 30});
    keys.integer({"engram_compressed_vocab_size"}, engram.class_count,
                 {1, std::int64_t{config.vocab_size}});
    keys.integer({"engram_pad_token_id", "engram_pad_id"}, engram.pad_token, ids_of(config));
  };
  if (keys.has(layers))
    keys.integers(layers, lists.engram_layers, {0, std::int64_t{config.layer_count} - 1}, 64);
  if (!lists.engram_layers.empty()) read();
  constexpr config_key rows{"engram_num_embeddings"};
  if (keys.has(rows))
    keys.integers(rows, lists.engram_rows, {1, std::numeric_limits<std::int32_t>::max()}, 64);
}

void read_draft(config_reader& keys, model_config& config) {
  auto& draft = config.draft;
  keys.optional_integer({"num_nextn_predict_layers", "n_mtp_layers"}, draft.stage_count,
                        integer_range{0, 64});
  if (draft.stage_count == 0) return;
  keys.integer({"dspark_block_size"}, draft.block_size, {1, 1024});
  keys.integer({"dspark_noise_token_id"}, draft.noise_token, ids_of(config));
  keys.integer({"dspark_markov_rank"}, draft.markov_rank, width);
  keys.integers({"dspark_target_layer_ids"}, draft.target_layers,
                {0, std::int64_t{config.layer_count} - 1}, 64);
  keys.optional_integer({"dspark_n_routed_experts"}, draft.expert_count,
                        integer_range{0, count.most});
  keys.optional_integer({"dspark_num_experts_per_tok", "dspark_n_activated_experts"},
                        draft.experts_per_token, integer_range{0, few.most});
  keys.only({"dspark_target_attn_input"}, {"true"});
  if (draft.expert_count == 0) draft.expert_count = config.expert_count;
  if (draft.experts_per_token == 0) draft.experts_per_token = config.experts_per_token;
}

void read_token_ids(config_reader& keys, model_config& config) {
  const auto ids = ids_of(config);
  keys.optional_integer({"bos_token_id"}, config.bos_token, ids);
  keys.optional_integer({"pad_token_id"}, config.pad_token, ids);
  keys.optional_integer({"image_token_id"}, config.image_token, ids);
  constexpr config_key eos{"eos_token_id"};
  const auto* value = keys.find(eos);
  if (!value) return;
  if (value->is_array()) {
    keys.integers(eos, config.eos_tokens, ids, 256);
  } else {
    config.eos_tokens.resize(1);
    keys.integer(eos, config.eos_tokens[0], ids);
  }
}

/// What the file says it is. One of the two names must be there, or anything would do.
void read_identity(config_reader& keys, model_config& config, bool is_nested) {
  if (!keys.has({"model_type"}) && !keys.has({"architectures"}))
    keys.refuse({"model_type"}, nullptr, "\"deepseek_v41\"");
  if (is_nested) {
    keys.only({"model_type"}, {"\"deepseek_v41\""});
  } else {
    keys.only({"model_type"}, {"\"deepseek_v41\"", "\"deepseek_v41_text\""});
  }
  keys.only({"architectures"}, {"[\"DeepseekV41ForCausalLM\"]"});
  keys.only({"dtype", "torch_dtype"}, {"\"bfloat16\"", "\"float32\""});
  keys.only({"tie_word_embeddings"}, {"false"});
  constexpr config_key tokenizer{"tokenizer_compatibility"};
  keys.only(tokenizer, {"\"release\"", "\"native\""});
  if (keys.has(tokenizer)) keys.text(tokenizer, config.tokenizer_compatibility);
}

void read_quantization(config_reader& top, model_config& config, std::optional<error>& latch) {
  const auto* object = top.child({"quantization_config"});
  if (!object) return;
  config_reader keys(*object, "quantization_config", latch);
  keys.exactly({"quant_method"}, "\"fp8\"");
  keys.exactly({"activation_scheme"}, "\"dynamic\"");
  keys.exactly({"weight_block_size"}, "[32,32]");
  keys.exactly({"scale_fmt"}, "\"ue8m0\"");
  keys.exactly({"expert_dtype"}, "\"fp4\"");
  keys.only({"fmt"}, {"\"e4m3\""});
  for (const auto& name : keys.unread())
    config.warnings.push_back(keys.path(name) + ": unknown key, not used");
  config.quantization.emplace();
}

/// Keys that say nothing about the arithmetic.
constexpr std::array harmless{
  "_name_or_path",
  "auto_map",
  "dtype",
  "image_end_token_id",
  "image_start_token_id",
  "initializer_range",
  "model_type",
  "pretraining_tp",
  "torch_dtype",
  "transformers_version",
  "use_cache",
  "vision_config",
};

void name_unread(config_reader& keys, model_config& config) {
  for (const auto* name : harmless) keys.ignore(name);
  for (const auto& name : keys.unread())
    config.warnings.push_back(keys.path(name) + ": unknown key, not used");
}

/// Both may be read off damaged files: bytes that are no text must not end up in a terminal.
result<json::object> read_object(std::string_view text) {
  auto document = parse_json(text);
  if (!document)
    return fail(errc::bad_checkpoint, "not JSON: " + std::move(document).error().message);
  if (!document->is_object())
    return fail(errc::bad_checkpoint,
                fmt::format("found {}, expected an object", short_text(*document)));
  if (const auto key = repeated_key(text); !key.empty())
    return fail(errc::bad_checkpoint, key + ": found the key twice, expected it once");
  return std::move(document->get_object());
}

}  // namespace

result<model_config> parse_model_config(std::string_view text) {
  DI_TRY(const json::object document, read_object(text));
  std::optional<error> latch;
  model_config config;
  topology_lists lists;
  config_reader top(document, "", latch);
  const auto* nested = top.child({"text_config"});
  read_identity(top, config, nested != nullptr);
  if (!latch) read_quantization(top, config, latch);
  config_reader inner(nested ? *nested : document, "text_config", latch);
  auto& keys = nested ? inner : top;
  if (nested) keys.only({"model_type"}, {"\"deepseek_v41_text\"", "\"deepseek_v41\""});
  if (!latch) read_text(keys, config);
  if (!latch) read_attention(keys, config);
  if (!latch) read_rope(keys, config, latch);
  if (!latch) read_experts(keys, config);
  if (!latch) read_streams(keys, config);
  if (!latch) read_sources(keys, config, lists);
  if (!latch) read_engram(keys, config, lists);
  if (!latch) read_draft(keys, config);
  if (!latch && nested) read_token_ids(keys, config);
  if (!latch) read_token_ids(top, config);
  if (latch) return tl::unexpected<error>(*std::move(latch));
  name_unread(top, config);
  if (nested) name_unread(inner, config);
  const auto prefix = nested ? "text_config." : "";
  DI_TRY_VOID(check_sizes(config, prefix));
  DI_TRY_VOID(derive_layers(config, lists, prefix));
  if (config.eos_tokens.empty())
    config.warnings.push_back("eos_token_id: found nothing, so no token ends a text by itself");
  return config;
}

result<model_config> load_model_config(const std::string& directory) {
  const auto path = directory + "/config.json";
  const auto text = read_file(path);
  if (!text)
    return fail(errc::bad_checkpoint,
                text.error().message + ": expected the configuration of a checkpoint");
  DI_TRY(auto config, parse_model_config(*text), path);
  return config;
}

std::int32_t model_config::first_ratio_one_layer() const {
  for (std::int32_t id = 0; id < layer_count; ++id)
    if (layers[static_cast<std::size_t>(id)].ratio == 1) return id;
  return layer_count;
}

}  // namespace deepinfer
