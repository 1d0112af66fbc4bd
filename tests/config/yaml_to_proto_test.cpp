#include <doctest/doctest.h>

#include <filesystem>

#include "config/yaml_to_proto.hpp"
#include "messages/engine.pb.h"
#include "runtime/base/file.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;

namespace {

result<void> load(std::string_view text, v1::EngineConfig& out, yaml_places* places = nullptr,
                  const variable_lookup& lookup = {}) {
  return yaml_to_proto(text, "f.yaml", out, places, lookup);
}

}  // namespace

TEST_CASE(
  "yaml maps, lists, units, choices and booleans arrive in the message, each with its place") {
  v1::EngineConfig config;
  yaml_places places;
  const auto done = load("version: 1\n"
                         "model: { path: ./m, served_name: [a, 'b c'], max_model_len: 8192 }\n"
                         "server:\n"
                         "  max_queued_requests: 7\n"
                         "engine:\n"
                         "  kv_cache_memory: 8GiB\n"
                         "  watchdog: 1.5s\n"
                         "  mixed_steps: on\n"
                         "  numeric: released\n"
                         "  seed: 9223372036854775807\n",
                         config, &places);
  REQUIRE_MESSAGE(done, done.error().message);
  CHECK(config.model().path() == "./m");
  REQUIRE(config.model().served_name_size() == 2);
  CHECK(config.model().served_name(1) == "b c");
  CHECK(config.server().max_queued_requests() == 7);
  CHECK(config.engine().watchdog() == 1500);
  CHECK(config.engine().kv_cache_memory() == std::int64_t{8} << 30);
  CHECK(config.engine().mixed_steps());
  CHECK(config.engine().numeric() == v1::NUMERIC_RELEASED);
  CHECK(config.engine().seed() == 9223372036854775807u);
  CHECK(!config.engine().has_num_kv_blocks());
  CHECK(places["engine.kv_cache_memory"] == "f.yaml:6:20");
  CHECK(places["model.served_name"] == "f.yaml:2:34");
  CHECK(!places.contains("engine.depth"));
}

TEST_CASE("an empty file, and one of comments only, set nothing") {
  for (const auto* text : {"", "\n\n", "# nothing\n", "---\n", "~\n"}) {
    CAPTURE(text);
    v1::EngineConfig config;
    CHECK(load(text, config));
    CHECK(config.ByteSizeLong() == 0);
  }
}

TEST_CASE("a section that holds only comments is an empty one") {
  v1::EngineConfig config;
  const auto done =
    load("version: 1\nmodel:\n  # path: (none)\nengine:\n  depth: 3\nserver:\n", config);
  REQUIRE_MESSAGE(done, done.error().message);
  CHECK(config.engine().depth() == 3);
  CHECK(!config.model().has_max_model_len());
}

TEST_CASE("a yaml mistake names file, line, column, what was found and what was expected") {
  struct mistake {
    std::string text;
    std::string message;
  };
  // clang-format off
  const mistake table[] = {
    {"engine: { dpeth: 2 }\n", "f.yaml:1:11: engine: unknown key 'dpeth'; did you mean 'depth'?"},
    {"engin:\n  depth: 2\n", "f.yaml:1:1: unknown key 'engin'; did you mean 'engine'?"},
    {"groups:\n  - { name: a }\n", "f.yaml:1:1: unknown key 'groups'; known are version, model, server, actor, engine, observability"},
    {"engine:\n  ep_size: 5\n", "f.yaml:2:3: engine: unknown key 'ep_size'"},
    {"engine:\n  depth: 4\n", "f.yaml:2:10: engine.depth: found '4', expected a whole number from 1 to 3"},
    {"engine:\n  depth: two\n", "f.yaml:2:10: engine.depth: found 'two', expected a whole number from 1 to 3"},
    {"engine:\n  depth: 2.0\n", "f.yaml:2:10: engine.depth: found '2.0'"},
    {"engine:\n  depth: '2'\n", "f.yaml:2:10: engine.depth: found the text \"2\", expected a whole number from 1 to 3"},
    {"engine:\n  depth: [2]\n", "f.yaml:2:10: engine.depth: found a list, expected a whole number from 1 to 3"},
    {"engine:\n  depth: { a: 1 }\n", "f.yaml:2:10: engine.depth: found a map"},
    {"engine:\n  depth:\n  chunk_size: 1\n", "f.yaml:2:3: engine.depth: found nothing, expected a whole number from 1 to 3"},
    {"engine: 3\n", "f.yaml:1:9: engine: found a single value, expected a map of settings"},
    {"- engine\n", "f.yaml:1:1: found a list, expected a map of settings"},
    {"just text\n", "f.yaml:1:1: found a single value, expected a map of settings"},
    {"engine:\n  depth: 1\n  depth: 2\n", "f.yaml:3:3: engine.depth: the key is there twice"},
    {"engine: {}\nengine: {}\n", "f.yaml:2:1: engine: the key is there twice"},
    {"engine:\n  mixed_steps: maybe\n", "f.yaml:2:16: engine.mixed_steps: found 'maybe', expected true or false"},
    {"engine:\n  numeric: exakt\n", "f.yaml:2:12: engine.numeric: found 'exakt', expected one of exact, released, fast; did you mean 'exact'?"},
    {"engine:\n  watchdog: 30\n", "f.yaml:2:13: engine.watchdog: found '30', expected a duration such as 500ms, 30s or 2m, from 1ms to 24h"},
    {"engine:\n  watchdog: 0s\n", "f.yaml:2:13: engine.watchdog: found '0s'"},
    {"engine:\n  kv_cache_memory: 8Gig\n", "f.yaml:2:20: engine.kv_cache_memory: found '8Gig', expected a size such as 8GiB or 512MiB, from 1 to 64TiB"},
    {"engine:\n  max_num_seqs: 99999999999999999999\n", "f.yaml:2:17: engine.max_num_seqs: found '99999999999999999999'"},
    {"engine:\n  seed: -1\n", "f.yaml:2:9: engine.seed: found '-1', expected a whole number from 0 to 9223372036854775807"},
    {"model:\n  served_name: [a, [b]]\n", "f.yaml:2:20: model.served_name: found a list, expected text"},
    {"observability:\n  log_level: loud\n", "f.yaml:2:14: observability.log_level: found 'loud', expected one of error, warning, info, debug, off"},
    {"server:\n  shutdown_time: 30s\n", "f.yaml:2:3: server: unknown key 'shutdown_time'"},
    {"model:\n  quantization: fp8\n", "f.yaml:2:3: model: unknown key 'quantization'"},
    {"? [a]\n: 1\n", "f.yaml:1:3: found a list as a key, expected text"},
    {"engine: { depth: 2\n", "f.yaml:"},
    {"a: b: c\n", "f.yaml:1:5: "},
    {"engine: *gone\n", "f.yaml:1:"},
    {"\tengine: 1\n", "f.yaml:1:"},
    {"version: 2\n", "f.yaml:1:10: version: found '2', expected 1"},
    {"version: 1\n---\nversion: 1\n", "f.yaml:2:1: found text after the end of the document, expected none"},
    {", engine: {}\n", "f.yaml:1:1: found text after the end of the document, expected none"},
    {"]\n", "f.yaml:1:1: illegal flow end"},
    {"model: { path: '${HOME}/m' }\n", "f.yaml:1:16: model.path: found '${HOME}/m', but ${...} is not replaced in this setting"},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.text);
    v1::EngineConfig config;
    const auto done = load(row.text, config);
    REQUIRE(!done);
    CHECK(done.error().code == errc::bad_config);
    CHECK(done.error().message.substr(0, row.message.size()) == row.message);
  }
}

TEST_CASE("a device that this build lacks is no_device, not a mistake of the file") {
  v1::EngineConfig config;
  const auto done = load("engine: { device: cuda }\n", config);
  REQUIRE(!done);
  CHECK(done.error().code == errc::no_device);
  CHECK(done.error().message ==
        "f.yaml:1:19: engine.device: 'cuda': this build has no CUDA device; use cpu or auto");
}

TEST_CASE("variables are replaced only where the schema says so, and an unset one is an error") {
  const variable_lookup lookup = [](const std::string& name) -> std::optional<std::string> {
    return name == "DIR" ? std::optional<std::string>("/traces") : std::nullopt;
  };
  v1::EngineConfig config;
  REQUIRE(load("observability: { trace_file: '${DIR}/a${DIR}.json' }\n", config, nullptr, lookup));
  CHECK(config.observability().trace_file() == "/traces/a/traces.json");
  const auto unset = load("observability: { trace_file: '${NOPE}/a' }\n", config, nullptr, lookup);
  REQUIRE(!unset);
  CHECK(unset.error().message ==
        "f.yaml:1:30: observability.trace_file: the environment has no variable 'NOPE'");
  CHECK(!load("observability: { trace_file: 'a${DIR' }\n", config, nullptr, lookup));
}

TEST_CASE("size, depth and alias limits end a hostile file with an error") {
  v1::EngineConfig config;
  const auto large = load(std::string((1 << 20) + 1, '#'), config);
  REQUIRE(!large);
  CHECK(large.error().message == "f.yaml: 1048577 bytes, at most 1048576 are read");
  CHECK(!load(std::string(100'000, '['), config));
  CHECK(!load("model: { served_name: &a [*a] }\n", config));
  std::string list = "[x";
  for (int i = 0; i < 100'001; ++i) list += ",x";
  const auto many = load("model: { served_name: " + list + "] }\n", config);
  REQUIRE(!many);
  CHECK(many.error().message.find("more than 100000 values") != std::string::npos);
}

TEST_CASE("20000 mutants of valid settings files load or give an error that starts with the name") {
  const std::string root = DI_SOURCE_DIR "/config/";
  const std::string valid[] = {
    read_file(root + "tiny.yaml").value(), read_file(root + "v4.1-flash.yaml").value(),
    "version: 1\nmodel:\n  path: &p \"a\\x41b\"\n  served_name:\n    - x\n"
    "    - *p\nserver:\n  max_queued_requests: 9\nengine:\n  depth: 3\n  "
    "mixed_steps: true\n  seed: 7\n  watchdog: 30s\nobservability:\n  trace_file: >-\n"
    "    long\n    name\n  log_level: debug\n"};
  mutator mutate(41);
  int past_the_parser = 0, loaded = 0;
  const int mutants = with_effort(20'000);
  for (int i = 0; i < mutants; ++i) {
    const auto text = mutate.text(valid[i % 3]);
    v1::EngineConfig config;
    yaml_places places;
    const auto done = load(text, config, &places);
    if (!done) {
      CAPTURE(text);
      REQUIRE(done.error().message.starts_with("f.yaml:"));
    }
    // A place is noted once the document has been parsed and its first setting was found.
    past_the_parser += done || !places.empty();
    loaded += done.has_value();
  }
  MESSAGE("past the parser: ", past_the_parser, ", loaded: ", loaded, " of ", mutants);
  CHECK(past_the_parser >= mutants / 5);
  CHECK(loaded < mutants);
}
