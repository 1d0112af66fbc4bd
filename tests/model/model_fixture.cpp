#include "model_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/safetensors.hpp"

namespace deepinfer::test {

namespace {

template <class T>
T expect(result<T> it) {
  DI_CHECK(it.has_value(), "{}", it.error().message);
  return *std::move(it);
}

std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// The deterministic weights of model-v41.md 24.
void generate(std::string_view name, std::int64_t columns, std::span<float> values) {
  const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
  double scale = 2.6 / std::sqrt(static_cast<double>(columns)), shift = 0;
  if (has("norm"))
    shift = 1, scale = 0.2;
  else if (has("attn_sink"))
    scale = 3;
  else if (has("gate.bias"))
    scale = 0.8;
  else if (name.ends_with("_base"))
    scale = 1.7;
  else if (name.ends_with("hc_attn_scale") || name.ends_with("hc_ffn_scale"))
    shift = 1, scale = 0.5;
  else if (name.ends_with("_fn"))
    scale = 0.5;
  else if (name == "embed.weight" || has("engram.embed.weight") || has("markov_head."))
    scale = 1.7;
  else if (has("engram.q_weight") || has("engram.k_weight"))
    shift = 1, scale = 0.5;
  else if (has("wgate"))
    scale = 5 / std::sqrt(static_cast<double>(columns));
  const auto base = fnv1a64(name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto x = 2 * (static_cast<double>(split_mix64(base + i) >> 40) + 0.5) / 16777216.0 - 1;
    values[i] = static_cast<float>(shift + scale * x);
  }
}

weights_ptr generated(json::object text, const std::function<void(json::object&)>& edit,
                      kernels::packing how) {
  if (edit) edit(text);
  json::object root;
  root["architectures"] = json::array{"DeepseekV41ForCausalLM"};
  root["model_type"] = "deepseek_v41";
  root["dtype"] = "bfloat16";
  root["bos_token_id"] = 0;
  root["eos_token_id"] = 1;
  root["pad_token_id"] = 2;
  root["text_config"] = std::move(text);
  const auto config = expect(parse_model_config(to_text(root)));
  std::vector<std::int32_t> classes;
  for (std::int32_t id = 0; id < config.vocab_size; ++id)
    classes.push_back(id < 3 ? id : 3 + (id - 3) % (std::max(config.engram.class_count, 4) - 3));
  generated_weights source(generate);
  return expect(load_weights(config, classes, how, source));
}

json::object text_config(const char* text) {
  return expect(parse_json(text)).as_object();
}

}  // namespace

kernels::isa kernels_under_test() {
  static const auto chosen = [] {
    const char* wanted = std::getenv("DEEPINFER_TEST_KERNELS");
    for (const auto it : {kernels::isa::reference, kernels::isa::avx2})
      if (wanted && kernels::name_of(it) == wanted) return it;
    DI_CHECK(!wanted, "DEEPINFER_TEST_KERNELS: found {}", wanted);
    return kernels::best_isa();
  }();
  return chosen;
}

weights_ptr checkpoint_model(const std::string& directory, const std::vector<std::int32_t>& classes,
                             kernels::packing how) {
  static std::map<std::pair<std::string, kernels::packing>, weights_ptr> loaded;
  auto& entry = loaded[{directory, how}];
  if (entry) return entry;
  const auto config = expect(load_model_config(directory));
  auto tensors = std::make_shared<const tensor_set>(expect(tensor_set::open(directory)));
  checkpoint_weights source(tensors);
  entry = expect(load_weights(config, classes, how, source));
  return entry;
}

weights_ptr golden_model(const std::string& name, kernels::packing how) {
  const std::string folder = DI_SOURCE_DIR "/tests/golden/model/";
  // Both checkpoints have one tokenizer, so one map.
  const auto golden = golden_json(folder + "v41-a-plain/goldens.json");
  return checkpoint_model(folder + name,
                          ids_of(golden.as_object().at("engram").as_object().at("token_map")), how);
}

weights_ptr tiny_model(kernels::packing how) {
  const std::string folder = DI_SOURCE_DIR "/examples/models/tiny-v41";
  return checkpoint_model(
    folder, ids_of(golden_json(folder + "/engram.json").as_object().at("token_map")), how);
}

weights_ptr generated_t1(const std::function<void(json::object&)>& edit, kernels::packing how) {
  return generated(text_config(R"({
    "model_type": "deepseek_v41_text", "vocab_size": 128, "hidden_size": 32,
    "num_hidden_layers": 8, "compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [2, 4, 5], "index_source_layer_ids": [2, 3, 4, 5, 6],
    "candidate_source_layer_id": 5, "candidate_topk_blocks": 2, "candidate_block_size": 4,
    "index_n_heads": 16, "index_head_dim": 32, "index_topk": 3,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 16,
    "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 32, "sliding_window": 8,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
    "moe_intermediate_size": 32, "swiglu_limit": 0.5, "routed_scaling_factor": 1.5,
    "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": true,
    "dspark_n_routed_experts": 4, "dspark_num_experts_per_tok": 1, "hidden_act": "silu",
    "attention_bias": false, "attention_dropout": 0.0, "tie_word_embeddings": false,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-20,
    "rope_theta": 10000, "compress_rope_theta": 160000, "max_position_embeddings": 1024,
    "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                     "original_max_position_embeddings": 16},
    "engram_layer_ids": [1, 4], "engram_max_ngram_size": 4, "engram_n_heads": 2,
    "engram_head_dim": 32, "engram_vocab_size": 64, "engram_pad_token_id": 2,
    "engram_compressed_vocab_size": 64, "engram_num_embeddings": [462, 630],
    "num_nextn_predict_layers": 3, "dspark_block_size": 5, "dspark_noise_token_id": 7,
    "dspark_target_layer_ids": [5, 6, 7], "dspark_markov_rank": 16})"),
                   edit, how);
}

weights_ptr generated_t2(kernels::packing how) {
  return generated(text_config(R"({
    "model_type": "deepseek_v41_text", "vocab_size": 128, "hidden_size": 64,
    "num_hidden_layers": 6, "compress_ratios": [0, 2, 2, 1, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [1, 3], "index_source_layer_ids": [1, 3, 4],
    "candidate_source_layer_id": 3, "candidate_topk_blocks": 4, "candidate_block_size": 2,
    "index_n_heads": 16, "index_head_dim": 32, "index_topk": 5,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "qk_rope_head_dim": 32,
    "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 32, "sliding_window": 6,
    "n_routed_experts": 3, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "swiglu_limit": 0, "routed_scaling_factor": 2.5,
    "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": true,
    "dspark_n_routed_experts": 2, "dspark_num_experts_per_tok": 2, "gate_temp": 0.7,
    "hidden_act": "silu", "attention_bias": false, "attention_dropout": 0.0,
    "tie_word_embeddings": false, "hc_mult": 4, "hc_sinkhorn_iters": 3, "hc_eps": 1e-5,
    "rms_norm_eps": 1e-6, "rope_theta": 10000, "compress_rope_theta": 40000,
    "max_position_embeddings": 1024, "engram_layer_ids": [0, 2], "engram_max_ngram_size": 3,
    "engram_n_heads": 3, "engram_head_dim": 32, "engram_vocab_size": 48,
    "engram_pad_token_id": 2, "engram_compressed_vocab_size": 80,
    "engram_num_embeddings": [384, 552], "num_nextn_predict_layers": 3, "dspark_block_size": 4,
    "dspark_noise_token_id": 3, "dspark_target_layer_ids": [0, 2, 5],
    "dspark_markov_rank": 16})"),
                   {}, how);
}

ids spec_ids(std::int32_t count) {
  ids list;
  for (std::int32_t i = 0; i < count; ++i)
    list.push_back(i == 0 ? 0 : (7 * i * i + 3 * i + 5) % 125 + 3);
  return list;
}

ids random_ids(std::uint64_t seed, std::int32_t count, std::int32_t vocab) {
  ids list;
  for (std::int32_t i = 0; i < count; ++i)
    list.push_back(
      static_cast<token_id>(split_mix64(seed * 1000003u + static_cast<std::uint64_t>(i)) %
                            static_cast<std::uint64_t>(vocab)));
  return list;
}

json::value golden_json(const std::string& path) {
  return expect(read_json_file(path));
}

ids ids_of(const json::value& list) {
  ids made;
  for (const auto& id : list.as_array()) made.push_back(id.to_number<token_id>());
  return made;
}

void recorder::see(model_point point, std::int32_t layer, std::span<const float> values) {
  auto& all = floats[{point, layer}];
  all.insert(all.end(), values.begin(), values.end());
}

void recorder::see(model_point point, std::int32_t layer, std::span<const std::int32_t> values) {
  auto& all = ints[{point, layer}];
  all.insert(all.end(), values.begin(), values.end());
}

void recorder::see(model_point point, std::int32_t layer, std::span<const std::int64_t> values) {
  auto& all = wide_ints[{point, layer}];
  all.insert(all.end(), values.begin(), values.end());
}

void recorder::clear() {
  floats.clear();
  ints.clear();
  wide_ints.clear();
}

const stream_ref& inline_stream() {
  static inline_team team;
  static const stream_ref stream{&team, nullptr};
  return stream;
}

std::unique_ptr<model_session> make_session(const weights_ptr& weights, session_config config) {
  config.kernels = kernels_under_test();
  return expect(model_session::make(weights, config));
}

double max_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= most)) most = difference;
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  }
  return most;
}

token_id arg_max(std::span<const float> logits) {
  return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

namespace {

std::vector<float> ring_rows(const float* ring, std::int64_t size, std::int64_t width,
                             std::int64_t first, std::int64_t count) {
  std::vector<float> rows;
  for (auto position = first; position < first + count; ++position) {
    const auto* row = ring + position % size * width;
    rows.insert(rows.end(), row, row + width);
  }
  return rows;
}

std::vector<float> paged_rows(const kv_state& state, const lazy_array<float>& memory,
                              std::int32_t per_block, std::int64_t width, std::int32_t slot,
                              std::int64_t count) {
  std::vector<float> rows;
  for (std::int64_t j = 0; j < count; ++j) {
    const auto block = state.tables[std::int64_t{slot} * state.layout.table_stride + j / per_block];
    const auto* row = memory.data() + (std::int64_t{block} * per_block + j % per_block) * width;
    rows.insert(rows.end(), row, row + width);
  }
  return rows;
}

}  // namespace

std::vector<float> window_rows(const kv_state& state, std::int32_t layer, std::int32_t slot,
                               std::int64_t first, std::int64_t count) {
  const std::int64_t size = state.layout.window_ring, width = state.layout.head_dim;
  return ring_rows(state.layers[static_cast<std::size_t>(layer)].window.data() +
                     slot * size * width,
                   size, width, first, count);
}

std::vector<float> pooling_rows(const kv_state& state, std::int32_t layer, std::int32_t slot,
                                std::int64_t first, std::int64_t count) {
  const auto index = static_cast<std::size_t>(layer);
  const std::int64_t size = state.layout.layers[index].pool_ring;
  const std::int64_t width = 2 * std::int64_t{state.layout.head_dim};
  return ring_rows(state.layers[index].pooling.data() + slot * size * width, size, width, first,
                   count);
}

std::vector<float> compressed_rows(const kv_state& state, std::int32_t layer, std::int32_t slot,
                                   std::int64_t count) {
  const auto index = static_cast<std::size_t>(layer);
  return paged_rows(state, state.layers[index].rows, state.layout.layers[index].rows_per_block,
                    state.layout.head_dim, slot, count);
}

std::vector<float> index_keys(const kv_state& state, std::int32_t layer, std::int32_t slot,
                              std::int64_t count) {
  const auto index = static_cast<std::size_t>(layer);
  return paged_rows(state, state.layers[index].keys, state.layout.layers[index].keys_per_block,
                    state.layout.index_head_dim, slot, count);
}

}  // namespace deepinfer::test
