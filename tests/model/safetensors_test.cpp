#include "runtime/model/safetensors.hpp"

#include <filesystem>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "runtime/base/json.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"
#include "tests/support/temp_directory.hpp"
#include "tests/support/tensor_writer.hpp"

using namespace deepinfer;

namespace {

std::span<const std::byte> span_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A file with `header` and that many data bytes.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  return mutator::with_header(header, std::string(data_bytes, '\x40'));
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format("\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":{}}}", name, type,
                     shape, offsets);
}

std::vector<written_tensor> two_tensors() {
  return {{"embed.weight", dtype::f32, {2, 3}, bytes_of_values<float>({1, 2, 3, 4, 5, 6})},
          {"norm.weight", dtype::bf16, {2}, bytes_of_values<std::uint16_t>({0x3F80, 0x4000})}};
}

std::string index_text(const std::vector<std::pair<std::string, std::string>>& entries) {
  json::object map;
  for (const auto& [name, file] : entries) map[name] = file;
  return to_text(json::object{{"metadata", {{"total_size", 28}}}, {"weight_map", map}});
}

/// Reads every byte a file's views claim, so that a sanitizer sees one that lies outside.
std::uint64_t sum_of_bytes(const tensor_file& file) {
  std::uint64_t sum = 0;
  for (const auto& tensor : file.tensors())
    for (std::size_t i = 0; i < tensor.view.bytes(); ++i)
      sum += std::to_integer<std::uint64_t>(tensor.view.data[i]);
  return sum;
}

/// True if length field and JSON of a file are sound, whatever the header says.
bool passes_header(const std::string& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) return false;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - sizeof length) return false;
  const auto header =
    std::string_view(file).substr(sizeof length, static_cast<std::size_t>(length));
  const auto document = parse_json(header, 8);
  return document && document->is_object();
}

}  // namespace

TEST_CASE("every tensor type reads back with its shape and bytes") {
  const dtype types[] = {dtype::f64,     dtype::i64,     dtype::f32,    dtype::i32,
                         dtype::bf16,    dtype::f16,     dtype::i8,     dtype::u8,
                         dtype::boolean, dtype::f8_e4m3, dtype::f8_e8m0};
  std::vector<written_tensor> tensors;
  for (const auto type : types)
    tensors.push_back({std::string(name_of(type)),
                       type,
                       {2, 3},
                       std::string(6 * size_of(type), static_cast<char>('a' + tensors.size()))});
  tensors.push_back({"scalar", dtype::f32, {}, bytes_of_values<float>({2.5f})});
  tensors.push_back({"empty", dtype::f32, {0, 7}, ""});
  const auto content = safetensors_file(tensors);
  const auto file = tensor_file::parse(span_of(content), "all.safetensors");
  REQUIRE_MESSAGE(file.has_value(), file.error().message);
  REQUIRE(file->tensors().size() == tensors.size());
  for (const auto& tensor : tensors) {
    CAPTURE(tensor.name);
    const auto* view = file->find(tensor.name);
    REQUIRE(view != nullptr);
    CHECK(view->type == tensor.type);
    CHECK(view->shape == tensor.shape);
    CHECK(std::string(reinterpret_cast<const char*>(view->data), view->bytes()) == tensor.bytes);
  }
  CHECK(*file->find("scalar")->as<float>() == 2.5f);
  CHECK(file->find("none") == nullptr);
}

TEST_CASE("metadata is kept, and views survive a move of the file") {
  const auto content =
    file_of("{\"__metadata__\":{\"format\":\"pt\"}," + entry("a", "U8", "[2]", "[0,2]") + "}  ", 2);
  auto file = tensor_file::parse(span_of(content), "m.safetensors");
  REQUIRE(file.has_value());
  const auto* view = file->find("a");
  const auto moved = *std::move(file);
  CHECK(moved.metadata().at("format") == "pt");
  CHECK(moved.find("a") == view);
  CHECK(moved.find("__metadata__") == nullptr);
  CHECK(moved.file_bytes() == content.size());
}

TEST_CASE("a tensor that is not aligned for its type reads the same values") {
  for (std::size_t shift = 0; shift < 8; ++shift) {
    CAPTURE(shift);
    const auto content = safetensors_file(two_tensors(), shift);
    const auto file = tensor_file::parse(span_of(content), "odd.safetensors");
    REQUIRE_MESSAGE(file.has_value(), file.error().message);
    const auto* values = file->find("embed.weight")->as<float>();
    CHECK(reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0);
    CHECK(std::vector<float>(values, values + 6) == std::vector<float>{1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("a damaged header is refused with file, tensor, what was found and expected") {
  struct damaged_case {
    std::string content;
    std::string message;
  };
  const auto u8 = [](const std::string& shape, const std::string& offsets) {
    return "{" + entry("a", "U8", shape, offsets) + "}";
  };
  const auto a = entry("a", "U8", "[4]", "[0,4]");
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  const damaged_case table[] = {
    {"", "found 0 bytes, expected at least the 8 of the header's length"},
    {"1234567", "found 7 bytes, expected at least the 8"},
    {huge + "{}", "found a header length of 9223372036854775807 bytes, expected at most 2"},
    {std::string("\x03\0\0\0\0\0\0\0{}", 10),
     "found a header length of 3 bytes, expected at most 2"},
    {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
     "found a Git-LFS pointer, expected the file itself"},
    {file_of("{", 0), "found a header that is no JSON: line 1 column 2"},
    {file_of("[]", 0), "found header [], expected a JSON object"},
    {file_of("{\"a\":{\"b\":{\"c\":[[[[[[[[]]]]]]]]}}}", 0), "nested deeper than 8"},
    {file_of("{\"\xff\":1}", 0), "found a header that is no JSON"},
    {file_of("{\"__metadata__\":[]}", 0), "tensor __metadata__: found [], expected an object"},
    {file_of("{\"__metadata__\":{\"a\":1}}", 0),
     "tensor __metadata__: found 1, expected an object"},
    {file_of("{\"a\":7}", 0), "tensor a: found entry 7, expected an object"},
    {file_of("{" + entry("a", "F4", "[4]", "[0,4]") + "}", 4),
     "tensor a: found dtype \"F4\", expected one of F32"},
    {file_of("{\"a\":{\"shape\":[4]}}", 4), "tensor a: found dtype nothing, expected one of"},
    {file_of("{\"a\":{\"dtype\":\"U8\"}}", 4), "tensor a: found shape nothing, expected a list"},
    {file_of(u8("[-4]", "[0,4]"), 4), "tensor a: found shape [-4], expected whole numbers"},
    {file_of(u8("[4.0]", "[0,4]"), 4), "expected whole numbers from 0 to 2^62"},
    {file_of(u8("[1e99]", "[0,4]"), 4), "expected whole numbers from 0 to 2^62"},
    {file_of(u8("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", "[0,4]"), 4), "a list of at most 16"},
    {file_of(u8("[4611686018427387904,4]", "[0,4]"), 4), "a product that fits 2^62 bytes"},
    {file_of(u8("[4611686018427387904,4,0]", "[0,0]"), 4), "a product that fits 2^62 bytes"},
    {file_of(u8("[5]", "[0,4]"), 4),
     "tensor a: found data_offsets [0,4], expected 5 bytes, for U8 [5]"},
    {file_of(u8("[4]", "[4,0]"), 4),
     "tensor a: found data_offsets [4,0], expected 0 <= begin <= end"},
    {file_of(u8("[4]", "[-4,0]"), 4), "expected 0 <= begin <= end"},
    {file_of(u8("[4]", "[0,18446744073709551616]"), 4), "expected 0 <= begin <= end"},
    {file_of(u8("[4]", "[0]"), 4), "tensor a: found data_offsets [0], expected [begin, end]"},
    {file_of("{" + a + "}", 3),
     "tensor a: found its end at byte 4 of the data, expected at most 3"},
    {file_of("{" + a + "}", 5), "found 5 bytes of data, expected 4, the end of the last tensor"},
    {file_of(u8("[4]", "[1,5]"), 5),
     "tensor a: found its begin at byte 1 of the data, expected 0: there is a hole"},
    {file_of("{" + a + "," + entry("b", "U8", "[4]", "[2,6]") + "}", 6),
     "tensor b: found its begin at byte 2 of the data, expected 4: it overlaps"},
    {file_of("{" + a + "," + entry("b", "U8", "[4]", "[6,10]") + "}", 10),
     "tensor b: found its begin at byte 6 of the data, expected 4: there is a hole"},
    {file_of("{" + a + "," + a + "}", 4), "tensor a: found its name twice in the header"},
    {file_of("{" + entry("a\\n\\u001b[31m", "U8", "[4]", "[1,5]") + "}", 5),
     "tensor a??[31m: found"},
  };
  for (const auto& row : table) {
    CAPTURE(row.message);
    const auto file = tensor_file::parse(span_of(row.content), "bad.safetensors");
    REQUIRE_FALSE(file.has_value());
    CAPTURE(file.error().message);
    CHECK(file.error().code == errc::bad_checkpoint);
    CHECK(file.error().message.starts_with("bad.safetensors: "));
    CHECK(file.error().message.find(row.message) != std::string::npos);
  }
}

TEST_CASE("a single file and shards with an index give the same set of tensors") {
  const auto tensors = two_tensors();
  temp_directory single, sharded;
  single.write("model.safetensors", safetensors_file(tensors));
  single.write("goldens.safetensors", "another file beside it");
  sharded.write("model-00001-of-00002.safetensors", safetensors_file({tensors[0]}));
  sharded.write("model-00002-of-00002.safetensors", safetensors_file({tensors[1]}));
  sharded.write("model.safetensors.index.json",
                index_text({{"embed.weight", "model-00001-of-00002.safetensors"},
                            {"norm.weight", "model-00002-of-00002.safetensors"}}));
  for (const auto* directory : {&single, &sharded}) {
    const auto set = tensor_set::open(directory->path());
    REQUIRE_MESSAGE(set.has_value(), set.error().message);
    CHECK(set->tensors().size() == 2);
    CHECK(set->tensor_bytes() == 28);
    CHECK(set->is_sharded() == (directory == &sharded));
    CHECK(set->find("embed.weight")->as<float>()[5] == 6);
    CHECK(set->need("norm.weight")->shape == std::vector<std::int64_t>{2});
    const auto none = set->need("head.weight");
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().message.find("tensor head.weight: found nothing") != std::string::npos);
  }
  CHECK(tensor_set::open(sharded.path())->file_of("norm.weight") ==
        "model-00002-of-00002.safetensors");
}

TEST_CASE("the prefix model. is optional for each name, but the two forms exclude each other") {
  auto tensors = two_tensors();
  tensors[0].name = "model.embed.weight";
  temp_directory directory;
  directory.write("model.safetensors", safetensors_file(tensors));
  const auto set = tensor_set::open(directory.path());
  REQUIRE(set.has_value());
  CHECK(set->find("embed.weight") != nullptr);
  CHECK(set->find("model.embed.weight") == set->find("embed.weight"));
  CHECK(set->tensors().begin()->first == "embed.weight");
  tensors.push_back({"embed.weight", dtype::u8, {1}, "x"});
  directory.write("model.safetensors", safetensors_file(tensors));
  const auto both = tensor_set::open(directory.path());
  REQUIRE_FALSE(both.has_value());
  CHECK(both.error().message.find("embed.weight: found it also in model.safetensors") !=
        std::string::npos);
}

TEST_CASE("a directory whose index and shards disagree is refused, naming file and tensor") {
  const auto tensors = two_tensors();
  const std::string one = "model-00001-of-00002.safetensors";
  const std::string two = "model-00002-of-00002.safetensors";
  struct directory_case {
    std::vector<std::pair<std::string, std::string>> files;
    std::string message;
  };
  const std::string index = "model.safetensors.index.json";
  const auto both = index_text({{"embed.weight", one}, {"norm.weight", two}});
  const directory_case table[] = {
    {{}, "found 0 *.safetensors files, expected model.safetensors"},
    {{{"a.safetensors", "x"}, {"b.safetensors", "x"}}, "found 2 *.safetensors files"},
    {{{one, safetensors_file({tensors[0]})}},
     "found 1 shards (" + one + ", ...), but no model.safetensors.index.json"},
    {{{index, both}, {one, safetensors_file({tensors[0]})}},
     two + ": found no such file, expected a shard with 1 tensors (norm.weight, ...)"},
    {{{index, both}, {one, safetensors_file({tensors[0]})}, {two, safetensors_file({})}},
     two + ": tensor norm.weight: found nothing, expected it here"},
    {{{index, index_text({{"embed.weight", one}})}, {one, safetensors_file(tensors)}},
     one + ": tensor norm.weight: found here, expected it in the index"},
    {{{index, both}, {one, safetensors_file({tensors[0]})}, {two, "version https://git-lfs"}},
     two + ": found a Git-LFS pointer"},
    {{{index, "version https://git-lfs.github.com/spec/v1\n"}},
     index + ": found a Git-LFS pointer"},
    {{{index, "{"}}, index + ": found no JSON: line 1"},
    {{{index, "{\"weight_map\":{}}"}}, index + ": weight_map: found nothing"},
    {{{index, "{\"weight_map\":{\"a\":1}}"}}, index + ": tensor a: found 1, expected the name"},
    {{{index, index_text({{"a", "../secret.safetensors"}})}},
     index + ": tensor a: found \"../secret.safetensors\", expected the name of a shard file"},
    {{{index, "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}"}},
     index + ": weight_map.a: found the key twice"},
  };
  for (const auto& row : table) {
    CAPTURE(row.message);
    temp_directory directory;
    for (const auto& [name, content] : row.files) directory.write(name, content);
    const auto set = tensor_set::open(directory.path());
    REQUIRE_FALSE(set.has_value());
    CAPTURE(set.error().message);
    CHECK(set.error().code == errc::bad_checkpoint);
    CHECK(set.error().message.find(row.message) != std::string::npos);
  }
  CHECK(tensor_set::open("/nonexistent/directory").error().code == errc::bad_checkpoint);
}

TEST_CASE("opening a directory names every bad shard, not the first alone") {
  temp_directory directory;
  directory.write(
    "model.safetensors.index.json",
    index_text({{"a", "1.safetensors"}, {"b", "2.safetensors"}, {"c", "3.safetensors"}}));
  directory.write("1.safetensors", "short");
  directory.write("3.safetensors", "version https://git-lfs");
  std::vector<error> problems;
  const auto set = tensor_set::open(directory.path(), &problems);
  REQUIRE_FALSE(set.has_value());
  REQUIRE(problems.size() == 3);
  CHECK(problems[0].message == set.error().message);
  CHECK(problems[0].message.starts_with("1.safetensors: found 5 bytes"));
  CHECK(problems[1].message.starts_with("2.safetensors: found no such file"));
  CHECK(problems[2].message.starts_with("3.safetensors: found a Git-LFS pointer"));
}

TEST_CASE("40,000 mutants of safetensors files load or are refused, a fifth passes the header") {
  const auto plain = safetensors_file(two_tensors());
  std::vector<written_tensor> many;
  for (int i = 0; i < 12; ++i)
    many.push_back({fmt::format("layers.{}.ffn.experts.{}.w1.scale", i / 4, i % 4),
                    dtype::f8_e8m0,
                    {2, 4},
                    std::string(8, '\x7f')});
  const auto wide = safetensors_file(many);
  mutator mutate(42);
  int loaded = 0, refused = 0, past_header = 0;
  for (int i = 0; i < with_effort(40'000); ++i) {
    // A vector of the exact size: a sanitizer sees the first byte beyond it.
    const auto mutant = mutate.safetensors(i % 2 == 0 ? plain : wide);
    const std::vector<char> exact(mutant.begin(), mutant.end());
    const auto file = tensor_file::parse(std::as_bytes(std::span(exact)), "mutant.safetensors");
    if (mutant != (i % 2 == 0 ? plain : wide) && passes_header(mutant)) ++past_header;
    if (file) {
      ++loaded;
      std::size_t bytes = 0;
      for (const auto& tensor : file->tensors()) bytes += tensor.view.bytes();
      REQUIRE(bytes <= mutant.size());
      REQUIRE(sum_of_bytes(*file) <= bytes * 255);
    } else {
      ++refused;
      REQUIRE(file.error().code == errc::bad_checkpoint);
      REQUIRE(file.error().message.size() < 2000);
    }
  }
  MESSAGE("loaded ", loaded, ", refused ", refused, ", past the header ", past_header);
  CHECK(past_header >= 8'000);
  CHECK(loaded >= 4'000);
  CHECK(refused >= 8'000);
}

TEST_CASE("20,000 mutants of an index load or are refused") {
  const auto tensors = two_tensors();
  temp_directory directory;
  directory.write("model-00001-of-00002.safetensors", safetensors_file({tensors[0]}));
  directory.write("model-00002-of-00002.safetensors", safetensors_file({tensors[1]}));
  const auto valid = index_text({{"embed.weight", "model-00001-of-00002.safetensors"},
                                 {"norm.weight", "model-00002-of-00002.safetensors"}});
  mutator mutate(43);
  int loaded = 0, json = 0;
  for (int i = 0; i < with_effort(20'000); ++i) {
    const auto mutant = mutate.text(valid);
    directory.write("model.safetensors.index.json", mutant);
    const auto set = tensor_set::open(directory.path());
    if (mutant != valid && parse_json(mutant)) ++json;
    if (set) {
      ++loaded;
      REQUIRE(set->tensors().size() == 2);
    } else {
      REQUIRE(set.error().code == errc::bad_checkpoint);
      REQUIRE(set.error().message.size() < 2000);
    }
  }
  MESSAGE("loaded ", loaded, ", JSON ", json);
  CHECK(json >= 4'000);
  CHECK(loaded >= 500);
}
