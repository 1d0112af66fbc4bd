#include "config/gateway_settings.hpp"

#include <doctest/doctest.h>

#include "config/live_settings.hpp"
#include "config/schema.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

TEST_CASE("of the settings a gateway has doors, queue, log and links to nodes") {
  for (const auto* key : {"server.port", "server.max_queued_requests", "actor.heartbeat_interval",
                          "actor.tls_ca", "engine.max_num_seqs", "observability.log_requests"})
    CHECK_MESSAGE(is_of_gateway(key), key);
  for (const auto* key : {"actor.port", "actor.peers", "actor.node_name", "engine.depth",
                          "model.path", "observability.trace_file", "server.slow_consumer_timeout"})
    CHECK_MESSAGE(!is_of_gateway(key), key);
  // Each key that is named there is one.
  std::size_t known = 0;
  for (const auto& info : all_settings()) known += is_of_gateway(info.key);
  CHECK(known >= 30);
}

TEST_CASE(
  "a flag without an effect on a gateway is an error, a line of a file or a variable a warning") {
  config_sources sources;
  sources.flags.values["port"] = {"0"};
  auto fits = check_gateway_settings(make_effective(sources).value());
  REQUIRE(fits);
  CHECK(fits->empty());

  const temp_directory place;
  place.write("both.yaml", "actor:\n  port: 77\nserver:\n  port: 78\n");
  sources.file = place.file("both.yaml");
  sources.environment["DEEPINFER_DEPTH"] = "1";
  fits = check_gateway_settings(make_effective(sources).value());
  REQUIRE(fits);
  REQUIRE(fits->size() == 2);
  CHECK((*fits)[0] == place.file("both.yaml") + ":2:9: actor.port has no effect on a gateway");
  CHECK((*fits)[1] == "DEEPINFER_DEPTH: engine.depth has no effect on a gateway");

  sources.flags.values["actor-port"] = {"5"};
  const auto wrong = check_gateway_settings(make_effective(sources).value());
  REQUIRE(!wrong);
  CHECK(wrong.error().code == errc::bad_config);
  CHECK(wrong.error().param == "actor.port");
  CHECK(wrong.error().message.find("--actor-port: found it for a gateway") == 0);
}
