#include "runtime/model/model_config.hpp"

#include <numeric>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/model_topology.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;

namespace {

const std::string release_path = DI_SOURCE_DIR "/tests/golden/model/release-config.json";

std::string release_text() {
  return read_file(release_path).value();
}

model_config release_config() {
  const auto config = parse_model_config(release_text());
  REQUIRE_MESSAGE(config.has_value(), config.error().message);
  return *config;
}

/// The release's text with the value at `pointer` ("/text_config/head_dim") replaced by JSON text;
/// an empty text removes the key.
std::string edited(const std::string& pointer, const std::string& replacement) {
  auto document = parse_json(release_text()).value();
  const auto slash = pointer.rfind('/');
  auto& parent =
    slash == 0 ? document.as_object() : document.at_pointer(pointer.substr(0, slash)).as_object();
  const auto key = pointer.substr(slash + 1);
  if (replacement.empty()) {
    parent.erase(key);
  } else {
    parent[key] = parse_json(replacement).value();
  }
  return to_text(document);
}

}  // namespace

TEST_CASE("the released config reads as the specification prints it") {
  const auto config = release_config();
  CHECK(config.warnings.empty());
  CHECK(config.vocab_size == 129'280);
  CHECK(config.hidden_size == 5120);
  CHECK(config.layer_count == 40);
  CHECK(config.head_count == 64);
  CHECK(config.head_dim == 512);
  CHECK(config.rope_dim == 64);
  CHECK(config.q_rank == 1280);
  CHECK(config.o_groups == 8);
  CHECK(config.o_rank == 1024);
  CHECK(config.window == 128);
  CHECK(config.rms_norm_eps == 1e-20);
  CHECK(config.max_positions == 1'048'576);
  CHECK(config.window_rope.theta == 10'000);
  CHECK_FALSE(config.window_rope.is_yarn);
  CHECK(config.compressed_rope.theta == 160'000);
  CHECK(config.compressed_rope.is_yarn);
  CHECK(config.compressed_rope.factor == 16);
  CHECK(config.compressed_rope.beta_fast == 32);
  CHECK(config.compressed_rope.beta_slow == 1);
  CHECK(config.compressed_rope.original_max_positions == 65'536);
  CHECK(config.expert_count == 384);
  CHECK(config.experts_per_token == 6);
  CHECK(config.expert_dim == 2304);
  CHECK(config.normalizes_weights);
  CHECK(config.routed_scale == 1.5);
  CHECK(config.gate_temperature == 1.0);
  CHECK(config.swiglu_limit == 10.0);
  CHECK(config.stream_count == 4);
  CHECK(config.mix_rows() == 24);
  CHECK(config.sinkhorn_rounds == 20);
  CHECK(config.hyper_eps == 1e-6);
  CHECK(config.index_head_count == 32);
  CHECK(config.index_head_dim == 128);
  CHECK(config.index_topk == 512);
  CHECK(config.candidate_source == 20);
  CHECK(config.candidate_blocks == 2048);
  CHECK(config.candidate_block_size == 8);
  CHECK(config.fp4_sparse_kv);
  CHECK(config.bos_token == 0);
  CHECK(config.eos_tokens == std::vector<token_id>{1});
  CHECK(config.pad_token == 2);
  CHECK(config.image_token == 129'264);
  CHECK(config.tokenizer_compatibility == "release");
  REQUIRE(config.quantization.has_value());
  CHECK(config.quantization->block_rows == 32);
  CHECK(config.draft.stage_count == 3);
  CHECK(config.draft.block_size == 5);
  CHECK(config.draft.noise_token == 128'799);
  CHECK(config.draft.markov_rank == 256);
  CHECK(config.draft.target_layers == std::vector<std::int32_t>{37, 38, 39});
  CHECK(config.draft.expert_count == 128);
  CHECK(config.draft.experts_per_token == 3);
}

TEST_CASE("every layer of the release has the sources and roles of the specification's table") {
  const auto config = release_config();
  REQUIRE(config.layers.size() == 43);
  CHECK(config.first_ratio_one_layer() == 20);
  for (std::int32_t id = 0; id < 43; ++id) {
    CAPTURE(id);
    const auto& layer = config.layers[static_cast<std::size_t>(id)];
    const auto is_windowed = id < 2 || id >= 40;
    const auto kv = id >= 20 ? 20 : id >= 14 ? 14 : id >= 8 ? 8 : 2;
    const auto index = id < 24 ? kv : id / 4 * 4;
    CHECK(layer.ratio == (is_windowed ? 0 : id < 20 ? 2 : 1));
    CHECK(layer.kv_source == (is_windowed ? -1 : kv));
    CHECK(layer.index_key_source == (is_windowed ? -1 : kv));
    CHECK(layer.index_source == (is_windowed ? -1 : index));
    CHECK(layer.owns_rows == (!is_windowed && kv == id));
    CHECK(layer.owns_index_keys == layer.owns_rows);
    CHECK(layer.runs_indexer == (!is_windowed && index == id));
    const auto is_masked = !is_windowed && id >= 24 && id % 4 == 0;
    CHECK(layer.candidates == (id == 20    ? candidate_role::source
                               : is_masked ? candidate_role::masked
                                           : candidate_role::none));
    CHECK(layer.engram == (id == 1 ? 0 : id == 14 ? 1 : -1));
    CHECK(layer.tap == (id >= 37 && id < 40 ? id - 37 : -1));
  }
}

TEST_CASE("the Engram tables of the release are cut at the specification's primes") {
  const auto config = release_config();
  REQUIRE(config.engram_layers.size() == 2);
  CHECK(config.engram.columns() == 24);
  CHECK(config.engram.input_dim() == 6144);
  CHECK(config.engram.class_count == 99'092);
  const auto& first = config.engram_layers[0];
  const auto& second = config.engram_layers[1];
  CHECK(first.rows == 384'006'168);
  CHECK(second.rows == 384'016'682);
  CHECK(first.primes.front() == 16'000'057);
  CHECK(first.primes.back() == 16'000'463);
  CHECK(second.primes.front() == 16'000'477);
  CHECK(second.primes[23] == 16'000'889);
  CHECK(primes_from(2, 6) == std::vector<std::int64_t>{2, 3, 5, 7, 11, 13});
  CHECK(primes_from(67, 6) == std::vector<std::int64_t>{67, 71, 73, 79, 83, 89});
}

TEST_CASE("the checkpoints that come with the source load without a warning") {
  for (const std::string name : {"examples/models/tiny-v41", "tests/golden/model/v41-a-plain",
                                 "tests/golden/model/v41-a-fp8"}) {
    CAPTURE(name);
    const auto config = load_model_config(DI_SOURCE_DIR "/" + name);
    REQUIRE_MESSAGE(config.has_value(), config.error().message);
    CHECK(config->warnings.empty());
    CHECK(config->quantization.has_value() == name.ends_with("fp8"));
  }
  const auto none = load_model_config(DI_SOURCE_DIR "/tests/golden");
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().code == errc::bad_checkpoint);
  CHECK(none.error().message.find("config.json") != std::string::npos);
}

TEST_CASE("flat keys in the released script's spelling give the same config") {
  const std::pair<const char*, const char*> spellings[] = {
    {"hidden_size", "dim"},
    {"moe_intermediate_size", "moe_inter_dim"},
    {"num_hidden_layers", "n_layers"},
    {"num_attention_heads", "n_heads"},
    {"qk_rope_head_dim", "rope_head_dim"},
    {"rms_norm_eps", "norm_eps"},
    {"max_position_embeddings", "max_seq_len"},
    {"num_experts_per_tok", "n_activated_experts"},
    {"scoring_func", "score_func"},
    {"routed_scaling_factor", "route_scale"},
    {"sliding_window", "window_size"},
    {"kv_source_layer_ids", "kv_source_layers"},
    {"index_source_layer_ids", "index_source_layers"},
    {"candidate_source_layer_id", "candidate_source_layer"},
    {"engram_pad_token_id", "engram_pad_id"},
    {"num_nextn_predict_layers", "n_mtp_layers"},
    {"dspark_num_experts_per_tok", "dspark_n_activated_experts"},
  };
  auto document = parse_json(release_text()).value();
  auto flat = document.at("text_config").as_object();
  for (const auto& [name, other] : spellings) {
    flat[other] = flat.at(name);
    flat.erase(name);
  }
  flat.erase("rope_scaling");
  flat["rope_factor"] = 16;
  flat["beta_fast"] = 32;
  flat["beta_slow"] = 1;
  flat["original_seq_len"] = 65'536;
  for (const auto* key : {"bos_token_id", "eos_token_id", "quantization_config"})
    flat[key] = document.at(key);
  const auto config = parse_model_config(to_text(flat));
  REQUIRE_MESSAGE(config.has_value(), config.error().message);
  CHECK(config->warnings.empty());
  const auto nested = release_config();
  CHECK(config->hidden_size == nested.hidden_size);
  CHECK(config->expert_dim == nested.expert_dim);
  CHECK(config->rms_norm_eps == nested.rms_norm_eps);
  CHECK(config->experts_per_token == nested.experts_per_token);
  CHECK(config->window == nested.window);
  CHECK(config->routed_scale == nested.routed_scale);
  CHECK(config->compressed_rope.original_max_positions == 65'536);
  CHECK(config->compressed_rope.is_yarn);
  CHECK(config->candidate_source == 20);
  CHECK(config->draft.experts_per_token == 3);
  CHECK(config->layers.size() == nested.layers.size());
  CHECK(config->engram.pad_token == 2);

  flat["hidden_size"] = 4096;  // and "dim" says 5120
  const auto both = parse_model_config(to_text(flat));
  REQUIRE_FALSE(both.has_value());
  CHECK(both.error().message ==
        "hidden_size: found 4096, but dim is 5120: expected the same value");
}

TEST_CASE("optional keys have the defaults of the specification, and their values are used") {
  struct optional_case {
    const char* pointer;
    const char* value;
    bool (*holds)(const model_config&);
  };
  const optional_case table[] = {
    {"/text_config/gate_temp", "0.7", [](auto& c) { return c.gate_temperature == 0.7; }},
    {"/text_config/use_fp4_sparse_kv", "false", [](auto& c) { return !c.fp4_sparse_kv; }},
    {"/text_config/norm_topk_prob", "false", [](auto& c) { return !c.normalizes_weights; }},
    {"/text_config/dspark_n_routed_experts", "0",
     [](auto& c) { return c.draft.expert_count == 384; }},
    {"/text_config/dspark_num_experts_per_tok", "",
     [](auto& c) { return c.draft.experts_per_token == 6; }},
    {"/text_config/candidate_source_layer_id", "null",
     [](auto& c) {
       return c.candidate_source == -1 && c.layers[24].candidates == candidate_role::none;
     }},
    {"/text_config/candidate_source_layer_id", "-1",
     [](auto& c) { return c.candidate_source == -1; }},
    {"/text_config/rope_scaling", "null", [](auto& c) { return !c.compressed_rope.is_yarn; }},
    {"/text_config/rope_scaling", "",
     [](auto& c) { return !c.compressed_rope.is_yarn && c.compressed_rope.theta == 160'000; }},
    {"/text_config/rope_scaling/original_max_position_embeddings", "0",
     [](auto& c) { return !c.compressed_rope.is_yarn; }},
    {"/text_config/engram_layer_ids", "[1]", nullptr},
    {"/text_config/engram_num_embeddings", "",
     [](auto& c) { return c.engram_layers[1].rows == 384'016'682; }},
    {"/text_config/index_k_source_layer_ids", "[2,8,14,20,24]",
     [](auto& c) { return c.layers[25].index_key_source == 24 && c.layers[25].kv_source == 20; }},
    {"/eos_token_id", "[1, 128804]", [](auto& c) { return c.eos_tokens.size() == 2; }},
    {"/quantization_config", "", [](auto& c) { return !c.quantization.has_value(); }},
    {"/tokenizer_compatibility", "\"native\"",
     [](auto& c) { return c.tokenizer_compatibility == "native"; }},
  };
  for (const auto& row : table) {
    CAPTURE(std::string(row.pointer));
    CAPTURE(std::string(row.value));
    const auto config = parse_model_config(edited(row.pointer, row.value));
    CHECK(config.has_value() == (row.holds != nullptr));
    if (config && row.holds) CHECK(row.holds(*config));
  }
}

TEST_CASE("a config that breaks a rule is refused with the key, what was found and expected") {
  struct broken_case {
    const char* pointer;
    const char* value;
    const char* message;
  };
  const broken_case table[] = {
    {"/model_type", "\"llama\"", "model_type: found \"llama\", expected \"deepseek_v41\""},
    {"/architectures", "[\"LlamaForCausalLM\"]",
     "architectures: found [\"LlamaForCausalLM\"], expected [\"DeepseekV41ForCausalLM\"]"},
    {"/dtype", "\"int8\"", "dtype: found \"int8\", expected \"bfloat16\" or \"float32\""},
    {"/eos_token_id", "129280", "eos_token_id: found 129280, expected 0 to 129279"},
    {"/tie_word_embeddings", "true", "tie_word_embeddings: found true, expected false"},
    {"/quantization_config/weight_block_size", "[128,128]",
     "quantization_config.weight_block_size: found [128,128], expected [32,32]"},
    {"/quantization_config/expert_dtype", "\"fp8\"",
     "quantization_config.expert_dtype: found \"fp8\", expected \"fp4\""},
    {"/quantization_config/scale_fmt", "\"float\"",
     "quantization_config.scale_fmt: found \"float\", expected \"ue8m0\""},
    {"/quantization_config/quant_method", "\"awq\"",
     "quantization_config.quant_method: found \"awq\", expected \"fp8\""},
    {"/quantization_config/activation_scheme", "\"static\"",
     "quantization_config.activation_scheme: found \"static\", expected \"dynamic\""},
    {"/quantization_config/scale_fmt", "",
     "quantization_config.scale_fmt: found nothing, expected \"ue8m0\""},
    {"/quantization_config", "[1]", "quantization_config: found [1], expected an object"},
    {"/text_config", "7", "text_config: found 7, expected an object"},
    {"/text_config/hidden_size", "",
     "text_config.hidden_size: found nothing, expected a whole number from 1 to 1048576"},
    {"/text_config/hidden_size", "\"5120\"",
     "text_config.hidden_size: found \"5120\", expected a whole number"},
    {"/text_config/hidden_size", "5120.0",
     "text_config.hidden_size: found 5120.0, expected a whole number"},
    {"/text_config/hidden_size", "0", "text_config.hidden_size: found 0, expected 1 to 1048576"},
    {"/text_config/hidden_size", "18446744073709551615",
     "text_config.hidden_size: found 18446744073709551615, expected 1 to"},
    {"/text_config/hidden_size", "5121",
     "text_config.hidden_size: found 5121, expected a multiple of 32"},
    {"/text_config/num_key_value_heads", "8",
     "text_config.num_key_value_heads: found 8, expected 1"},
    {"/text_config/hidden_act", "\"gelu\"",
     "text_config.hidden_act: found \"gelu\", expected \"silu\""},
    {"/text_config/attention_bias", "true",
     "text_config.attention_bias: found true, expected false"},
    {"/text_config/attention_dropout", "0.1",
     "text_config.attention_dropout: found 0.1, expected 0"},
    {"/text_config/scoring_func", "\"sigmoid\"",
     "text_config.scoring_func: found \"sigmoid\", expected \"sqrtsoftplus\""},
    {"/text_config/topk_method", "\"greedy\"",
     "text_config.topk_method: found \"greedy\", expected \"noaux_tc\""},
    {"/text_config/n_shared_experts", "2", "text_config.n_shared_experts: found 2, expected 1"},
    {"/text_config/hc_shifted", "false", "text_config.hc_shifted: found false, expected true"},
    {"/text_config/dspark_target_attn_input", "false",
     "text_config.dspark_target_attn_input: found false, expected true"},
    {"/text_config/rope_scaling/rope_type", "\"linear\"",
     "text_config.rope_scaling.rope_type: found \"linear\", expected \"yarn\""},
    {"/text_config/rope_scaling/factor", "",
     "text_config.rope_scaling.factor: found nothing, expected a number"},
    {"/text_config/rope_theta", "null", "text_config.rope_theta: found nothing, expected a number"},
    {"/text_config/rms_norm_eps", "-1",
     "text_config.rms_norm_eps: found -1, expected a number from 0 to 1"},
    {"/text_config/qk_rope_head_dim", "63",
     "text_config.qk_rope_head_dim: found 63, expected an even number"},
    {"/text_config/qk_rope_head_dim", "514",
     "text_config.qk_rope_head_dim: found 514, expected at most head_dim 512"},
    {"/text_config/o_groups", "7",
     "text_config.o_groups: found 7, expected a divisor of num_attention_heads 64"},
    {"/text_config/num_experts_per_tok", "385",
     "text_config.num_experts_per_tok: found 385, expected at most n_routed_experts 384"},
    {"/text_config/dspark_num_experts_per_tok", "129",
     "text_config.dspark_num_experts_per_tok: found 129, expected at most dspark_n_routed_experts "
     "128"},
    {"/text_config/index_head_dim", "32",
     "text_config.index_head_dim: found 32, expected at least qk_rope_head_dim 64"},
    {"/text_config/n_routed_experts", "60000",
     "text_config.n_routed_experts: found 60000, expected at most 262144 experts in all layers"},
    {"/text_config/num_hidden_layers", "39",
     "text_config.dspark_target_layer_ids: found 39, expected 0 to 38"},
    {"/text_config/num_hidden_layers", "41",
     "text_config.compress_ratios: found 43 entries, expected 44"},
    {"/text_config/num_nextn_predict_layers", "2",
     "text_config.compress_ratios: found 43 entries, expected 42: 40 layers and 2 draft stages"},
    {"/text_config/compress_ratios", "[0,-1]",
     "text_config.compress_ratios: found -1, expected 0 to 64"},
    {"/text_config/compress_ratios", "\"two\"",
     "text_config.compress_ratios: found \"two\", expected a list"},
    {"/text_config/kv_source_layer_ids", "[2,8,14]",
     "text_config.kv_source_layer_ids: layer 20 has ratio 1, found source 14 with ratio 2, "
     "expected the same ratio"},
    {"/text_config/kv_source_layer_ids", "[1,2,8,14,20]",
     "text_config.kv_source_layer_ids: found layer 1, which has ratio 0"},
    {"/text_config/kv_source_layer_ids", "[8,14,20]",
     "text_config.kv_source_layer_ids: layer 2 has ratio 2, but found no source at or before it"},
    {"/text_config/kv_source_layer_ids", "[2,14,8,20]",
     "text_config.kv_source_layer_ids: found [2, 14, 8, 20], expected ascending layers"},
    {"/text_config/kv_source_layer_ids", "[2,2,8,14,20]", "expected ascending layers, each once"},
    {"/text_config/kv_source_layer_ids", "[2,8,14,20,40]",
     "text_config.kv_source_layer_ids: found 40, expected 0 to 39"},
    {"/text_config/kv_source_layer_ids", "[2,8,10,14,20]",
     "text_config.index_k_source_layer_ids: found layer 10, expected only layers of "
     "text_config.index_source_layer_ids"},
    {"/text_config/index_k_source_layer_ids", "[2,14,20]",
     "text_config.kv_source_layer_ids: found layer 8, expected only layers of "
     "text_config.index_k_source_layer_ids"},
    {"/text_config/index_source_layer_ids", "[2,8,14,24]",
     "text_config.index_source_layer_ids: layer 20 has ratio 1, found source 14 with ratio 2"},
    {"/text_config/candidate_source_layer_id", "21",
     "text_config.candidate_source_layer_id: found layer 21, expected an index source"},
    {"/text_config/candidate_source_layer_id", "14",
     "text_config.candidate_source_layer_id: found layer 14 of ratio 2, but index source 20"},
    {"/text_config/candidate_topk_blocks", "64",
     "text_config.candidate_topk_blocks: found 64 blocks of 8 rows, which may show only 505 rows, "
     "expected at least index_topk 512"},
    {"/text_config/dspark_target_layer_ids", "[39,38,37]",
     "text_config.dspark_target_layer_ids: found [39, 38, 37], expected ascending"},
    {"/text_config/dspark_target_layer_ids", "[]",
     "text_config.dspark_target_layer_ids: found 0, expected at least one layer"},
    {"/text_config/dspark_noise_token_id", "129280",
     "text_config.dspark_noise_token_id: found 129280, expected 0 to 129279"},
    {"/text_config/engram_num_embeddings", "[384006168,384016681]",
     "text_config.engram_num_embeddings: layer 14: found 384016681 rows, expected 384016682: the "
     "sum of 24 primes from 16000000"},
    {"/text_config/engram_num_embeddings", "[384006168]",
     "text_config.engram_num_embeddings: found 1 entries, expected 2"},
    {"/text_config/engram_layer_ids", "[14,1]",
     "text_config.engram_layer_ids: found [14, 1], expected ascending"},
    {"/text_config/engram_head_dim", "250",
     "text_config.engram_head_dim: found 250, expected a multiple of 32"},
    {"/text_config/engram_max_ngram_size", "1",
     "text_config.engram_max_ngram_size: found 1, expected 2 to 16"},
  };
  for (const auto& row : table) {
    CAPTURE(std::string(row.pointer));
    CAPTURE(std::string(row.value));
    const auto config = parse_model_config(edited(row.pointer, row.value));
    REQUIRE_FALSE(config.has_value());
    CAPTURE(config.error().message);
    CHECK(config.error().code == errc::bad_checkpoint);
    CHECK(config.error().message.find(row.message) != std::string::npos);
  }
}

TEST_CASE("the ratio of a draft stage must be 0") {
  auto text = release_text();
  const auto at = text.find("0, 0, 0]");
  REQUIRE(at != std::string::npos);
  text[at] = '1';
  const auto config = parse_model_config(text);
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().message ==
        "text_config.compress_ratios: draft stage 0: found ratio 1, expected 0");
}

TEST_CASE("unknown keys are named as warnings, a repeated key is an error") {
  const auto config = parse_model_config(edited("/text_config/attention_gate", "true"));
  REQUIRE(config.has_value());
  CHECK(config->warnings ==
        std::vector<std::string>{"text_config.attention_gate: unknown key, not used"});
  auto text = release_text();
  const std::string key = "\"hidden_size\": 5120,";
  text.insert(text.find(key), "\"hidden_size\": 4096, ");
  const auto repeated = parse_model_config(text);
  REQUIRE_FALSE(repeated.has_value());
  CHECK(repeated.error().message ==
        "text_config.hidden_size: found the key twice, expected it once");
  for (const std::string bad : {"", "[]", "nonsense", "{\"model_type\":", "\xff{}"})
    CHECK(parse_model_config(bad).error().code == errc::bad_checkpoint);
}

TEST_CASE("a model without compression, Engram or drafts is a valid config") {
  const auto config = parse_model_config(R"({"model_type": "deepseek_v41", "vocab_size": 16,
    "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 4,
    "qk_rope_head_dim": 2, "q_lora_rank": 4, "o_groups": 1, "o_lora_rank": 4, "sliding_window": 3,
    "compress_ratios": [0, 0], "kv_source_layer_ids": [], "index_source_layer_ids": [],
    "rope_theta": 10000, "compress_rope_theta": 10000, "max_position_embeddings": 64,
    "n_routed_experts": 2, "n_shared_experts": 1, "num_experts_per_tok": 1,
    "moe_intermediate_size": 6, "norm_topk_prob": true, "routed_scaling_factor": 1,
    "swiglu_limit": 0, "hc_mult": 1, "hc_sinkhorn_iters": 1, "hc_eps": 0, "rms_norm_eps": 1e-6})");
  REQUIRE_MESSAGE(config.has_value(), config.error().message);
  CHECK(config->index_topk == 0);
  CHECK(config->first_ratio_one_layer() == 2);
  CHECK_FALSE(config->has_engram());
  CHECK_FALSE(config->has_draft());
  REQUIRE(config->warnings.size() == 1);
  CHECK(config->warnings[0].starts_with("eos_token_id: found nothing"));
}

TEST_CASE("20,000 mutants of a config either load or are refused, and most are still JSON") {
  const auto valid = release_text();
  mutator mutate(41);
  int loaded = 0, refused = 0, json = 0;
  for (int i = 0; i < with_effort(20'000); ++i) {
    const auto mutant = mutate.text(valid);
    const auto config = parse_model_config(mutant);
    config ? ++loaded : ++refused;
    if (mutant != valid && parse_json(mutant)) ++json;
    if (config) {
      REQUIRE(std::ssize(config->layers) == config->layer_count + config->draft.stage_count);
    } else {
      REQUIRE(config.error().code == errc::bad_checkpoint);
      REQUIRE(config.error().message.size() < 2000);
    }
  }
  MESSAGE("loaded ", loaded, ", refused ", refused, ", JSON ", json);
  CHECK(json >= 4'000);
  CHECK(loaded >= 1'000);
  CHECK(refused >= 4'000);
}
