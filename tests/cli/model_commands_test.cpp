#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/safetensors.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

const std::string tiny = DI_SOURCE_DIR "/examples/models/tiny-v41";

json::value object_of(const run_result& run) {
  const auto parsed = parse_json(run.out);
  REQUIRE(parsed);
  return *parsed;
}

/// A copy of the embedded model that a test may damage.
class model_copy {
public:
  model_copy() { std::filesystem::copy(tiny, path(), std::filesystem::copy_options::recursive); }
  std::string path() const { return place_.file("tiny-v41"); }
  std::string root() const { return place_.path(); }
  std::string file(const std::string& name) const { return path() + "/" + name; }

private:
  temp_directory place_;
};

}  // namespace

TEST_CASE("check finds the embedded model in order and lists what it holds") {
  const auto run = run_binary({"check", tiny});
  CHECK(run.code == 0);
  CHECK(run.err.empty());
  CHECK(holds(run.out, "719 tensors"));
  const auto report = object_of(run_binary({"check", "--json"}));
  CHECK(report.at("ok") == true);
  CHECK(report.at("findings").as_array().empty());
  CHECK(report.at("directory").as_string() == tiny);
}

TEST_CASE("check plans what fits where: fewer experts a rank leave more room") {
  const auto one = object_of(run_binary({"check", "--json", "--device-memory", "1GiB"}));
  const auto four =
    object_of(run_binary({"check", "--json", "--device-memory", "1GiB", "--ep-size", "4"}));
  CHECK(one.at("plan").at("ep_size") == 1);
  CHECK(one.at("plan").at("device_memory") == 1 << 30);
  CHECK(four.at("plan").at("experts_per_rank").as_int64() * 4 ==
        one.at("plan").at("experts_per_rank").as_int64());
  CHECK(four.at("plan").at("free_bytes").as_int64() > one.at("plan").at("free_bytes").as_int64());
  CHECK(holds(run_binary({"check", "--ep-size", "4"}).out, "weights of one rank of 4"));
}

TEST_CASE("check says that the weights do not fit, and that ranks are left without experts") {
  const auto small = run_binary({"check", tiny, "--device-memory", "1MiB"});
  CHECK(small.code == 1);  // a device was named, and they do not fit it
  CHECK(run_binary({"check", tiny, "--device-memory", "1GiB"}).code == 0);
  CHECK(holds(small.out, "warning    the weights do not fit: a rank needs "));
  const auto report = parse_json(run_binary({"check", "--json", "--device-memory", "1MiB"}).out);
  REQUIRE(report.has_value());
  CHECK(report->at("fits") == false);
  CHECK(object_of(run_binary({"check", "--json"})).at("fits") == true);
  CHECK(holds(run_binary({"check", tiny, "--ep-size", "1000"}).out,
              "warning    --ep-size 1000: the model has "));
  CHECK(run_binary({"check", tiny, "--ep-size", "4"}).out.find("--ep-size") == std::string::npos);
}

TEST_CASE("a checkpoint's directory may end in slashes, and a file is not a directory") {
  const auto slashes = run_binary({"check", tiny + "//"});
  CHECK(slashes.code == 0);
  CHECK(slashes.out == run_binary({"check", tiny}).out);
  const auto absent = run_binary({"check", "/nonexistent/"});
  CHECK(absent.code == 3);
  CHECK(absent.err.find("//") == std::string::npos);
  const auto file = run_binary({"check", tiny + "/config.json"});
  CHECK(file.code == 3);
  CHECK(
    holds(file.err, tiny + "/config.json: found a file, expected a directory, such as " + tiny));
}

TEST_CASE(
  "a damaged checkpoint is exit code 3, and the message names file, tensor and what is wrong") {
  const model_copy copy;
  const auto whole = read_file(copy.file("model.safetensors")).value();
  REQUIRE(write_file(copy.file("model.safetensors"), whole.substr(0, whole.size() - 100)));
  const auto cut = run_binary({"check", copy.path()});
  CHECK(cut.code == 3);
  CHECK(holds(cut.err, "model.safetensors"));
  CHECK(holds(cut.err, "problem"));
  auto renamed = whole;
  renamed.replace(renamed.find("\"norm.weight\""), 13, "\"morn.weight\"");
  REQUIRE(write_file(copy.file("model.safetensors"), renamed));
  const auto missing = run_binary({"check", copy.path(), "--json"});
  CHECK(missing.code == 3);
  const auto report = object_of(missing);
  CHECK(report.at("ok") == false);
  CHECK(holds(missing.out, "norm.weight"));
  CHECK(holds(missing.out, "morn.weight"));
  REQUIRE(write_file(copy.file("model.safetensors"), whole));
  REQUIRE(write_file(copy.file("tokenizer.json"), "{}"));
  const auto words = run_binary({"check", copy.path()});
  CHECK(words.code == 3);
  CHECK(holds(words.err, "tokenizer"));
}

TEST_CASE("DEEPINFER_MODELS names the folder of the embedded model") {
  const model_copy copy;
  const auto run =
    run_binary({"check", "--json"}, {.environment = {{"DEEPINFER_MODELS", copy.root()}}});
  CHECK(run.code == 0);
  CHECK(object_of(run).at("directory").as_string() == copy.path());
}

TEST_CASE("argmax of logits continues the embedded model's goldens, token for token") {
  const temp_directory place;
  const auto goldens = read_json_file(tiny + "/goldens.json").value();
  const auto& record = goldens.at("raw").as_array().at(0);
  json::array ids = record.at("prompt_ids").as_array();
  const auto prompt = ids.size();
  const auto& expected = record.at("expected_ids").as_array();
  ids.insert(ids.end(), expected.begin(), expected.end());
  auto list = to_text(ids);
  list = list.substr(1, list.size() - 2);
  const auto file = place.file("l.safetensors");
  const auto run = run_binary({"logits", "--ids", list, "--streams", "--out", file, "--json"});
  CAPTURE(run.err);
  REQUIRE(run.code == 0);
  const auto best = object_of(run).at("argmax").as_array();
  REQUIRE(best.size() == ids.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(best[prompt - 1 + i] == expected[i]);

  const auto stored = tensor_file::open(file);
  REQUIRE_MESSAGE(stored, stored.error().message);
  const auto tokens = static_cast<std::int64_t>(ids.size());
  CHECK(stored->tensors().size() == 9);
  const auto* logits = stored->find("logits");
  REQUIRE(logits);
  CHECK(logits->shape == std::vector<std::int64_t>{tokens, 2048});
  const auto* first = logits->as<float>();
  CHECK(std::max_element(first, first + 2048) - first == best[0].as_int64());
  for (int layer = 0; layer < 8; ++layer) {
    const auto* stream = stored->find("streams." + std::to_string(layer));
    REQUIRE(stream);
    CHECK(stream->shape == std::vector<std::int64_t>{tokens, 4, 128});
  }
}

TEST_CASE("exact and released arithmetic give different logits of the same shape") {
  const temp_directory place;
  for (const auto* numeric : {"exact", "released"})
    REQUIRE(
      run_binary({"logits", "--ids", "0,17,4", "--numeric", numeric, "--out", place.file(numeric)})
        .code == 0);
  const auto exact = read_file(place.file("exact")).value();
  const auto released = read_file(place.file("released")).value();
  CHECK(exact.size() == released.size());
  CHECK(exact != released);
}
