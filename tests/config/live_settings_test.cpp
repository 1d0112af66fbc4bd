#include <doctest/doctest.h>

#include <algorithm>

#include "config/live_settings.hpp"
#include "config/schema.hpp"
#include "runtime/base/json.hpp"

using namespace deepinfer;

namespace {

effective_config start_settings() {
  auto config = make_effective({});
  REQUIRE_MESSAGE(config, config.error().message);
  return *std::move(config);
}

}  // namespace

TEST_CASE("a change of a running node is read by the schema's rules and leaves the old settings") {
  const auto config = start_settings();
  const auto change = plan_change(config, "server.queue_timeout", "2m");
  REQUIRE_MESSAGE(change, change.error().message);
  CHECK(change->before == "10m");
  CHECK(change->after == "2m");
  CHECK(change->next.settings.server.queue_timeout == std::chrono::minutes(2));
  CHECK(config.settings.server.queue_timeout == std::chrono::seconds(600));
  const auto& values = change->next.values;
  const auto found = std::find_if(values.begin(), values.end(), [](const effective_value& it) {
    return it.key == "server.queue_timeout";
  });
  REQUIRE(found != values.end());
  CHECK(found->text == "2m");
  CHECK(found->origin == "config set");
}

TEST_CASE("every setting that may change while a node runs takes a value and keeps the others") {
  const std::pair<const char*, const char*> values[] = {
    {"server.max_queued_requests", "7"},
    {"server.queue_timeout", "1s"},
    {"server.routing", "round_robin"},
    {"server.fair_shares", "false"},
    {"engine.depth", "1"},
    {"engine.victim", "youngest"},
    {"engine.min_decode_gap", "9"},
    {"engine.max_prefill_run", "3"},
    {"observability.log_level", "error"},
    {"observability.stats_interval", "0s"},
    {"observability.log_requests", "full"},
  };
  CHECK(std::size(values) == live_setting_keys().size());
  auto config = start_settings();
  for (const auto& [key, text] : values) {
    CAPTURE(std::string(key));
    const auto change = plan_change(config, key, text);
    REQUIRE_MESSAGE(change, change.error().message);
    CHECK(change->before != change->after);
    config = change->next;
  }
  const auto& got = config.settings;
  CHECK(got.server.max_queued_requests == 7);
  CHECK(got.server.queue_timeout == std::chrono::seconds(1));
  CHECK(got.server.routing == routing_rule::round_robin);
  CHECK_FALSE(got.server.fair_shares);
  CHECK(got.engine.depth == 1);
  CHECK(got.engine.victim == victim_setting::youngest);
  CHECK(got.engine.min_decode_gap == 9);
  CHECK(got.engine.max_prefill_run == 3);
  CHECK(got.observability.level == severity::error);
  CHECK(got.observability.stats_interval == std::chrono::milliseconds(0));
  CHECK(got.observability.log_requests == request_logging::full);
  CHECK(got.server.port == 8000);
}

TEST_CASE("a change that cannot be made says why") {
  const auto config = start_settings();
  const auto message_of = [&](const char* key, const char* text, errc code) {
    const auto change = plan_change(config, key, text);
    REQUIRE(!change);
    CHECK(change.error().code == code);
    return change.error().message;
  };
  CHECK(message_of("server.port", "9", errc::invalid_argument)
          .starts_with("server.port: needs a restart; what may change"));
  CHECK(message_of("engine.dpeth", "1", errc::not_found) ==
        "key: found 'engine.dpeth', which is no setting; did you mean 'engine.depth'?");
  CHECK(message_of("log_level", "debug", errc::not_found) ==
        "key: found 'log_level', which is no setting; did you mean 'observability.log_level'?");
  CHECK(message_of("engine.depth", "4", errc::invalid_argument) ==
        "engine.depth: found '4', expected a whole number from 1 to 3");
  CHECK(message_of("server.routing", "random", errc::invalid_argument)
          .starts_with("server.routing: found 'random', expected one of prefix, "));
  CHECK(message_of("server.fair_shares", "", errc::invalid_argument)
          .starts_with("server.fair_shares: "));
}

TEST_CASE("what the engine has chosen is told as such, and what was given stays") {
  parsed_flags flags;
  flags.values["max-model-len"] = {"100"};
  auto config = make_effective({.file = {}, .environment = {}, .flags = flags}).value();
  note_chosen(config, "engine.num_kv_blocks", "256");
  note_chosen(config, "model.served_name", "a b");
  note_chosen(config, "model.path", "some/where");
  note_chosen(config, "model.max_model_len", "2048");
  const auto json = parse_json(print_effective_json(config));
  REQUIRE(json);
  const auto is = [&](const char* key, const json::value& value, std::string_view origin) {
    CAPTURE(key);
    CHECK(json->at(key).at("value") == value);
    CHECK(json->at(key).at("origin").as_string() == origin);
  };
  is("engine.num_kv_blocks", 256, "chosen at load");
  is("model.served_name", json::array{"a b"}, "chosen at load");
  is("model.path", "some/where", "chosen at load");
  is("model.max_model_len", 100, "--max-model-len");
  is("engine.kv_cache_memory", nullptr, "default");
  // A change of something else leaves it.
  const auto change = plan_change(config, "engine.depth", "1");
  REQUIRE(change);
  CHECK(print_effective(change->next).find("# chosen at load") != std::string::npos);
}

TEST_CASE("a prefix cache that replay has turned off says so, and leaves nothing to the host") {
  parsed_flags flags;
  flags.values = {{"replay", {"compact"}}, {"replay-keep-tokens", {"94"}}};
  const auto origin = [&] {
    const auto config = make_effective({.file = {}, .environment = {}, .flags = flags});
    REQUIRE_MESSAGE(config, config.error().message);
    CHECK_FALSE(config->settings.engine.prefix_cache);
    const auto shown = parse_json(print_effective_json(*config)).value().at("engine.prefix_cache");
    CHECK(shown.at("value") == false);
    return std::string(shown.at("origin").as_string());
  };
  CHECK(origin() == "because of engine.replay (--replay)");
  flags.values["prefix-cache"] = {"false"};
  CHECK(origin() == "--prefix-cache");
  flags.values.erase("prefix-cache");
  flags.values["prefix-host-blocks"] = {"4"};
  const auto kept = make_effective({.file = {}, .environment = {}, .flags = flags});
  REQUIRE_FALSE(kept);
  CHECK(kept.error().message ==
        "--prefix-host-blocks: engine.prefix_host_blocks and engine.replay: replay turns the "
        "prefix cache off, so nothing is kept");
}
