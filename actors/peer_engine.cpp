#include "actors/peer_engine.hpp"

#include "actors/client_state.hpp"
#include "actors/live_config.hpp"
#include "actors/node_state.hpp"
#include "actors/remote_link.hpp"
#include "messages/wire.hpp"

namespace deepinfer {
namespace {

constexpr std::uint16_t usual_port = 4242;
constexpr std::chrono::seconds relay_timeout{10};

struct relay_links {
  relay_links() = default;

  std::vector<remote_link_actor> nodes;
  std::shared_ptr<live_config> config;
  std::shared_ptr<metrics> counts;
};

struct control_relay_state {
  static inline const char* name = "control_relay";

  control_relay_state() = default;

  relay_links links;
};

using pointer = control_actor::stateful_pointer<control_relay_state>;

/// Asks one node after the other until one is there.
void relay(pointer self, std::size_t at, const std::string& verb, const std::string& bytes,
           caf::typed_response_promise<std::string> promise) {
  const auto& nodes = self->state.links.nodes;
  ask(self, nodes[at], relay_timeout, call_atom::value, verb, bytes)
    .then([promise](std::string& answer) mutable { promise.deliver(std::move(answer)); },
          [self, at, verb, bytes, promise](caf::error& failure) mutable {
            const bool may_try_next =
              from_caf(failure).code == errc::not_ready && at + 1 < self->state.links.nodes.size();
            if (may_try_next)
              relay(self, at + 1, verb, bytes, promise);
            else
              promise.deliver(std::move(failure));
          });
}

/// The gateway's own settings and counts; of models the nodes know.
control_actor::behavior_type control_relay(pointer self, relay_links links) {
  self->state.links = std::move(links);
  return {
    [self](call_atom, const std::string& verb, const std::string& bytes) {
      auto promise = self->make_response_promise<std::string>();
      const auto& own = self->state.links;
      if (verb == verb::config_get)
        promise.deliver(to_wire(text_reply{own.config->json()}));
      else if (verb == verb::metrics)
        promise.deliver(to_wire(text_reply{own.counts->text()}));
      else if (verb == verb::config_set)
        promise.deliver(
          to_caf({errc::invalid_argument, "a gateway's settings need a restart", {}}));
      else
        relay(self, 0, verb, bytes, promise);
      return promise;
    },
    [self](stop_atom) {
      for (const auto& link : self->state.links.nodes) tell(self, link, stop_atom::value);
      self->quit();
    },
  };
}

}  // namespace

result<std::unique_ptr<node>> open_peers(const effective_config& config,
                                         const peer_options& options, node_parts parts) {
  std::vector<host_address> addresses;
  for (const auto& text : options.addresses) {
    DI_TRY(auto address, parse_host_address(text, usual_port), "--connect");
    addresses.push_back(std::move(address));
  }
  if (addresses.empty()) return fail(errc::bad_config, "--connect: found no address");
  const auto& settings = config.settings;
  node_facts facts;
  facts.model_name = served_name(settings, {});
  auto out =
    node::start(settings, std::vector<rank_machines>{}, std::move(facts), std::move(parts));
  auto& inside = out->inside();
  relay_links links;
  links.config = std::make_shared<live_config>(config);
  links.counts = inside.parts.counts;
  for (auto& address : addresses) {
    remote_link_options to;
    const auto name = format_host_address(address);
    to.to = std::move(address);
    to.api_key = options.api_key;
    to.name = "gateway";
    auto link = inside.system().spawn(remote_link, network_of(*inside.parts.host), std::move(to));
    // No node sends requests to a gateway: those it is sent may go on to its peers.
    inside.add_remote({name, settings.engine.max_num_seqs, false},
                      [&link](const request_watcher_actor& watcher, std::int32_t number) {
                        tell_from_outside(link, watch_atom::value, number, watcher);
                        return caf::actor_cast<front_actor>(link);
                      });
    links.nodes.push_back(std::move(link));
  }
  inside.set_control(inside.system().spawn(control_relay, std::move(links)));
  return out;
}

}  // namespace deepinfer
