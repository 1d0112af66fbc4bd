// Random checkpoints: their form, their values, and that the model computes with them.
#include "runtime/model/make_model.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "kernels/common/formats.hpp"
#include "model_fixture.hpp"
#include "runtime/base/file.hpp"
#include "runtime/model/checkpoint_check.hpp"
#include "runtime/model/make_model_shape.hpp"
#include "runtime/model/make_model_values.hpp"
#include "runtime/model/safetensors_writer.hpp"
#include "small_shape.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
namespace fs = std::filesystem;

namespace {

constexpr std::int32_t classes = 200;

const random_model_text small_text{.noise_token = 255, .class_count = classes};

std::string config_text_of(const random_model_shape& shape) {
  auto text = random_model_config(shape, small_text);
  REQUIRE_MESSAGE(text, text.error().message);
  return *text;
}

model_config config_of(const random_model_shape& shape) {
  return parse_model_config(config_text_of(shape)).value();
}

written_checkpoint write_small(const std::string& directory, std::uint64_t seed,
                               std::uint64_t shard_bytes = 1 << 30) {
  const auto written =
    write_random_checkpoint({directory, config_text_of(small_shape()), seed, shard_bytes});
  REQUIRE_MESSAGE(written, written.error().message);
  return *written;
}

tensor_set open_set(const std::string& directory) {
  auto set = tensor_set::open(directory);
  REQUIRE_MESSAGE(set, set.error().message);
  return *std::move(set);
}

std::string bytes_of(const tensor_view& view) {
  return {reinterpret_cast<const char*>(view.data), view.bytes()};
}

std::map<std::string, std::string> contents_of(const std::string& directory) {
  const auto set = open_set(directory);
  std::map<std::string, std::string> out;
  for (const auto& [name, place] : set.tensors()) out[name] = bytes_of(*place.view);
  return out;
}

/// The numbers that a tensor says, scales applied.
std::vector<float> values_of(const tensor_set& set, const std::string& name) {
  const auto& view = *set.find(name);
  const auto* scale =
    name.ends_with(".weight") ? set.find(name.substr(0, name.size() - 6) + "scale") : nullptr;
  const bool is_fp4 = view.type == dtype::i8;
  const auto columns = view.shape.back() * (is_fp4 ? 2 : 1);
  std::vector<float> out(static_cast<std::size_t>(view.elements() * (is_fp4 ? 2 : 1)));
  const auto* bytes = view.as<std::uint8_t>();
  for (std::int64_t i = 0; i < std::ssize(out); ++i) {
    auto& value = out[static_cast<std::size_t>(i)];
    if (view.type == dtype::f32) value = view.as<float>()[i];
    if (view.type == dtype::bf16) value = kernels::bf16_decode(view.as<std::uint16_t>()[i]);
    if (view.type == dtype::f8_e4m3) value = kernels::e4m3_decode(bytes[i]);
    if (is_fp4) value = kernels::e2m1_decode(i % 2 == 0 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4);
    if (!scale) continue;
    const auto is_by_row = scale->shape[0] == view.shape[0];
    const auto row = is_by_row ? i / columns : i / columns / 32;
    value *=
      kernels::e8m0_decode(scale->as<std::uint8_t>()[row * scale->shape[1] + i % columns / 32]);
  }
  return out;
}

double root_mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const auto value : values) sum += double{value} * double{value};
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("the shapes S and M have about the parameters they are named for") {
  struct row {
    const char* name;
    double total, active;
  };
  for (const auto& row : {row{"S", 230e6, 40e6}, row{"M", 1.3e9, 220e6}}) {
    CAPTURE(row.name);
    const auto count = count_parameters(config_of(random_model_shape_of(row.name).value()));
    CHECK(static_cast<double>(count.total) == doctest::Approx(row.total).epsilon(0.1));
    CHECK(static_cast<double>(count.active) == doctest::Approx(row.active).epsilon(0.1));
    CHECK(count.drafter * 10 < count.total);
    CHECK(count.engram_tables * 100 < count.total);
  }
  CHECK_FALSE(random_model_shape_of("L").has_value());
  CHECK_FALSE(random_model_shape_of("").has_value());
}

TEST_CASE("the count of parameters is that of the numbers in the file") {
  const temp_directory place;
  write_small(place.path(), 1);
  const auto set = open_set(place.path());
  const auto config = config_of(small_shape());
  std::int64_t total = 0, tables = 0, drafter = 0, active = 0;
  for (const auto& [name, it] : set.tensors()) {
    if (it.view->type == dtype::f8_e8m0) continue;
    const auto count = it.view->elements() * (it.view->type == dtype::i8 ? 2 : 1);
    total += count;
    if (name.ends_with("engram.embed.weight")) {
      tables += count;
      active += 3 * 4 * 32;  // 2-, 3- and 4-grams, 4 heads, 32 wide
    } else if (name.starts_with("mtp.")) {
      drafter += count;
    } else if (name.find("ffn.experts.") != std::string::npos) {
      if (name.find(".experts.0.") != std::string::npos) active += 3 * count;  // 3 of them run
    } else if (name != "embed.weight") {
      active += count;
    }
  }
  const auto count = count_parameters(config);
  CHECK(count.total == total);
  CHECK(count.engram_tables == tables);
  CHECK(count.drafter == drafter);
  CHECK(count.active == active);
}

TEST_CASE("a random model of any depth has every kind of layer of V4.1") {
  for (std::int32_t depth = 4; depth <= 40; ++depth) {
    CAPTURE(depth);
    auto shape = small_shape();
    shape.layer_count = depth;
    const auto config = config_of(shape);
    CHECK(config.warnings.empty());
    CHECK(config.quantization.has_value());
    std::map<std::int32_t, int> by_ratio;
    int owners = 0, indexers = 0, candidate_sources = 0, masked = 0, tables = 0, taps = 0;
    for (std::int32_t id = 0; id < depth; ++id) {
      const auto& layer = config.layers[static_cast<std::size_t>(id)];
      ++by_ratio[layer.ratio];
      owners += layer.owns_rows;
      indexers += layer.runs_indexer;
      candidate_sources += layer.candidates == candidate_role::source;
      masked += layer.candidates == candidate_role::masked;
      tables += layer.engram >= 0;
      taps += layer.tap >= 0;
    }
    CHECK(by_ratio[0] == 2);
    CHECK(by_ratio[2] == (depth - 2) / 2);
    CHECK(by_ratio[1] == depth - 2 - (depth - 2) / 2);
    CHECK(owners >= 2);
    CHECK(indexers == owners + masked);
    CHECK(candidate_sources == 1);
    CHECK((masked > 0) == (depth >= 7));
    CHECK(tables == 2);
    CHECK(taps == 3);
    CHECK(config.draft.stage_count == 3);
  }
}

TEST_CASE("a shape whose sizes do not fit each other is refused with the key's name") {
  auto shape = small_shape();
  shape.o_groups = 3;
  const auto refused = random_model_config(shape, small_text);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::bad_config);
  CHECK(refused.error().message.find("o_groups: found 3, expected a divisor") != std::string::npos);
}

TEST_CASE("a written checkpoint is in order, whole or in shards, and both hold the same") {
  const temp_directory place;
  for (const auto* name : {"whole", "shards"}) fs::create_directory(place.file(name));
  constexpr std::uint64_t limit = 100'000;
  const auto whole = write_small(place.file("whole"), 7);
  const auto shards = write_small(place.file("shards"), 7, limit);
  CHECK(whole.shards == 1);
  CHECK(shards.shards > 3);
  for (const auto* name : {"whole", "shards"}) {
    CAPTURE(name);
    check_options options;
    options.engram_classes = classes;
    const auto checked = check_directory(place.file(name), options);
    const auto verdict_of = verdict(checked.report);
    CHECK_MESSAGE(verdict_of, verdict_of.error().message);
    CHECK(checked.report.tensor_count == checked.report.expected_count);
    CHECK(checked.report.tensor_count == whole.tensors);
    CHECK(checked.report.tensor_bytes == static_cast<std::int64_t>(whole.bytes));
    CHECK(checked.report.shard_count == (std::string(name) == "whole" ? 1 : shards.shards));
    REQUIRE(checked.tensors);
    for (const auto& shard : checked.tensors->shards()) {
      std::uint64_t bytes = 0;
      for (const auto& tensor : shard.tensors()) {
        bytes += tensor.view.bytes();
        CHECK(tensor.begin % size_of(tensor.view.type) == 0);
      }
      if (shards.shards == checked.report.shard_count)
        CHECK((bytes <= limit || shard.tensors().size() == 1));
    }
  }
  CHECK(whole.bytes == random_checkpoint_bytes(config_of(small_shape())));
  CHECK(contents_of(place.file("whole")) == contents_of(place.file("shards")));
}

TEST_CASE("the seed decides every byte") {
  const temp_directory place;
  for (const auto* name : {"a", "b", "c"}) fs::create_directory(place.file(name));
  write_small(place.file("a"), 1);
  write_small(place.file("b"), 1);
  write_small(place.file("c"), 2);
  for (const auto* file : {"/model.safetensors", "/config.json"})
    CHECK(read_file(place.file("a") + file).value() == read_file(place.file("b") + file).value());
  const auto first = contents_of(place.file("a")), other = contents_of(place.file("c"));
  std::set<std::string> equal;
  for (const auto& [name, bytes] : first)
    if (other.at(name) == bytes && bytes.size() > 64) equal.insert(name);
  CHECK(equal.empty());
}

TEST_CASE("matrices have the deviation that keeps a signal's size, tables and norms about one") {
  const temp_directory place;
  write_small(place.path(), 3);
  const auto set = open_set(place.path());
  std::set<std::string> first_values;
  for (const auto& [name, it] : set.tensors()) {
    const auto type = it.view->type;
    if (type == dtype::f8_e8m0) continue;
    CAPTURE(name);
    const auto values = values_of(set, name);
    CHECK(std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }));
    if (it.view->shape.size() < 2 || values.size() < 4096) continue;
    const auto columns = it.view->shape.back() * (type == dtype::i8 ? 2 : 1);
    double expected = 1 / std::sqrt(static_cast<double>(columns));
    if (name.ends_with("embed.weight")) expected = 1;
    if (name == "head.weight") expected *= 4;
    if (name.ends_with("attn.wq_b.weight")) expected *= 2.5;
    if (name.ends_with("attn.wo_b.weight")) expected *= 1.5;
    if (name.ends_with(".w2.weight")) expected *= 2;
    CHECK(root_mean_square(values) == doctest::Approx(expected).epsilon(0.08));
    double sum = 0;
    for (const auto value : values) sum += double{value};
    CHECK(std::abs(sum / static_cast<double>(values.size())) < expected * 0.08);
    CHECK(first_values.insert(bytes_of(*it.view).substr(0, 32)).second);
  }
  CHECK(first_values.size() > 50);
  for (const auto value : values_of(set, "norm.weight")) CHECK(std::abs(value - 1) < 0.36f);
  for (const auto value : values_of(set, "layers.1.ffn.gate.bias")) CHECK(value == 0.0f);
  for (const auto value : values_of(set, "mtp.2.hc_ffn_scale")) CHECK(value == 0.5f);
}

TEST_CASE("FP4 codes come equally often, FP8 codes fill their range without NaN") {
  const random_tensor fp4{.name = "a", .type = dtype::i8, .law = value_law::codes};
  const random_tensor fp8{.name = "b", .type = dtype::f8_e4m3, .law = value_law::codes};
  std::vector<std::byte> bytes(1 << 17);
  random_values(fp4, 5).fill(bytes);
  int count[16] = {};
  for (const auto byte : bytes) {
    ++count[std::to_integer<int>(byte) & 15];
    ++count[std::to_integer<int>(byte) >> 4];
  }
  for (const auto of_code : count) CHECK(std::abs(of_code - (1 << 14)) < 700);  // 5.6 sigma
  random_values(fp8, 5).fill(bytes);
  float most = 0;
  std::set<std::byte> seen;
  for (const auto byte : bytes) {
    const auto value = kernels::e4m3_decode(std::to_integer<std::uint8_t>(byte));
    REQUIRE(std::isfinite(value));
    most = std::max(most, std::abs(value));
    seen.insert(byte);
  }
  CHECK(most > 320);
  CHECK(most <= 448);
  CHECK(seen.size() > 100);
}

TEST_CASE("values do not depend on the sizes of the pieces they are asked for in") {
  for (const auto type : {dtype::f32, dtype::bf16, dtype::f8_e4m3, dtype::i8, dtype::f8_e8m0}) {
    CAPTURE(name_of(type));
    random_tensor tensor{.name = "x", .type = type, .mean = 0, .deviation = 0.3};
    if (type == dtype::f8_e8m0) tensor.law = value_law::powers;
    for (const std::size_t size : {4u, 64u, 100u, 388u}) {
      std::vector<std::byte> whole(size), parts(size);
      random_values(tensor, 9).fill(whole);
      random_values pieces(tensor, 9);
      for (std::size_t at = 0; at < size; at += 64)
        pieces.fill(std::span(parts).subspan(at, std::min<std::size_t>(64, size - at)));
      CHECK(whole == parts);
      std::vector<std::byte> longer(size + 64);
      random_values(tensor, 9).fill(longer);
      CHECK(std::equal(whole.begin(), whole.end(), longer.begin()));
    }
  }
}

namespace {

weights_ptr load_small(const std::string& directory, numeric_mode mode) {
  std::vector<std::int32_t> map(256);
  for (std::size_t i = 0; i < map.size(); ++i) map[i] = static_cast<std::int32_t>(i) % classes;
  auto opened = check_directory(directory, {});
  REQUIRE(opened.config);
  REQUIRE(opened.tensors);
  checkpoint_weights source(std::make_shared<const tensor_set>(*std::move(opened.tensors)));
  auto loaded = load_weights(*opened.config, map, packing_of(mode), source);
  REQUIRE_MESSAGE(loaded, loaded.error().message);
  return *loaded;
}

/// Continues `ids` greedily; every row of logits seen on the way goes to `logits`.
ids continue_greedily(model_session& session, ids text, std::int32_t count,
                      std::vector<float>& logits) {
  const auto vocab = static_cast<std::size_t>(session.config().vocab_size);
  std::int32_t position = 0;
  ids made;
  while (std::ssize(made) < count) {
    const session_row row{0, position, text};
    REQUIRE(session.run(inline_stream(), {&row, 1}));
    const auto step = session.logits(inline_stream());
    logits.insert(logits.end(), step.begin(), step.end());
    position += static_cast<std::int32_t>(text.size());
    made.push_back(arg_max(std::span(step).last(vocab)));
    text = {made.back()};
  }
  return made;
}

}  // namespace

TEST_CASE("a random model computes: healthy streams, varied tokens, finite drafts") {
  const temp_directory place;
  write_small(place.path(), 11);
  for (const auto mode : {numeric_mode::exact, numeric_mode::released, numeric_mode::fast}) {
    CAPTURE(static_cast<int>(mode));
    const auto weights = load_small(place.path(), mode);
    session_config sizes{.numeric = mode, .max_positions = 96, .with_draft = true};
    const auto session = make_session(weights, sizes);
    std::vector<float> logits;
    const auto made = continue_greedily(*session, {0, 17, 4, 99, 200}, 48, logits);
    CHECK(std::set<token_id>(made.begin(), made.end()).size() >= 16);
    CHECK(root_mean_square(logits) > 1.5);
    CHECK(root_mean_square(logits) < 8);

    recorder seen;
    REQUIRE(make_session(weights, sizes)->run_all(inline_stream(), made, 0, &seen));
    for (const auto& [key, values] : seen.floats) {
      if (key.first != model_point::stream) continue;
      CAPTURE(key.second);
      CHECK(root_mean_square(values) > 0.5);
      CHECK(root_mean_square(values) < 12);
    }
    const std::int32_t slot = 0, last = 52;
    const auto drafts = session->draft(inline_stream(), {&slot, 1}, {&last, 1}, {&made[0], 1}, 5);
    REQUIRE_MESSAGE(drafts, drafts.error().message);
    CHECK(drafts->ids.size() == 5);
    for (const auto value : drafts->confidence) CHECK(std::isfinite(value));
  }
}

TEST_CASE("a random model's next token depends on the far past and on the order") {
  const temp_directory place;
  write_small(place.path(), 12);
  const auto weights = load_small(place.path(), numeric_mode::exact);
  const session_config sizes{.max_positions = 64};
  const auto last_row = [&](const ids& text) {
    const auto all = make_session(weights, sizes)->run_all(inline_stream(), text);
    REQUIRE(all);
    return std::vector<float>(all->end() - 256, all->end());
  };
  const auto text = random_ids(3, 40, 256);
  auto early = text, swapped = text;
  early[1] = (early[1] + 1) % 256;
  std::swap(swapped[10], swapped[20]);
  const auto base = last_row(text);
  CHECK(max_difference(base, last_row(early)) > 0.02);
  CHECK(max_difference(base, last_row(swapped)) > 0.02);
}

TEST_CASE("a file that is not finished is not left behind, nor one that can't be written") {
  const temp_directory place;
  const auto path = place.file("model.safetensors");
  const std::vector<tensor_entry> entries{{"a", dtype::f32, {3}}, {"b", dtype::u8, {0}}};
  const float values[3] = {1, 2, 3};
  const auto bytes = std::as_bytes(std::span(values));
  {
    auto writer = tensor_file_writer::create(path, entries);
    REQUIRE(writer);
    REQUIRE(writer->append(bytes.first(5)));
    CHECK(fs::exists(path));
  }
  CHECK_FALSE(fs::exists(path));
  {
    auto writer = tensor_file_writer::create(path, entries);
    REQUIRE(writer);
    REQUIRE(writer->append(bytes.first(5)));
    auto moved = *std::move(writer);
    REQUIRE(moved.append(bytes.subspan(5)));
    REQUIRE(moved.finish());
  }
  const auto file = tensor_file::open(path);
  REQUIRE_MESSAGE(file, file.error().message);
  CHECK(file->tensors().size() == 2);
  CHECK(bytes_of(*file->find("a")) == std::string(reinterpret_cast<const char*>(values), 12));

  const auto lost = tensor_file_writer::create(place.file("absent/x"), entries);
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == errc::io_failed);
  CHECK(lost.error().message == place.file("absent/x") + ": No such file or directory");
  if (!fs::exists("/dev/full")) return;
  const auto full = place.file("model-full");
  fs::create_symlink("/dev/full", full);
  const auto refused = tensor_file_writer::create(full, entries);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == full + ": No space left on device");
  CHECK_FALSE(fs::is_symlink(full));
}

TEST_CASE("a checkpoint that could not be written has no config.json") {
  const temp_directory place;
  fs::create_directory(place.file("model.safetensors"));
  const auto refused = write_random_checkpoint({place.path(), config_text_of(small_shape())});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == place.file("model.safetensors") + ": Is a directory");
  CHECK_FALSE(fs::exists(place.file("config.json")));
}

TEST_CASE("removing a checkpoint leaves what is none of it") {
  const temp_directory place;
  write_small(place.path(), 1, 100'000);
  for (const auto* name : {"adapter.safetensors", "model.txt", "tokenizer.json"})
    place.write(name, "x");
  REQUIRE(remove_checkpoint_files(place.path()));
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(place.path()))
    left.insert(entry.path().filename().string());
  CHECK(left == std::set<std::string>{"adapter.safetensors", "model.txt", "tokenizer.json"});
  CHECK_FALSE(remove_checkpoint_files(place.file("absent")));
}
