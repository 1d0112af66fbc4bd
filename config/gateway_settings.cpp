#include "config/gateway_settings.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace deepinfer {
namespace {

/// Beside all of `server` but one. The two of the engine are what a node is sent at a time, and how
/// much more loaded than others it may be for the sake of a prefix.
constexpr std::array<std::string_view, 13> of_gateway{
  "actor.heartbeat_interval",
  "actor.connection_timeout",
  "actor.tls_certificate",
  "actor.tls_key",
  "actor.tls_ca",
  "engine.max_num_seqs",
  "engine.max_num_batched_tokens",
  "observability.log_level",
  "observability.log_format",
  "observability.log_requests",
  "observability.stats_interval",
  "observability.metrics_prefix",
  "version",
};
/// The nodes watch the clients of what they compute.
constexpr std::string_view of_nodes = "server.slow_consumer_timeout";

}  // namespace

bool is_of_gateway(const std::string& key) {
  if (key.starts_with("server.")) return key != of_nodes;
  return std::find(of_gateway.begin(), of_gateway.end(), key) != of_gateway.end();
}

result<std::vector<std::string>> check_gateway_settings(const effective_config& config) {
  std::vector<std::string> warnings;
  for (const auto& it : config.values) {
    if (it.origin == "default" || is_of_gateway(it.key)) continue;
    if (it.origin.starts_with("--"))
      return fail(errc::bad_config,
                  fmt::format("{}: found it for a gateway, where it has no effect: set {} at the "
                              "nodes that the gateway sends requests to",
                              it.origin, it.key),
                  it.key);
    warnings.push_back(fmt::format("{}: {} has no effect on a gateway", it.origin, it.key));
  }
  return warnings;
}

}  // namespace deepinfer
