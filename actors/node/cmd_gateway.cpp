#include <functional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/node/commands.hpp"
#include "actors/node/serving.hpp"
#include "actors/service.hpp"
#include "config/gateway_settings.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

/// No handler of a gateway takes long: threads that rest need not look for what others have to do.
constexpr std::chrono::milliseconds idle_look{200};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    if (end > begin) out.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// Says when the first node takes requests, when the last has gone, and when one is back.
std::function<void(std::size_t, std::size_t)> ready_teller(const std::string& url,
                                                           const std::vector<std::string>& nodes) {
  return [url, names = fmt::format("{}", fmt::join(nodes, ", ")),
          was_ready = false](std::size_t up, std::size_t all) mutable {
    const bool is_ready = up > 0;
    if (std::exchange(was_ready, is_ready) == is_ready) return;
    if (is_ready)
      log(severity::info, "Ready: {} (requests go to {}; {} of {} answer)", url, names, up, all);
    else
      log(severity::warning, "not ready: no node takes requests any more, of {}", names);
  };
}

result<int> gateway(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(auto config, settings_of(context, flags));
  DI_TRY(const auto warnings, check_gateway_settings(config));
  for (const auto& text : warnings) warn(context, text);
  DI_TRY_VOID(check_files(config));
  peer_options peers;
  if (const auto found = flags.values.find("connect"); found != flags.values.end())
    for (const auto& list : found->second)
      for (auto& address : split(list)) peers.addresses.push_back(std::move(address));
  if (peers.addresses.empty())
    return fail(errc::bad_config, "--connect: found none, expected HOST:PORT of a node");
  peers.api_key = flags.text("node-key").value_or("");
  // Clients come over HTTP; the nodes have ports, and peers of their own.
  config.settings.actor.is_enabled = false;
  config.settings.actor.peers.clear();
  config.settings.actor.join.clear();
  signal_queue signals;
  log_banner(config);
  DI_TRY(const auto it, service::open(config, {}, {.idle_look = idle_look}));
  log(severity::info, "listening on {}, no node answers yet", it->url());
  peers.on_nodes = ready_teller(it->url(), peers.addresses);
  DI_TRY_VOID(it->connect(peers));
  return serve_until_stopped(*it, signals, config.settings.server.shutdown_timeout);
}

}  // namespace

command gateway_command() {
  auto connect = value_flag("connect", "actor port of a node; several with commas, or repeated",
                            "HOST:PORT,...", "none");
  connect.is_repeatable = true;
  return {.name = "gateway",
          .summary = "serve HTTP over nodes elsewhere, without a model of its own",
          .flags = {std::move(connect),
                    value_flag("node-key", "key that the nodes ask for", "KEY", "none")},
          .takes_settings = true,
          .uses_setting = is_of_gateway,
          .run = gateway};
}

}  // namespace deepinfer
