#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "config/effective.hpp"
#include "config/schema.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"

using namespace deepinfer;

namespace {

/// A file of settings that is there for one test.
class settings_file {
public:
  explicit settings_file(std::string_view text)
    : path_((std::filesystem::temp_directory_path() /
             ("deepinfer-settings-" + std::to_string(getpid()) + ".yaml"))
              .string()) {
    REQUIRE(write_file(path_, text));
  }
  settings_file(const settings_file&) = delete;
  settings_file& operator=(const settings_file&) = delete;
  ~settings_file() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }

private:
  std::string path_;
};

parsed_flags given(std::map<std::string, std::vector<std::string>> values) {
  parsed_flags flags;
  flags.values = std::move(values);
  return flags;
}

const effective_value& value_of(const effective_config& config, std::string_view key) {
  const auto found = std::find_if(config.values.begin(), config.values.end(),
                                  [&](const auto& value) { return value.key == key; });
  REQUIRE(found != config.values.end());
  return *found;
}

}  // namespace

TEST_CASE("without any source the defaults of the schema are those of the settings struct") {
  const auto config = make_effective({});
  REQUIRE_MESSAGE(config, config.error().message);
  const engine_settings wanted;
  const auto& got = config->settings;
  CHECK(got.server.max_queued_requests == wanted.server.max_queued_requests);
  CHECK(got.engine.max_num_seqs == wanted.engine.max_num_seqs);
  CHECK(got.engine.max_num_batched_tokens == wanted.engine.max_num_batched_tokens);
  CHECK(got.engine.block_size == wanted.engine.block_size);
  CHECK(got.engine.num_kv_blocks == wanted.engine.num_kv_blocks);
  CHECK(got.engine.kv_cache_memory == wanted.engine.kv_cache_memory);
  CHECK(got.engine.depth == wanted.engine.depth);
  CHECK(got.engine.chunk_size == wanted.engine.chunk_size);
  CHECK(got.engine.mixed_steps == wanted.engine.mixed_steps);
  CHECK(got.engine.device == wanted.engine.device);
  CHECK(got.engine.num_threads == wanted.engine.num_threads);
  CHECK(got.engine.numeric == wanted.engine.numeric);
  CHECK(got.engine.seed == wanted.engine.seed);
  CHECK(got.engine.sampling_policy == wanted.engine.sampling_policy);
  CHECK(got.engine.watchdog == wanted.engine.watchdog);
  CHECK(got.model.path == wanted.model.path);
  CHECK(got.model.served_names == wanted.model.served_names);
  CHECK(got.model.max_model_len == wanted.model.max_model_len);
  CHECK(got.observability.level == wanted.observability.level);
  CHECK(got.observability.format == wanted.observability.format);
  CHECK(got.observability.trace_file == wanted.observability.trace_file);
  CHECK(got.observability.trace_buffer_steps == wanted.observability.trace_buffer_steps);
  for (const auto& value : config->values) CHECK(value.origin == "default");
}

TEST_CASE("a flag beats the environment, that the file, that the default, and origins say so") {
  const settings_file file("engine:\n  depth: 1\n  chunk_size: 16\n  block_size: 32\n"
                           "model:\n  served_name: [from-file, too]\n");
  const auto config =
    make_effective({.file = file.path(),
                    .environment = {{"DEEPINFER_DEPTH", "2"},
                                    {"DEEPINFER_CHUNK_SIZE", "64"},
                                    {"DEEPINFER_SERVED_MODEL_NAME", "e1,e2"},
                                    {"DEEPINFER_MIXED_STEPS", "true"}},
                    .flags = given({{"depth", {"3"}}, {"served-model-name", {"x", "y"}}})});
  REQUIRE_MESSAGE(config, config.error().message);
  CHECK(config->settings.engine.depth == 3);
  CHECK(value_of(*config, "engine.depth").origin == "--depth");
  CHECK(config->settings.engine.chunk_size == 64);
  CHECK(value_of(*config, "engine.chunk_size").origin == "DEEPINFER_CHUNK_SIZE");
  CHECK(config->settings.engine.block_size == 32);
  CHECK(value_of(*config, "engine.block_size").origin == file.path() + ":4:15");
  CHECK(config->settings.engine.max_num_seqs == 256);
  CHECK(value_of(*config, "engine.max_num_seqs").origin == "default");
  CHECK(config->settings.model.served_names == std::vector<std::string>{"x", "y"});
  CHECK(config->settings.engine.mixed_steps);
  CHECK(config->warnings.empty());
}

TEST_CASE("a list in a variable is split at commas and replaces that of the file") {
  const settings_file file("model: { served_name: [a, b, c] }\n");
  const auto config = make_effective(
    {.file = file.path(), .environment = {{"DEEPINFER_SERVED_MODEL_NAME", "e1,e2"}}, .flags = {}});
  REQUIRE(config);
  CHECK(config->settings.model.served_names == std::vector<std::string>{"e1", "e2"});
}

TEST_CASE(
  "an unknown DEEPINFER_ variable is a warning with the nearest one, test ones are ignored") {
  const auto config = make_effective({.file = {},
                                      .environment = {{"DEEPINFER_DEPHT", "2"},
                                                      {"DEEPINFER_TEST_TOKENIZER", "x"},
                                                      {"DEEPINFER_MODELS", "/m"},
                                                      {"DEEPINFER_CONFIG", "c.yaml"}},
                                      .flags = {}});
  REQUIRE(config);
  CHECK(config->warnings == std::vector<std::string>{
                              "unknown variable DEEPINFER_DEPHT in the environment; did you mean "
                              "'DEEPINFER_DEPTH'?"});
  CHECK(config->settings.engine.depth == 2);
}

TEST_CASE("a wrong value names its source, whichever that is") {
  const auto by_variable =
    make_effective({.file = {}, .environment = {{"DEEPINFER_DEPTH", "nine"}}, .flags = {}});
  REQUIRE(!by_variable);
  CHECK(by_variable.error().code == errc::bad_config);
  CHECK(by_variable.error().message ==
        "DEEPINFER_DEPTH: found 'nine', expected a whole number from 1 to 3");
  const auto by_flag =
    make_effective({.file = {}, .environment = {}, .flags = given({{"depth", {"0"}}})});
  REQUIRE(!by_flag);
  CHECK(by_flag.error().message == "--depth: found '0', expected a whole number from 1 to 3");
  const auto absent =
    make_effective({.file = "/nonexistent/x.yaml", .environment = {}, .flags = {}});
  REQUIRE(!absent);
  CHECK(absent.error().code == errc::bad_config);
  CHECK(absent.error().message.starts_with("/nonexistent/x.yaml: "));
  const auto device =
    make_effective({.file = {}, .environment = {}, .flags = given({{"device", {"cuda"}}})});
  REQUIRE(!device);
  CHECK(device.error().code == errc::no_device);
  CHECK(exit_code_of(device.error().code) == 5);
}

TEST_CASE("settings that contradict each other are refused where both come from one source") {
  const auto both =
    make_effective({.file = {},
                    .environment = {},
                    .flags = given({{"num-kv-blocks", {"64"}}, {"kv-cache-memory", {"1GiB"}}})});
  REQUIRE(!both);
  CHECK(
    both.error().message ==
    "--num-kv-blocks: engine.num_kv_blocks excludes engine.kv_cache_memory (--kv-cache-memory)");
  const auto rows = make_effective(
    {.file = {},
     .environment = {},
     .flags = given({{"max-num-seqs", {"65"}}, {"max-num-batched-tokens", {"64"}}})});
  REQUIRE(!rows);
  CHECK(rows.error().message.find("65 sequences do not fit a step of 64 tokens") !=
        std::string::npos);
  const auto chunk = make_effective(
    {.file = {},
     .environment = {},
     .flags = given(
       {{"max-num-seqs", {"1"}}, {"chunk-size", {"65"}}, {"max-num-batched-tokens", {"64"}}})});
  REQUIRE(!chunk);
  CHECK(chunk.error().message.find("a chunk of 65 tokens does not fit a step of 64") !=
        std::string::npos);
}

TEST_CASE("of two settings that exclude each other the one of the stronger source stays") {
  const settings_file file("engine: { num_kv_blocks: 64 }\n");
  const auto config = make_effective(
    {.file = file.path(), .environment = {}, .flags = given({{"kv-cache-memory", {"1GiB"}}})});
  REQUIRE(config);
  CHECK(!config->settings.engine.num_kv_blocks);
  CHECK(config->settings.engine.kv_cache_memory == std::uint64_t{1} << 30);
}

TEST_CASE("the presets load, and hold what they are for") {
  const auto tiny =
    make_effective({.file = DI_SOURCE_DIR "/config/tiny.yaml", .environment = {}, .flags = {}});
  REQUIRE_MESSAGE(tiny, tiny.error().message);
  CHECK(tiny->settings.engine.device == device_kind::cpu);
  CHECK(tiny->settings.server.max_queued_requests == 64);
  CHECK(tiny->settings.model.served_names == std::vector<std::string>{"tiny"});
  const auto flash = make_effective(
    {.file = DI_SOURCE_DIR "/config/v4.1-flash.yaml", .environment = {}, .flags = {}});
  REQUIRE_MESSAGE(flash, flash.error().message);
  CHECK(flash->settings.engine.numeric == numeric_setting::released);
  CHECK(flash->settings.engine.kv_cache_memory == std::uint64_t{16} << 30);
  CHECK(flash->settings.engine.watchdog == std::chrono::minutes(10));
  CHECK(flash->settings.model.max_model_len == 131072);
  CHECK(flash->settings.observability.trace_buffer_steps == 8192);
  CHECK(flash->settings.observability.format == log_format::json);
}

TEST_CASE("the presets of serving load: one for others to use, one of two nodes on a machine") {
  ::setenv("CLIENT_KEY", "k-1", 1);
  const auto serve =
    make_effective({.file = DI_SOURCE_DIR "/config/serve.yaml", .environment = {}, .flags = {}});
  ::unsetenv("CLIENT_KEY");
  REQUIRE_MESSAGE(serve, serve.error().message);
  CHECK(serve->settings.server.host == "0.0.0.0");
  CHECK(serve->settings.server.api_keys == std::vector<std::string>{"clients=k-1"});
  CHECK(serve->settings.server.shutdown_timeout == std::chrono::seconds(60));
  CHECK(serve->settings.observability.format == log_format::json);
  const auto cluster = make_effective(
    {.file = DI_SOURCE_DIR "/config/cluster-local.yaml", .environment = {}, .flags = {}});
  REQUIRE_MESSAGE(cluster, cluster.error().message);
  CHECK(cluster->settings.actor.peers == std::vector<std::string>{"127.0.0.1:4243"});
  CHECK(cluster->settings.actor.node_name == "first");
  CHECK(cluster->settings.model.served_names.empty());  // or the other, without a file, has another
  CHECK(cluster->settings.engine.num_threads == 1);
}

TEST_CASE("the settings of serving come from file, variable and flag alike") {
  const settings_file file("server: { port: 9000, queue_timeout: 5s, cors_origin: [a, b] }\n"
                           "actor: { enabled: false }\n");
  const auto config =
    make_effective({.file = file.path(),
                    .environment = {{"DEEPINFER_QUEUE_TIMEOUT", "7s"},
                                    {"DEEPINFER_PEER", "one:1,two:2"},
                                    {"DEEPINFER_ROUTING", "least_load"}},
                    .flags = given({{"port", {"0"}}, {"log-requests", {"full"}}})});
  REQUIRE_MESSAGE(config, config.error().message);
  const auto& server = config->settings.server;
  CHECK(server.port == 0);
  CHECK(server.queue_timeout == std::chrono::seconds(7));
  CHECK(server.cors_origins == std::vector<std::string>{"a", "b"});
  CHECK(server.routing == routing_rule::least_load);
  CHECK_FALSE(config->settings.actor.is_enabled);
  CHECK(config->settings.actor.peers == std::vector<std::string>{"one:1", "two:2"});
  CHECK(config->settings.observability.log_requests == request_logging::full);
  CHECK(value_of(*config, "server.port").origin == "--port");
  CHECK(value_of(*config, "server.routing").origin == "DEEPINFER_ROUTING");
}

TEST_CASE("a key of a client is never printed, who holds it is") {
  const auto config = make_effective(
    {.file = {}, .environment = {}, .flags = given({{"api-key", {"secret-1", "bob=secret-2"}}})});
  REQUIRE_MESSAGE(config, config.error().message);
  CHECK(config->settings.server.api_keys == std::vector<std::string>{"secret-1", "bob=secret-2"});
  for (const auto& text : {print_effective(*config), print_effective_json(*config),
                           value_of(*config, "server.api_key").shown()}) {
    CHECK(text.find("secret") == std::string::npos);
    CHECK(text.find("bob=***") != std::string::npos);
  }
  // What is loaded again has no key at all, rather than one that everybody can read here.
  const settings_file file(print_effective(*config));
  const auto again = make_effective({.file = file.path(), .environment = {}, .flags = {}});
  REQUIRE_MESSAGE(again, again.error().message);
  CHECK(again->settings.server.api_keys.empty());
}

TEST_CASE("settings that cannot work together are refused, and both are named") {
  struct combination {
    std::map<std::string, std::vector<std::string>> flags;
    std::string message;
  };
  const combination table[] = {
    {{{"actor-tls-key", {"k.pem"}}}, "--actor-tls-key: actor.tls_key and actor.tls_certificate: "},
    {{{"actor-tls-key", {"k.pem"}}, {"actor-tls-certificate", {"c.pem"}}},
     "--actor-tls-certificate: actor.tls_certificate and actor.tls_ca: "},
    {{{"heartbeat-interval", {"5s"}}},
     "--heartbeat-interval: actor.heartbeat_interval and actor.connection_timeout: "},
    {{{"api-key", {"bob="}}}, "--api-key: server.api_key: found an empty key"},
    {{{"api-key", {"k", "=k"}}}, "--api-key: server.api_key: found an empty name"},
  };
  for (const auto& row : table) {
    CAPTURE(row.message);
    const auto config = make_effective({.file = {}, .environment = {}, .flags = given(row.flags)});
    REQUIRE(!config);
    CHECK(config.error().code == errc::bad_config);
    CHECK(config.error().message.starts_with(row.message));
  }
}

TEST_CASE("an empty text is no value of a setting, wherever it is written") {
  int counted = 0;
  for (const auto& info : all_settings()) {
    CAPTURE(info.key);
    const auto is_text = info.expected == "text";
    if (!is_text || info.flag.empty()) continue;
    ++counted;
    const auto refused = [](const config_sources& source, const std::string& place) {
      const auto config = make_effective(source);
      REQUIRE(!config);
      CHECK(config.error().code == errc::bad_config);
      CHECK(config.error().message.starts_with(place + ":"));
      CHECK(config.error().message.ends_with("found nothing, expected text"));
    };
    refused({.file = {}, .environment = {}, .flags = given({{info.flag, {""}}})}, "--" + info.flag);
    if (info.is_repeated) {
      refused({.file = {}, .environment = {}, .flags = given({{info.flag, {"x", ""}}})},
              "--" + info.flag);
    } else {
      refused({.file = {}, .environment = {{info.variable, ""}}, .flags = {}}, info.variable);
    }
    const auto dot = info.key.find('.');
    const auto name = info.key.substr(dot + 1);
    const settings_file file(info.key.substr(0, dot) + ": { " + name + ": " +
                             (info.is_repeated ? "[\"\"]" : "\"\"") + " }\n");
    refused({.file = file.path(), .environment = {}, .flags = {}}, file.path());
  }
  CHECK(counted >= 12);
}

TEST_CASE("names of metrics may begin with nothing, and settings that say so load again") {
  const auto first =
    make_effective({.file = {}, .environment = {}, .flags = given({{"metrics-prefix", {""}}})});
  REQUIRE_MESSAGE(first, first.error().message);
  CHECK(first->settings.observability.metrics_prefix.empty());
  const auto parsed = parse_json(print_effective_json(*first));
  REQUIRE(parsed);
  CHECK(parsed->at("observability.metrics_prefix").at("value") == "");
  const settings_file file(print_effective(*first));
  const auto second = make_effective({.file = file.path(), .environment = {}, .flags = {}});
  REQUIRE_MESSAGE(second, second.error().message);
  CHECK(second->settings.observability.metrics_prefix.empty());
}

TEST_CASE("printed settings load again to the same settings") {
  const auto first =
    make_effective({.file = DI_SOURCE_DIR "/config/v4.1-flash.yaml",
                    .environment = {},
                    .flags = given({{"trace-file", {"a \"b\" #c: {d}\t.json"}}, {"seed", {"7"}}})});
  REQUIRE_MESSAGE(first, first.error().message);
  const settings_file file(print_effective(*first));
  const auto second = make_effective({.file = file.path(), .environment = {}, .flags = {}});
  REQUIRE_MESSAGE(second, second.error().message);
  REQUIRE(first->values.size() == second->values.size());
  for (std::size_t i = 0; i < first->values.size(); ++i) {
    CAPTURE(first->values[i].key);
    CHECK(first->values[i].text == second->values[i].text);
  }
  CHECK(second->settings.observability.trace_file == "a \"b\" #c: {d}\t.json");
}

TEST_CASE("settings as JSON hold value and origin of every key") {
  const auto config =
    make_effective({.file = {}, .environment = {}, .flags = given({{"depth", {"1"}}})});
  REQUIRE(config);
  const auto parsed = parse_json(print_effective_json(*config));
  REQUIRE(parsed);
  const auto& object = parsed->as_object();
  CHECK(object.size() == all_settings().size());
  CHECK(object.at("engine.depth").at("value") == 1);
  CHECK(object.at("engine.depth").at("origin") == "--depth");
  CHECK(object.at("engine.seed").at("value").is_null());
}

TEST_CASE("in JSON numbers are numbers, switches booleans, lists arrays, and units stay text") {
  const auto config = make_effective({.file = {},
                                      .environment = {},
                                      .flags = given({{"mixed-steps", {"true"}},
                                                      {"seed", {"9223372036854775807"}},
                                                      {"kv-cache-memory", {"8GiB"}},
                                                      {"served-model-name", {"a b", "c"}},
                                                      {"trace-file", {"x y.json"}}})});
  REQUIRE_MESSAGE(config, config.error().message);
  const auto parsed = parse_json(print_effective_json(*config));
  REQUIRE(parsed);
  const auto value = [&](std::string_view key) { return parsed->at(key).at("value"); };
  CHECK(value("engine.mixed_steps") == true);
  CHECK(value("engine.seed") == 9223372036854775807);
  CHECK(value("engine.chunk_size") == 2048);
  CHECK(value("engine.kv_cache_memory") == "8GiB");
  CHECK(value("engine.watchdog") == "1m");
  CHECK(value("engine.device") == "auto");
  CHECK(value("model.served_name") == json::array{"a b", "c"});
  CHECK(value("observability.trace_file") == "x y.json");
  CHECK(value("model.max_model_len").is_null());
}

TEST_CASE("the default settings, printed, load again to the same settings") {
  const auto first = make_effective({});
  REQUIRE(first);
  const settings_file file(print_effective(*first));
  const auto second = make_effective({.file = file.path(), .environment = {}, .flags = {}});
  REQUIRE_MESSAGE(second, second.error().message);
  REQUIRE(first->values.size() == second->values.size());
  for (std::size_t i = 0; i < first->values.size(); ++i)
    CHECK(first->values[i].text == second->values[i].text);
}

TEST_CASE("a value beyond its limits is refused with both limits, from file, variable and flag") {
  struct limit {
    std::string key, flag, found, expected;
  };
  // clang-format off
  const limit table[] = {
    {"model: { max_model_len: ", "max-model-len", "1", "a whole number from 2 to 16777216"},
    {"model: { max_model_len: ", "max-model-len", "16777217", "a whole number from 2 to 16777216"},
    {"server: { max_queued_requests: ", "max-queued-requests", "2147483647", "a whole number from 1 to 1048576"},
    {"engine: { num_kv_blocks: ", "num-kv-blocks", "268435457", "a whole number from 1 to 268435456"},
    {"engine: { kv_cache_memory: ", "kv-cache-memory", "65TiB", "a size such as 8GiB or 512MiB, from 1 to 64TiB"},
    {"engine: { kv_cache_memory: ", "kv-cache-memory", "9999TiB", "a size such as 8GiB or 512MiB, from 1 to 64TiB"},
    {"engine: { seed: ", "seed", "9223372036854775808", "a whole number from 0 to 9223372036854775807"},
    {"engine: { seed: ", "seed", "18446744073709551616", "a whole number from 0 to 9223372036854775807"},
    {"engine: { watchdog: ", "watchdog", "25h", "a duration such as 500ms, 30s or 2m, from 1ms to 24h"},
    {"engine: { watchdog: ", "watchdog", "2501999792h", "a duration such as 500ms, 30s or 2m, from 1ms to 24h"},
    {"engine: { watchdog: ", "watchdog", "0", "a duration such as 500ms, 30s or 2m, from 1ms to 24h"},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.flag);
    const auto wanted = "found '" + row.found + "', expected " + row.expected;
    const settings_file file(row.key + row.found + " }\n");
    auto variable = "DEEPINFER_" + row.flag;
    for (auto& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    const std::pair<std::string, config_sources> sources[] = {
      {file.path(), {.file = file.path(), .environment = {}, .flags = {}}},
      {variable, {.file = {}, .environment = {{variable, row.found}}, .flags = {}}},
      {"--" + row.flag,
       {.file = {}, .environment = {}, .flags = given({{row.flag, {row.found}}})}}};
    for (const auto& [place, source] : sources) {
      const auto refused = make_effective(source);
      REQUIRE(!refused);
      CHECK(refused.error().code == errc::bad_config);
      CHECK(refused.error().message.starts_with(place + ":"));
      CHECK(refused.error().message.ends_with(wanted));
    }
  }
  CHECK(make_effective({.file = {}, .environment = {}, .flags = given({{"watchdog", {"24h"}}})}));
}

TEST_CASE("every number, time and size among the settings has limits of its own, and says them") {
  int counted = 0;
  for (const auto& info : all_settings()) {
    CAPTURE(info.key);
    const bool is_number =
      info.value_name == "N" || info.value_name == "TIME" || info.value_name == "SIZE";
    if (!is_number || info.key == "version") continue;
    ++counted;
    CHECK(info.expected.find(" to ") != std::string::npos);
    CHECK(info.expected.find(" to 2147483647") == std::string::npos);
    // A seed is any that a request over HTTP can bring.
    CHECK((info.expected.find(" to 9223372036854775807") == std::string::npos ||
           info.key == "engine.seed"));
    CHECK(info.expected.find(" to 18446744073709551615") == std::string::npos);
  }
  CHECK(counted >= 12);
}

TEST_CASE("what all variables share makes an unknown one no nearer to a known one") {
  const auto config = make_effective(
    {.file = {},
     .environment = {{"DEEPINFER_FOO", "1"}, {"DEEPINFER_MODLE", "x"}, {"DEEPINFER_", "x"}},
     .flags = {}});
  REQUIRE(config);
  CHECK(config->warnings == std::vector<std::string>{
                              "unknown variable DEEPINFER_ in the environment",
                              "unknown variable DEEPINFER_FOO in the environment",
                              "unknown variable DEEPINFER_MODLE in the environment; did you mean "
                              "'DEEPINFER_MODEL'?"});
}

TEST_CASE("config/flags.md is what the schema says") {
  const auto text = read_file(DI_SOURCE_DIR "/config/flags.md");
  REQUIRE(text);
  const bool is_current = *text == settings_reference();
  CHECK_MESSAGE(is_current, "refresh it: deepinfer config docs > config/flags.md");
}

TEST_CASE("every setting has a flag of its own, and a default or what an absent value means") {
  std::vector<std::string> flags;
  for (const auto& info : all_settings()) {
    CAPTURE(info.key);
    CHECK(info.default_text.empty() != info.absent.empty());
    if (info.flag.empty()) continue;
    CHECK(std::find(flags.begin(), flags.end(), info.flag) == flags.end());
    flags.push_back(info.flag);
  }
  CHECK(flags.size() == all_settings().size() - 1);  // `version` is a key of the file alone
}
