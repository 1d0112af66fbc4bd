#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;
namespace fs = std::filesystem;

namespace {

/// The least of shape S: 17 MB.
run_result make_small(const std::string& directory, const std::vector<std::string>& more = {}) {
  std::vector<std::string> args{"make-model", "--shape", "S",    "--layers", "4",      "--experts",
                                "6",          "--vocab", "3000", "--out",    directory};
  args.insert(args.end(), more.begin(), more.end());
  return run_binary(args);
}

/// A small model that several cases use.
const std::string& small_model() {
  static const temp_directory place;
  static const std::string directory = [] {
    const auto made = make_small(place.file("small"));
    REQUIRE_MESSAGE(made.code == 0, made.err);
    return place.file("small");
  }();
  return directory;
}

json::value object_of(const run_result& run) {
  REQUIRE_MESSAGE(run.code == 0, run.err);
  return parse_json(run.out).value();
}

}  // namespace

TEST_CASE("a made model checks clean, more ids than its tokenizer has included") {
  const auto run = run_binary({"check", small_model(), "--json"});
  const auto report = object_of(run);
  CHECK(report.at("ok") == true);
  CHECK(report.at("warnings").as_array().empty());
  const auto config = read_json_file(small_model() + "/config.json").value();
  CHECK(config.at("text_config").at("vocab_size") == 3000);
  CHECK(config.at("text_config").at("num_hidden_layers") == 4);
  // The embedded model counts 1718 for its own 2048 ids; what no id names is one class more.
  CHECK(config.at("text_config").at("engram_compressed_vocab_size") == 1719);
}

TEST_CASE("a made model answers with varied ids in both numerics, and scores them") {
  std::set<std::string> answers;
  for (const auto* numeric : {"exact", "released"}) {
    CAPTURE(numeric);
    const auto answer = object_of(run_binary(
      {"generate", "Once there was", "--model", small_model(), "--max-tokens", "32",
       "--temperature", "0", "--ignore-eos", "--logprobs", "1", "--numeric", numeric, "--json"}));
    const auto& ids = answer.at("ids").as_array();
    CHECK(ids.size() == 32);
    std::set<std::int64_t> different;
    for (const auto& id : ids) different.insert(id.as_int64());
    CHECK(different.size() >= 16);
    for (const auto& position : answer.at("logprobs").as_array()) {
      CHECK(position.at("logprob").to_number<double>() < 0);
      CHECK(position.at("logprob").to_number<double>() > -12);
    }
    answers.insert(to_text(ids));
  }
  CHECK(answers.size() == 2);
}

TEST_CASE("make-model says what it made, and makes the same again from the same seed") {
  const temp_directory place;
  const auto made = make_small(place.file("a") + "//", {"--seed", "0"});
  REQUIRE_MESSAGE(made.code == 0, made.err);
  CHECK(made.err.empty());
  CHECK(holds(made.out, place.file("a") + ": a random model of shape S, seed 0\n"));
  CHECK(holds(made.out, "  parameters  "));
  CHECK(holds(made.out, " per token, without the drafter\n"));
  CHECK(holds(made.out, "1 shard, "));
  const auto tensors = [](const std::string& directory) {
    return read_file(directory + "/model.safetensors").value();
  };
  CHECK(tensors(place.file("a")) == tensors(small_model()));
  REQUIRE(make_small(place.file("b"), {"--seed", "1"}).code == 0);
  CHECK(tensors(place.file("b")).size() == tensors(small_model()).size());
  CHECK(tensors(place.file("b")) != tensors(small_model()));
}

TEST_CASE("make-model replaces a checkpoint only when forced, and nothing else beside it") {
  const temp_directory place;
  for (const auto* name : {"notes.txt", "config.json", "model-00001-of-00002.safetensors",
                           "model.safetensors.index.json"})
    place.write(name, "old");
  const auto refused = make_small(place.path());
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, "--out: found files in " + place.path() +
                             ", expected an empty or a new directory, or --force"));
  CHECK(read_file(place.file("config.json")).value() == "old");
  const auto forced = make_small(place.path(), {"--force"});
  REQUIRE_MESSAGE(forced.code == 0, forced.err);
  CHECK(read_file(place.file("notes.txt")).value() == "old");
  CHECK_FALSE(fs::exists(place.file("model-00001-of-00002.safetensors")));
  CHECK_FALSE(fs::exists(place.file("model.safetensors.index.json")));
  CHECK(run_binary({"check", place.path()}).code == 0);
}

TEST_CASE("make-model names the flag, what it found and what it expected") {
  const temp_directory place;
  place.write("file", "x");
  const auto out = place.file("new");
  struct row {
    std::vector<std::string> args;
    int code;
    std::string message;
  };
  const row rows[] = {
    {{"--out", out}, 2, "--shape: found nothing, expected S or M"},
    {{"--shape", "XL", "--out", out}, 2, "--shape: found 'XL', expected S or M"},
    {{"--shape", "S"}, 2, "--out: found nothing, expected a directory to write"},
    {{"--shape", "S", "--out", out, "--layers", "3"}, 2, "--layers"},
    {{"--shape", "S", "--out", out, "--experts", "5"}, 2, "--experts"},
    {{"--shape", "S", "--out", out, "--vocab", "2047"}, 2, "--vocab"},
    {{"--shape", "S", "--out", out, "--seed", "-1"}, 2, "--seed"},
    {{"--shape", "S", "--out", place.file("file")},
     2,
     "--out: found a file at " + place.file("file") + ", expected a directory"},
    {{"--shape", "S", "--out", place.file("file/below")},
     2,
     "--out: " + place.file("file/below") + ": Not a directory"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.message);
    auto args = row.args;
    args.insert(args.begin(), "make-model");
    const auto ran = run_binary(args);
    CHECK(ran.code == row.code);
    CHECK(ran.out.empty());
    CHECK(holds(ran.err, row.message));
    CHECK_FALSE(fs::exists(out));
  }
}
