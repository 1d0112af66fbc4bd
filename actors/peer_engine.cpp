#include "actors/peer_engine.hpp"

#include <chrono>
#include <mutex>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/client_state.hpp"
#include "actors/model_match.hpp"
#include "actors/node_census.hpp"
#include "actors/node_state.hpp"
#include "actors/remote_link.hpp"
#include "actors/snapshot_gatherer.hpp"
#include "config/gateway_settings.hpp"
#include "messages/wire.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

constexpr std::chrono::seconds relay_timeout{10};

/// Answers verbs, and hears from the links which nodes take requests.
using control_relay_actor = control_actor::extend_with<request_watcher_actor>;

/// What the nodes behind a gateway have in common: the first that was up says it for the others,
/// until none is; then the next to be judged does, which may be one that was refused. Metrics keep
/// its name until another takes its place. Links ask, each on its actor's thread.
class common_model {
public:
  explicit common_model(std::shared_ptr<metrics> counts) : counts_(std::move(counts)) {}

  std::optional<std::string> misfit(const model_info& there) {
    const std::lock_guard lock(mutex_);
    if (!known_) {
      known_ = there;
      if (!there.names.empty()) counts_->name_model(there.names.front());
    }
    return mismatch_of(*known_, there);
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    known_.reset();
  }

private:
  std::shared_ptr<metrics> counts_;
  std::mutex mutex_;
  std::optional<model_info> known_;
};

struct relay_links {
  relay_links() = default;

  std::vector<remote_link_actor> nodes;
  std::vector<std::string> addresses;  ///< of the nodes
  router_actor door;
  std::shared_ptr<live_config> config;
  std::shared_ptr<metrics> counts;
  std::shared_ptr<common_model> model;
  std::function<void(std::size_t, std::size_t)> on_nodes;  ///< null: nobody is told
};

struct control_relay_state {
  static inline const char* name = "control_relay";

  control_relay_state() = default;

  relay_links links;
  std::vector<bool> is_up;           ///< by node
  std::vector<std::string> reasons;  ///< why it is not
  std::chrono::steady_clock::time_point running_since = std::chrono::steady_clock::now();
};

using pointer = control_relay_actor::stateful_pointer<control_relay_state>;

/// Whom to ask about the model: nodes that take requests, as others may have another; where none
/// does, any.
std::vector<remote_link_actor> speakers(const control_relay_state& state) {
  std::vector<remote_link_actor> out;
  for (std::size_t i = 0; i < state.is_up.size(); ++i)
    if (state.is_up[i]) out.push_back(state.links.nodes[i]);
  return out.empty() ? state.links.nodes : out;
}

/// Asks one node after the other until one answers for itself: all of it are questions, so that one
/// whose node has gone meanwhile may be asked again.
void relay(pointer self, std::vector<remote_link_actor> nodes, const std::string& verb,
           const std::string& bytes, caf::typed_response_promise<std::string> promise) {
  const auto node = nodes.front();
  nodes.erase(nodes.begin());
  ask(self, node, relay_timeout, call_atom::value, verb, bytes)
    .then([promise](std::string& answer) mutable { promise.deliver(std::move(answer)); },
          [self, nodes = std::move(nodes), verb, bytes, promise](caf::error& failure) mutable {
            if (may_differ_elsewhere(from_caf(failure).code) && !nodes.empty())
              relay(self, std::move(nodes), verb, bytes, promise);
            else
              promise.deliver(std::move(failure));
          });
}

node_census count_nodes(pointer self) {
  const auto& state = self->state;
  node_census nodes;
  for (std::size_t i = 0; i < state.is_up.size(); ++i)
    nodes.note(state.links.addresses[i], state.is_up[i]);
  nodes.tell(state.links.counts.get());
  if (nodes.up() == 0) state.links.model->forget();
  return nodes;
}

void tell_nodes(pointer self, std::size_t up) {
  const auto& state = self->state;
  if (state.links.on_nodes) state.links.on_nodes(up, state.is_up.size());
}

void on_ready(pointer self, std::int32_t node, bool is_ready, const std::string& why) {
  auto& state = self->state;
  const auto at = static_cast<std::size_t>(node);
  state.reasons.at(at) = is_ready ? "" : why;
  std::vector<bool>::reference known = state.is_up.at(at);
  if (known == is_ready) return;
  known = is_ready;
  const auto up = count_nodes(self).up();
  const auto& name = state.links.addresses[at];
  if (is_ready)
    log(severity::info, "node {} takes requests, {} of {} do", name, up, state.is_up.size());
  else
    log(severity::warning, "node {} takes no requests, {} of {} do: {}", name, up,
        state.is_up.size(), why);
  tell_nodes(self, up);
}

/// What a gateway has no use of is its nodes' to change.
result<std::string> change_setting(const relay_links& links, const std::string& bytes) {
  DI_TRY(const auto asked, from_wire<config_change>(bytes));
  DI_TRY(const auto change, links.config->plan(asked.key, asked.value));
  if (!is_of_gateway(change.key))
    return fail(errc::invalid_argument,
                fmt::format("{}: a gateway has no use of it; ask its nodes: {}", change.key,
                            fmt::join(links.addresses, ", ")),
                "key");
  DI_TRY(const auto said, carry_out(*links.config, change, [&links](const engine_settings& now) {
           tell_from_outside(links.door, now);
         }));
  return to_wire(text_reply{said});
}

void set_setting(pointer self, const std::string& bytes,
                 caf::typed_response_promise<std::string> promise) {
  auto said = change_setting(self->state.links, bytes);
  if (said)
    promise.deliver(*std::move(said));
  else
    promise.deliver(to_caf(said.error()));
}

verb_actor spawn_gatherer(pointer self) {
  const auto& state = self->state;
  snapshot_sources sources;
  sources.door = state.links.door;
  sources.nodes = state.links.nodes;
  sources.running_since = state.running_since;
  for (std::size_t i = 0; i < state.is_up.size(); ++i) {
    auto& part = sources.known.emplace_back();
    part.address = state.links.addresses[i];
    part.takes_requests = state.is_up[i];
    part.reason = state.reasons[i];
  }
  return self->spawn(snapshot_gatherer, std::move(sources));
}

/// The gateway's own settings and counts; of models the nodes know.
control_relay_actor::behavior_type control_relay(pointer self, relay_links links) {
  auto& state = self->state;
  state.links = std::move(links);
  state.is_up.resize(state.links.nodes.size());
  state.reasons.resize(state.links.nodes.size());
  for (std::size_t i = 0; i < state.is_up.size(); ++i)
    tell(self, state.links.nodes[i], watch_atom::value, static_cast<std::int32_t>(i),
         request_watcher_actor(self));
  tell_nodes(self, count_nodes(self).up());
  return {
    [self](call_atom, const std::string& verb, const std::string& bytes) {
      if (verb == verb::snapshot)
        return caf::result<std::string>(
          self->delegate(spawn_gatherer(self), call_atom::value, verb, bytes));
      auto promise = self->make_response_promise<std::string>();
      const auto& own = self->state.links;
      if (verb == verb::config_get)
        promise.deliver(to_wire(text_reply{own.config->json()}));
      else if (verb == verb::metrics)
        promise.deliver(to_wire(text_reply{own.counts->text()}));
      else if (verb == verb::config_set)
        set_setting(self, bytes, promise);
      else
        relay(self, speakers(self->state), verb, bytes, promise);
      return caf::result<std::string>(promise);
    },
    [](started_atom, std::int32_t, const std::string&, std::int32_t) {},
    [](ended_atom, std::int32_t, const std::string&, const request_end&) {},
    [](returned_atom, std::int32_t, const std::string&) {},
    [self](ready_atom, std::int32_t node, bool is_ready, const std::string& why) {
      on_ready(self, node, is_ready, why);
    },
    [](slots_atom, std::int32_t, std::int32_t) {},
    [](gone_atom, std::int32_t, const std::string&) {},
    [self](stop_atom) {
      for (const auto& link : self->state.links.nodes) tell(self, link, stop_atom::value);
      self->quit();
    },
  };
}

}  // namespace

result<std::unique_ptr<node>> open_peers(std::shared_ptr<live_config> config,
                                         const peer_options& options, node_parts parts) {
  constexpr std::string_view place = "--connect";
  DI_TRY(auto read, read_addresses(options.addresses, place));
  for (const auto& text : read.warnings) log(severity::warning, "{}", text);
  auto& addresses = read.addresses;
  if (addresses.empty()) return fail(errc::bad_config, fmt::format("{}: found no address", place));
  const auto settings = config->settings();
  node_facts facts;
  facts.model_name = served_name(settings, {});
  auto out =
    node::start(settings, std::vector<rank_machines>{}, std::move(facts), std::move(parts));
  auto& inside = out->inside();
  relay_links links;
  links.config = std::move(config);
  links.on_nodes = options.on_nodes;
  links.door = inside.door;
  links.counts = inside.parts.counts;
  links.model = std::make_shared<common_model>(inside.parts.counts);
  for (auto& address : addresses) {
    remote_link_options to;
    const auto name = format_host_address(address);
    to.to = std::move(address);
    to.api_key = options.api_key;
    to.name = "gateway";
    to.misfit = [model = links.model](const model_info& there) { return model->misfit(there); };
    auto link = inside.system().spawn(remote_link, network_of(*inside.parts.host), std::move(to));
    // No node sends requests to a gateway: those it is sent may go on to its peers.
    inside.add_remote({name, settings.engine.max_num_seqs, false},
                      [&link](const request_watcher_actor& watcher, std::int32_t number) {
                        return front_of(link, watcher, number);
                      });
    links.nodes.push_back(std::move(link));
    links.addresses.push_back(name);
  }
  // It watches behind the router: whoever hears of a node from it finds that the router knows it.
  inside.set_control(inside.system().spawn(control_relay, std::move(links)));
  return out;
}

}  // namespace deepinfer
