// Loading weights: every stored form is exact, mistakes are named, progress reaches the end.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/linear/linear.hpp"
#include "model_fixture.hpp"
#include "runtime/model/safetensors.hpp"
#include "tests/support/golden_file.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

const std::string fp8_folder = DI_SOURCE_DIR "/tests/golden/model/v41-a-fp8";

/// W as the products see it: W times each unit vector.
std::vector<float> unpacked(const kernels::packed_matrix& matrix) {
  std::vector<float> unit(static_cast<std::size_t>(matrix.in * matrix.in), 0.0f), columns;
  for (std::int64_t i = 0; i < matrix.in; ++i)
    unit[static_cast<std::size_t>(i * matrix.in + i)] = 1;
  columns.resize(static_cast<std::size_t>(matrix.in * matrix.out));
  kernels::linear_args args;
  args.weight = &matrix;
  args.x = unit.data();
  args.y = columns.data();
  args.rows = matrix.in;
  kernels::linear_ref(inline_stream(), args);
  std::vector<float> rows(columns.size());
  for (std::int64_t o = 0; o < matrix.out; ++o)
    for (std::int64_t i = 0; i < matrix.in; ++i)
      rows[static_cast<std::size_t>(o * matrix.in + i)] =
        columns[static_cast<std::size_t>(i * matrix.out + o)];
  return rows;
}

/// Values times scales, straight from the file: one scale per `rows` outputs and 32 inputs.
std::vector<float> fp8_values(const golden_file& file, const std::string& name, std::int64_t rows) {
  auto values = file.floats(name + ".weight");
  const auto scales = file.floats(name + ".scale");
  const auto columns = file.shape(name + ".weight")[1];
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / columns;
    const auto column = static_cast<std::int64_t>(i) % columns;
    values[i] *= scales[static_cast<std::size_t>(row / rows * ((columns + 31) / 32) + column / 32)];
  }
  return values;
}

/// A source that hands out another one's tensors, one of them changed.
class changed_source final : public weight_source {
public:
  changed_source(weight_source& from, std::string name,
                 std::function<result<weight_tensor>(weight_tensor)> change)
    : from_(from),
      name_(std::move(name)),
      change_(std::move(change)) {}
  result<weight_tensor> get(std::string_view name, const std::vector<std::int64_t>& shape,
                            scale_layout scales) override {
    DI_TRY(auto tensor, from_.get(name, shape, scales));
    if (name == name_) return change_(std::move(tensor));
    return tensor;
  }

private:
  weight_source& from_;
  std::string name_;
  std::function<result<weight_tensor>(weight_tensor)> change_;
};

struct fp8_checkpoint {
  model_config config = *load_model_config(fp8_folder);
  std::shared_ptr<const tensor_set> tensors =
    std::make_shared<const tensor_set>(*tensor_set::open(fp8_folder));
  std::vector<std::int32_t> classes = golden_model("v41-a-plain")->token_classes;
};

}  // namespace

TEST_CASE("packed matrices hold exactly what is stored: FP8 blocks, FP4 experts, groups, bf16") {
  const auto weights = golden_model("v41-a-fp8");
  const golden_file file(fp8_folder + "/model.safetensors");
  const auto& attention = weights->blocks[2].attention;
  CHECK(unpacked(attention.wq_a) == fp8_values(file, "layers.2.attn.wq_a", 32));
  CHECK(unpacked(attention.wo_b) == fp8_values(file, "layers.2.attn.wo_b", 32));
  std::vector<float> groups;
  for (const auto& group : attention.wo_a) {
    const auto part = unpacked(group);
    groups.insert(groups.end(), part.begin(), part.end());
  }
  CHECK(groups == fp8_values(file, "layers.2.attn.wo_a", 32));
  CHECK(unpacked(attention.compressor.wkv) == file.floats("layers.2.attn.compressor.wkv.weight"));

  const auto& expert = weights->blocks[3].moe.experts[4].w1;
  const auto codes = file.ints("layers.3.ffn.experts.4.w1.weight");
  const auto scales = file.floats("layers.3.ffn.experts.4.w1.scale");
  std::vector<float> expected;
  for (std::size_t i = 0; i < 2 * codes.size(); ++i) {
    const auto pair = static_cast<std::uint8_t>(codes[i / 2]);
    const auto code = static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15u : pair >> 4);
    expected.push_back(kernels::e2m1_decode(code) * scales[i / 32]);
  }
  CHECK(unpacked(expert) == expected);
}

TEST_CASE("groups of wo_a that begin inside a block of scales are dequantised, not misread") {
  // Four groups of 16 rows over scales of 32 rows.
  const golden_file file(fp8_folder + "/model.safetensors");
  fp8_checkpoint checkpoint;
  auto config = checkpoint.config;
  config.o_groups = 4;  // heads of one each; twice the groups of half the rank: the same tensor
  config.o_rank /= 2;
  auto stored = *checkpoint.tensors->need("layers.0.attn.wo_a.weight");
  REQUIRE(stored.shape[0] == 2 * checkpoint.config.o_rank);
  checkpoint_weights source(checkpoint.tensors);
  // wo_a shall be [64, 32] now instead of [64, 64]: hand out its left half.
  std::vector<std::byte> halves;
  class half_source final : public weight_source {
  public:
    explicit half_source(weight_source& from) : from_(from) {}
    result<weight_tensor> get(std::string_view name, const std::vector<std::int64_t>& shape,
                              scale_layout scales) override {
      if (!name.ends_with("wo_a.weight")) return from_.get(name, shape, scales);
      DI_TRY(const auto whole, from_.get(name, {shape[0], 2 * shape[1]}, scales));
      struct copies {
        std::vector<std::byte> values, scale;
      };
      auto made = std::make_shared<copies>();
      for (std::int64_t row = 0; row < shape[0]; ++row)
        made->values.insert(made->values.end(), whole.values.data + row * 2 * shape[1],
                            whole.values.data + (row * 2 + 1) * shape[1]);
      for (std::int64_t row = 0; row < shape[0] / 32; ++row)
        made->scale.push_back(whole.scale.data[row * 2]);
      return weight_tensor{{dtype::f8_e4m3, shape, made->values.data()},
                           {dtype::f8_e8m0, {shape[0] / 32, 1}, made->scale.data()},
                           made};
    }

  private:
    weight_source& from_;
  } half(source);
  const auto weights = load_weights(config, checkpoint.classes, kernels::packing::exact, half);
  REQUIRE(weights);
  const auto& groups = (*weights)->blocks[0].attention.wo_a;
  REQUIRE(groups.size() == 4);
  const auto whole = fp8_values(file, "layers.0.attn.wo_a", 32);
  std::vector<float> expected, found;
  for (std::int64_t row = 0; row < 64; ++row)
    expected.insert(expected.end(), whole.begin() + row * 64, whole.begin() + row * 64 + 32);
  for (const auto& group : groups) {
    const auto part = unpacked(group);
    found.insert(found.end(), part.begin(), part.end());
  }
  CHECK(found == expected);
}

TEST_CASE("Engram tables and embeddings stay as stored, in the mapped file") {
  const auto weights = golden_model("v41-a-fp8");
  CHECK(weights->embed.type == dtype::bf16);
  CHECK(weights->engrams[0].table.type == dtype::f8_e4m3);
  CHECK(weights->engrams[0].table.scale != nullptr);
  fp8_checkpoint checkpoint;
  checkpoint_weights source(checkpoint.tensors);
  const auto again =
    load_weights(checkpoint.config, checkpoint.classes, kernels::packing::exact, source);
  REQUIRE(again);
  CHECK((*again)->engrams[1].table.data ==
        checkpoint.tensors->find("layers.4.engram.embed.weight")->data);
}

TEST_CASE("progress grows with every tensor and ends at the total") {
  fp8_checkpoint checkpoint;
  checkpoint_weights source(checkpoint.tensors);
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  REQUIRE(load_weights(checkpoint.config, checkpoint.classes, kernels::packing::exact, source,
                       [&](std::uint64_t so_far, std::uint64_t all) {
                         done.push_back(so_far);
                         total = all;
                       }));
  CHECK(done.size() > 400);
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(total == checkpoint.tensors->tensor_bytes());
  CHECK(done.back() == total);
}

TEST_CASE("tensors that do not fit are refused by name, found and expected") {
  fp8_checkpoint checkpoint;
  struct change_case {
    const char* name;
    std::function<void(model_config&)> edit;
    const char* message;
  };
  const change_case table[] = {
    {"shape", [](model_config& it) { it.q_rank = 48; },
     "model.safetensors: tensor layers.0.attn.wq_a.weight: found shape [32, 64], expected [48, "
     "64]"},
    {"missing", [](model_config& it) { it.expert_count = 7; },
     "model.safetensors: tensor layers.0.ffn.gate.weight: found shape [6, 64], expected [7, 64]"},
    {"map", [](model_config& it) { it.engram.class_count = 251; },
     "Engram token classes: found 0 to 249, expected 0 to 250 "
     "(text_config.engram_compressed_vocab_size - 1)"},
    {"vocabulary", [](model_config& it) { it.vocab_size = 289; },
     "Engram token classes: found 288 entries, expected one for each of 289 ids"},
  };
  for (const auto& row : table) {
    CAPTURE(row.name);
    auto config = checkpoint.config;
    row.edit(config);
    checkpoint_weights source(checkpoint.tensors);
    const auto made = load_weights(config, checkpoint.classes, kernels::packing::exact, source);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == errc::bad_checkpoint);
    CHECK(made.error().message == row.message);
  }
  checkpoint_weights source(checkpoint.tensors);
  const auto absent = source.get("layers.0.attn.wq_z.weight", {1}, scale_layout::blocks);
  REQUIRE_FALSE(absent.has_value());
  CHECK(absent.error().code == errc::bad_checkpoint);
  CHECK(absent.error().message.find("layers.0.attn.wq_z.weight") != std::string::npos);
}

TEST_CASE("an Engram table in packed e2m1 is refused: no lookup reads it") {
  fp8_checkpoint checkpoint;
  checkpoint_weights source(checkpoint.tensors);
  changed_source changed(source, "layers.1.engram.embed.weight", [](weight_tensor it) {
    it.values.type = dtype::i8;
    return result<weight_tensor>(std::move(it));
  });
  const auto made =
    load_weights(checkpoint.config, checkpoint.classes, kernels::packing::exact, changed);
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error().message ==
        "tensor layers.1.engram.embed.weight: found type I8, expected F32, BF16 or F8_E4M3");
}

TEST_CASE("Engram multipliers are numpy's for the released layers and class count") {
  CHECK(engram_multipliers(1, 99092, 4) ==
        std::vector<std::int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391});
  CHECK(engram_multipliers(14, 99092, 4) ==
        std::vector<std::int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591});
}

TEST_CASE("Engram multipliers of small models, layer 0 included") {
  struct multiplier_case {
    std::int32_t layer;
    std::int64_t classes;
    std::vector<std::int64_t> values;
  };
  const multiplier_case table[] = {
    {1, 64, {118650432209603643, 7493640653728489, 55676810147952557, 114555519428547269}},
    {4, 64, {127364524771245009, 7800076361716407, 114038564133282483, 29348051253447937}},
    {0, 80, {73436682692356713, 31104290395557823, 4723925686556225}},
    {2, 80, {94765977381659841, 45951196490963939, 28052184112279987}},
    {1, 1718, {4420039383826911, 279157742630165, 2074107013660631}},
  };
  for (const auto& row : table) {
    CAPTURE(row.layer);
    CHECK(engram_multipliers(row.layer, row.classes,
                             static_cast<std::int32_t>(row.values.size())) == row.values);
  }
}
