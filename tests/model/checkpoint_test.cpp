#include "runtime/model/checkpoint.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "runtime/base/json.hpp"
#include "runtime/model/checkpoint_text.hpp"
#include "tests/support/temp_directory.hpp"
#include "tests/support/tensor_writer.hpp"

using namespace deepinfer;

namespace {

const std::string scaled_directory = DI_SOURCE_DIR "/tests/golden/model/v41-a-fp8";
const std::string plain_directory = DI_SOURCE_DIR "/tests/golden/model/v41-a-plain";

/// All tensors of a fixture, to be changed and written again.
std::vector<written_tensor> tensors_of(const std::string& directory) {
  const auto file = tensor_file::open(directory + "/model.safetensors").value();
  std::vector<written_tensor> tensors;
  for (const auto& tensor : file.tensors())
    tensors.push_back(
      {tensor.name, tensor.view.type, tensor.view.shape,
       std::string(reinterpret_cast<const char*>(tensor.view.data), tensor.view.bytes())});
  return tensors;
}

written_tensor& at(std::vector<written_tensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const written_tensor& it) { return it.name == name; });
  REQUIRE_MESSAGE(found != tensors.end(), name);
  return *found;
}

void drop(std::vector<written_tensor>& tensors, const std::string& part) {
  std::erase_if(tensors,
                [&](const written_tensor& it) { return it.name.find(part) != std::string::npos; });
}

/// A copy of a fixture's config beside tensors of the test's making.
void write_checkpoint(const temp_directory& to, const std::string& from,
                      const std::vector<written_tensor>& tensors) {
  to.write("config.json", read_file(from + "/config.json").value());
  to.write("model.safetensors", safetensors_file(tensors));
}

/// The fixture with `change` applied to its tensors, opened.
result<checkpoint> opened_after(const std::string& from,
                                const std::function<void(std::vector<written_tensor>&)>& change,
                                const check_options& options = {}) {
  temp_directory directory;
  auto tensors = tensors_of(from);
  change(tensors);
  write_checkpoint(directory, from, tensors);
  return open_checkpoint(directory.path(), options);
}

/// One tensor renamed, reshaped, retyped, dropped, doubled or filled: the file itself stays sound.
std::vector<written_tensor> edited(std::vector<written_tensor> tensors, mutator& mutate) {
  const auto place = mutate.below(tensors.size());
  auto& it = tensors[place];
  switch (mutate.below(6)) {
  case 0: it.name += "x"; break;
  case 1: std::reverse(it.shape.begin(), it.shape.end()); break;
  case 2: it.type = it.type == dtype::f8_e8m0 ? dtype::f8_e4m3 : dtype::f8_e8m0; break;
  case 3: tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(place)); break;
  case 4: tensors.push_back({"model." + it.name, it.type, it.shape, it.bytes}); break;
  default: it.bytes.assign(it.bytes.size(), '\xff'); break;
  }
  return tensors;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the fixtures and the embedded model are clean, down to the number of their tensors") {
  struct clean_case {
    std::string directory;
    std::int64_t tensors;
    std::int32_t classes;
  };
  const clean_case table[] = {
    {DI_SOURCE_DIR "/examples/models/tiny-v41", 719, 1718},
    {plain_directory, 489, 250},
    {scaled_directory, 792, 250},
  };
  for (const auto& row : table) {
    CAPTURE(row.directory);
    const auto opened = open_checkpoint(row.directory, {.engram_classes = row.classes});
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
    const auto& report = opened->report;
    CHECK(report.tensor_count == row.tensors);
    CHECK(report.warnings.empty());
    CHECK(report.skipped_count == 0);
    std::int64_t tensors = 0, bytes = 0;
    for (const auto& total : report.totals) {
      tensors += total.tensors;
      bytes += total.bytes;
    }
    CHECK(tensors == report.tensor_count);
    CHECK(bytes == report.tensor_bytes);
    // bias_vl is the one thing these files leave out.
    const auto gates = opened->config.layer_count + opened->config.draft.stage_count;
    CHECK(report.expected_count == row.tensors + gates);
  }
}

TEST_CASE("the released config asks for the specification's 95,819 tensors") {
  const auto text = read_file(DI_SOURCE_DIR "/tests/golden/model/release-config.json").value();
  const auto config = parse_model_config(text).value();
  const auto tensors = expected_tensors(config);
  const auto count = [&](auto&& holds) {
    return std::count_if(tensors.begin(), tensors.end(), holds);
  };
  const auto starts = [&](const char* prefix) {
    return count([&](const expected_tensor& it) { return it.name.starts_with(prefix); });
  };
  CHECK(tensors.size() == 95'819);
  CHECK(starts("mtp.") == 2'401);
  CHECK(tensors.size() - 2'401 == 93'418);
  CHECK(starts("layers.0.") == 2'334);
  CHECK(starts("layers.3.ffn.experts.") == 2'304);
  CHECK(starts("layers.2.attn.compressor.") == 3);
  CHECK(starts("layers.20.attn.compressor.") == 2);
  CHECK(starts("layers.24.attn.indexer.") == 3);
  CHECK(starts("layers.20.attn.indexer.") == 5);
  CHECK(starts("layers.14.engram.") == 6);
  CHECK(starts("mtp.1.") == 798);
  const auto shape_of = [&](const std::string& name) {
    const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& it) { return it.name == name; });
    return found == tensors.end() ? "none" : shape_text(found->shape);
  };
  const std::pair<const char*, const char*> shapes[] = {
    {"head.weight", "[129280, 5120]"},
    {"layers.0.hc_attn_fn", "[24, 20480]"},
    {"layers.39.attn.wq_b.scale", "[1024, 40]"},
    {"layers.39.attn.wo_a.weight", "[8192, 4096]"},
    {"layers.39.attn.wo_a.scale", "[256, 128]"},
    {"layers.7.ffn.experts.383.w1.weight", "[2304, 2560]"},
    {"layers.7.ffn.experts.383.w2.scale", "[5120, 72]"},
    {"layers.7.ffn.shared_experts.w2.scale", "[160, 72]"},
    {"layers.14.engram.embed.weight", "[384016682, 256]"},
    {"layers.14.engram.embed.scale", "[384016682, 8]"},
    {"layers.1.engram.wkv.scale", "[800, 192]"},
    {"layers.36.attn.indexer.wq_b.scale", "[128, 40]"},
    {"mtp.0.main_proj.weight", "[5120, 15360]"},
    {"mtp.0.main_proj.scale", "[160, 480]"},
    {"mtp.2.confidence_head.proj.weight", "[1, 5376]"},
    {"mtp.2.ffn.gate.bias_vl", "[128]"},
    {"mtp.1.norm.weight", "none"},
    {"layers.20.attn.compressor.wgate.weight", "none"},
  };
  for (const auto& it : shapes) {
    const std::string name = it.first;
    CAPTURE(name);
    CHECK(shape_of(name) == it.second);
  }
}

TEST_CASE("a scale covers the rest of a matrix that is no multiple of its block") {
  auto text = read_file(DI_SOURCE_DIR "/tests/golden/model/release-config.json").value();
  const std::string rank = "\"q_lora_rank\": 1280";
  text.replace(text.find(rank), rank.size(), "\"q_lora_rank\": 1281");
  std::map<std::string, std::string> shapes;
  for (const auto& it : expected_tensors(parse_model_config(text).value()))
    if (it.name.starts_with("layers.0.attn.wq_")) shapes[it.name] = shape_text(it.shape);
  CHECK(shapes["layers.0.attn.wq_a.scale"] == "[41, 160]");
  CHECK(shapes["layers.0.attn.wq_b.scale"] == "[1024, 41]");
}

TEST_CASE("each way to damage a checkpoint is an error naming file, tensor, found and expected") {
  struct damage_case {
    std::string name;
    std::function<void(const temp_directory&)> damage;
    std::vector<std::string> parts;  ///< all in the message
    std::int32_t classes = 250;
  };
  const auto change = [](std::function<void(std::vector<written_tensor>&)> edit) {
    return [edit](const temp_directory& to) {
      auto tensors = tensors_of(scaled_directory);
      edit(tensors);
      write_checkpoint(to, scaled_directory, tensors);
    };
  };
  const auto rewrite = [](std::function<void(std::string&)> edit) {
    return [edit](const temp_directory& to) {
      auto content = read_file(scaled_directory + "/model.safetensors").value();
      edit(content);
      to.write("config.json", read_file(scaled_directory + "/config.json").value());
      to.write("model.safetensors", content);
    };
  };
  const damage_case table[] = {
    {"missing shard",
     [](const temp_directory& to) {
       auto tensors = tensors_of(scaled_directory);
       const std::vector<written_tensor> half(tensors.begin(), tensors.begin() + 400);
       json::object map;
       for (std::size_t i = 0; i < tensors.size(); ++i)
         map[tensors[i].name] = fmt::format("model-0000{}-of-00002.safetensors", i < 400 ? 1 : 2);
       to.write("config.json", read_file(scaled_directory + "/config.json").value());
       to.write("model-00001-of-00002.safetensors", safetensors_file(half));
       to.write("model.safetensors.index.json", to_text(json::object{{"weight_map", map}}));
     },
     {"model-00002-of-00002.safetensors: found no such file", "expected a shard with 392 tensors (",
      "named by model.safetensors.index.json"}},
    {"truncated file",
     rewrite([](std::string& content) { content.resize(content.size() - 100); }),
     {"model.safetensors: tensor ", "found its end at byte 1458872 of the data",
      "expected at most 1458772: the file is truncated"}},
    {"absurd header length",
     rewrite([](std::string& content) { content[6] = '\x7f'; }),
     {"model.safetensors: found a header length of 35747322042329296 bytes", "expected at most "}},
    {"overlapping offsets",
     rewrite([](std::string& content) {
       // Tensors sorted by name lie one behind another; the second starts inside the first.
       const std::string second = "\"data_offsets\":[16,40]";
       REQUIRE(has(content, second));
       content.replace(content.find(second), second.size(), "\"data_offsets\":[12,36]");
     }),
     {"model.safetensors: tensor layers.0.ffn.gate.bias: found its begin at byte 12 of the data",
      "expected 16: it overlaps the tensor before it"}},
    {"wrong dtype",
     change([](auto& tensors) {
       auto& it = at(tensors, "layers.3.attn.wq_a.weight");
       it.type = dtype::i8;
     }),
     {"model.safetensors: tensor layers.3.attn.wq_a.weight: found I8 [32, 64]",
      "expected F8_E4M3 [32, 64]"}},
    {"wrong shape",
     change([](auto& tensors) {
       at(tensors, "layers.3.attn.wq_a.weight").shape = {64, 32};
     }),
     {"model.safetensors: tensor layers.3.attn.wq_a.weight: found F8_E4M3 [64, 32]",
      "expected F8_E4M3 [32, 64]"}},
    {"missing tensor",
     change([](auto& tensors) { drop(tensors, "layers.0.attn.wkv.scale"); }),
     {"model.safetensors: tensor layers.0.attn.wkv.scale: found nothing",
      "expected F8_E8M0 [1, 2]"}},
    {"unexpected tensor",
     change([](auto& tensors) {
       tensors.push_back({"layers.0.attn.wk", dtype::u8, {1}, "x"});
     }),
     {"model.safetensors: tensor layers.0.attn.wk: found U8 [1], expected no tensor of this name"}},
    {"Git-LFS pointer",
     rewrite([](std::string& content) {
       content = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1534864\n";
     }),
     {"model.safetensors: found a Git-LFS pointer, expected the file itself"}},
    {"NaN scale",
     change(
       [](auto& tensors) { at(tensors, "layers.2.ffn.experts.5.w2.scale").bytes[5] = '\xff'; }),
     {"model.safetensors: tensor layers.2.ffn.experts.5.w2.scale: found NaN (byte 255) at [5, 0]",
      "expected a power of two"}},
    {"wrong class count",
     change([](auto&) {}),
     {"tokenizer.json: tensor layers.1.engram.embed.weight: found 249 token classes",
      "expected 250 (engram_compressed_vocab_size)"},
     249},
  };
  for (const auto& row : table) {
    CAPTURE(row.name);
    temp_directory directory;
    row.damage(directory);
    const auto opened = open_checkpoint(directory.path(), {.engram_classes = row.classes});
    REQUIRE_FALSE(opened.has_value());
    CAPTURE(opened.error().message);
    CHECK(opened.error().code == errc::bad_checkpoint);
    CHECK(exit_code_of(opened.error().code) == 3);
    for (const auto& part : row.parts) {
      CAPTURE(part);
      CHECK(has(opened.error().message, part));
    }
  }
}

TEST_CASE("of many missing or unexpected tensors the first ten are named and all are counted") {
  const auto opened = opened_after(plain_directory, [](auto& tensors) {
    for (auto& it : tensors)
      if (it.name.find(".shared_experts.w1") != std::string::npos) it.name += "_old";
  });
  REQUIRE_FALSE(opened.has_value());
  const auto& message = opened.error().message;
  CAPTURE(message);
  CHECK(has(message, "tensor layers.0.ffn.shared_experts.w1.weight: found nothing"));
  CHECK(has(message, "tensor mtp.0.ffn.shared_experts.w1.weight: found nothing"));
  CHECK_FALSE(has(message, "tensor mtp.1.ffn.shared_experts.w1.weight"));
  CHECK(has(message, "; and 2 more of 12 (missing tensor)"));
  CHECK(has(message, "; and 12 problems of other kinds"));
}

TEST_CASE("a layer is complete only with every matrix of every expert") {
  temp_directory directory;
  auto tensors = tensors_of(scaled_directory);
  drop(tensors, "layers.4.ffn.experts.3.w2.scale");
  drop(tensors, "mtp.1.ffn.experts.3.");
  for (auto& it : tensors)
    if (const auto place = it.name.find("layers.7.ffn.experts.5."); place == 0)
      it.name.replace(0, 23, "layers.7.ffn.experts.6.");
  write_checkpoint(directory, scaled_directory, tensors);
  const auto report = check_directory(directory.path()).report;
  CHECK(report.counts.at(finding_kind::missing_tensor) == 1 + 6 + 6);
  CHECK(report.counts.at(finding_kind::incomplete_experts) == 3);
  CHECK(report.counts.at(finding_kind::unexpected_tensor) == 6);
  std::vector<std::string> lines;
  for (const auto& found : report.findings)
    if (found.kind == finding_kind::incomplete_experts) lines.push_back(found.text());
  CHECK(lines ==
        std::vector<std::string>{
          "model.safetensors: tensor layers.4.ffn.experts: found 5 of 6 complete, the first "
          "incomplete is 3, expected w1, w2, w3 and their scales of experts 0 to 5",
          "model.safetensors: tensor layers.7.ffn.experts: found 5 of 6 complete, the first "
          "incomplete is 5, expected w1, w2, w3 and their scales of experts 0 to 5",
          "model.safetensors: tensor mtp.1.ffn.experts: found 3 of 4 complete, the first "
          "incomplete is 3, expected w1, w2, w3 and their scales of experts 0 to 3"});
  const auto table = to_table(report);
  CHECK(has(table, "error: missing tensor: 13 in all, 10 shown\n"));
  CHECK(to_json(report).at("clean") == false);
  CHECK(to_json(report).at("counts").at("unexpected tensor") == 6);
}

TEST_CASE(
  "residual-stream tensors, sinks and router biases must be F32, and no norm may stand beside") {
  for (const std::string name :
       {"layers.2.hc_attn_fn", "layers.0.hc_ffn_base", "mtp.2.hc_ffn_scale",
        "layers.8.attn.attn_sink", "mtp.0.ffn.gate.bias"}) {
    CAPTURE(name);
    const auto opened = opened_after(plain_directory, [&](auto& tensors) {
      auto& it = at(tensors, name);
      it.type = dtype::bf16;
      it.bytes.resize(it.bytes.size() / 2);
    });
    REQUIRE_FALSE(opened.has_value());
    CHECK(has(opened.error().message, "tensor " + name + ": found BF16 ["));
    CHECK(has(opened.error().message, ", expected F32 ["));
  }
  const auto opened = opened_after(plain_directory, [](auto& tensors) {
    tensors.push_back({"layers.1.hc_attn_norm.weight", dtype::bf16, {1}, "xx"});
  });
  REQUIRE_FALSE(opened.has_value());
  CHECK(has(opened.error().message,
            "layers.1.hc_attn_norm.weight: found BF16 [1], expected no such "
            "tensor: hc_*_fn already contain these weights"));
}

TEST_CASE("vision tensors, repeated embeddings and image biases do not disturb") {
  const auto opened = opened_after(scaled_directory, [](auto& tensors) {
    tensors.push_back({"vision.blocks.0.weight", dtype::f16, {2}, "abcd"});
    tensors.push_back({"aligner.weight", dtype::u8, {1}, "x"});
    tensors.push_back({"image_newline", dtype::u8, {1}, "x"});
    tensors.push_back({"mtp.1.embed.weight", dtype::u8, {1}, "x"});
    tensors.push_back({"mtp.2.head.weight", dtype::u8, {1}, "x"});
    tensors.push_back({"mtp.2.ffn.gate.bias_vl", dtype::f32, {4}, std::string(16, '\0')});
    for (auto& it : tensors)
      if (it.name.starts_with("layers.5.")) it.name = "model." + it.name;
  });
  REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
  CHECK(opened->report.skipped_count == 5);
  CHECK(opened->report.skipped_bytes == 8);
  CHECK(opened->report.tensor_count == 792 + 6);
  // Whole names count: markov_head.embed.weight is no repeated embedding.
  const auto other = opened_after(scaled_directory, [](auto& tensors) {
    tensors.push_back({"mtp.3.embed.weight", dtype::u8, {1}, "x"});
    tensors.push_back({"mtp.1.markov_head.embed.weight", dtype::u8, {1}, "x"});
  });
  REQUIRE_FALSE(other.has_value());
  CHECK(has(other.error().message, "mtp.1.markov_head.embed.weight: found U8"));
  CHECK(has(other.error().message, "mtp.3.embed.weight: found U8"));
}

TEST_CASE("the form follows the config: plain tensors are refused where scales are promised") {
  temp_directory directory;
  write_checkpoint(directory, scaled_directory, tensors_of(plain_directory));
  const auto plain = open_checkpoint(directory.path());
  REQUIRE_FALSE(plain.has_value());
  CHECK(
    has(plain.error().message, "tensor layers.0.attn.wq_a.scale: found nothing, expected F8_E8M0"));
  write_checkpoint(directory, plain_directory, tensors_of(scaled_directory));
  const auto scaled = check_directory(directory.path()).report;
  CHECK(scaled.counts.at(finding_kind::wrong_dtype) > 100);
  CHECK(scaled.counts.at(finding_kind::unexpected_tensor) == 303);  // the scales
}

TEST_CASE("a report holds the problems of config and files together") {
  temp_directory directory;
  directory.write("config.json", "{}");
  directory.write("model.safetensors", "short");
  const auto checked = check_directory(directory.path());
  CHECK_FALSE(checked.config.has_value());
  CHECK_FALSE(checked.tensors.has_value());
  REQUIRE(checked.report.findings.size() == 2);
  CHECK(has(checked.report.findings[0].text(), "config.json: model_type: found nothing"));
  CHECK(has(checked.report.findings[1].text(), "model.safetensors: found 5 bytes"));
  CHECK(has(verdict(checked.report).error().message, "; and 1 problems of other kinds"));
}

TEST_CASE("2,000 mutants of a whole checkpoint open or are refused") {
  // The smallest quantised model there is, from its own list of tensors.
  const std::string text = R"({"model_type": "deepseek_v41", "vocab_size": 4, "eos_token_id": 1,
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 1, "head_dim": 4,
    "qk_rope_head_dim": 2, "q_lora_rank": 4, "o_groups": 1, "o_lora_rank": 4, "sliding_window": 3,
    "compress_ratios": [0, 2], "kv_source_layer_ids": [1], "index_source_layer_ids": [1],
    "index_n_heads": 1, "index_head_dim": 2, "index_topk": 4,
    "rope_theta": 10000, "compress_rope_theta": 10000, "max_position_embeddings": 64,
    "n_routed_experts": 1, "n_shared_experts": 1, "num_experts_per_tok": 1,
    "moe_intermediate_size": 32, "norm_topk_prob": true, "routed_scaling_factor": 1,
    "swiglu_limit": 0, "hc_mult": 1, "hc_sinkhorn_iters": 1, "hc_eps": 0, "rms_norm_eps": 1e-6,
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
      "weight_block_size": [32, 32], "scale_fmt": "ue8m0", "expert_dtype": "fp4"}})";
  const auto config = parse_model_config(text);
  REQUIRE_MESSAGE(config.has_value(), config.error().message);
  std::vector<written_tensor> tensors;
  for (const auto& it : expected_tensors(*config)) {
    if (it.is_optional) continue;
    const auto type = it.rule == storage_rule::fp8     ? dtype::f8_e4m3
                      : it.rule == storage_rule::fp4   ? dtype::i8
                      : it.rule == storage_rule::scale ? dtype::f8_e8m0
                                                       : dtype::f32;
    const tensor_view shape{type, it.shape, nullptr};
    tensors.push_back({it.name, type, it.shape, std::string(shape.bytes(), '\x10')});
  }
  temp_directory directory;
  const auto valid = safetensors_file(tensors);
  directory.write("config.json", text);
  directory.write("model.safetensors", valid);
  REQUIRE(open_checkpoint(directory.path()).has_value());
  mutator mutate(44);
  int opened = 0, structural = 0;
  for (int i = 0; i < 2'000; ++i) {
    directory.write("config.json", i % 4 == 0 ? mutate.text(text) : text);
    directory.write("model.safetensors", i % 2 == 0 ? mutate.safetensors(valid)
                                                    : safetensors_file(edited(tensors, mutate)));
    const auto checked = check_directory(directory.path());
    if (checked.report.is_clean()) ++opened;
    if (checked.config && checked.tensors && !checked.report.is_clean()) ++structural;
    REQUIRE(verdict(checked.report).has_value() == checked.report.is_clean());
    REQUIRE(checked.report.findings.size() <= 90);
  }
  MESSAGE("opened ", opened, ", refused by their tensors ", structural);
  CHECK(opened >= 200);
  CHECK(structural >= 200);
}
