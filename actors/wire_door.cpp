#include "actors/wire_door.hpp"

#include <map>

#include <caf/io/all.hpp>
#include <caf/openssl/all.hpp>
#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "actors/host_address.hpp"
#include "actors/wire_session.hpp"
#include "messages/wire.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/secret.hpp"

namespace deepinfer {
namespace {

struct door_state {
  static inline const char* name = "wire_door";

  door_state() = default;

  std::shared_ptr<const door_desk> desk;
  wire_door_options options;
  std::map<caf::actor_addr, caf::actor> sessions;  ///< by their link
  bool is_stopping = false;
};

using pointer = caf::stateful_actor<door_state>*;

struct greeting {
  std::uint32_t version = 0;
  const std::string& key;
  const std::string& name;
};

/// The tenant of the link's key.
result<std::string> admit(const door_state& state, const greeting& hello) {
  if (hello.version != wire_version)
    return fail(errc::invalid_argument,
                fmt::format("version: found {}, expected {}: client and node must speak the same "
                            "version of the network's protocol",
                            hello.version, wire_version),
                "version");
  const auto& keys = state.options.keys;
  const auto holder = holder_of(keys, hello.key);
  if (!keys.empty() && !holder)
    return fail(errc::unauthenticated,
                hello.key.empty() ? "the node asks for a key" : "the key is not one of the node's",
                "api_key");
  if (state.is_stopping) return fail(errc::server_shutdown, "the node has closed its door");
  if (static_cast<std::int32_t>(state.sessions.size()) >= state.options.max_sessions)
    return fail(errc::overloaded, fmt::format("{} links are open", state.sessions.size()));
  return holder.value_or("");
}

caf::result<caf::actor, std::string> greet(pointer self, const greeting& hello) {
  auto& state = self->state;
  const auto link = caf::actor_cast<caf::actor>(self->current_sender());
  if (!link) return to_remote({errc::invalid_argument, "a hello must have a sender", {}});
  auto tenant = admit(state, hello);
  if (!tenant) {
    log(severity::warning, "a link is refused: {}", tenant.error().message);
    return to_remote(tenant.error());
  }
  const auto before = state.sessions.find(link.address());
  if (before != state.sessions.end()) self->send(before->second, stop_atom::value);
  const hello_reply reply{wire_version, state.options.node_name, *tenant};
  const auto session = self->spawn(wire_session, state.desk, caf::actor_cast<caf::actor>(self),
                                   link, std::move(*tenant));
  self->monitor(session);
  state.sessions[link.address()] = session;
  log(severity::debug, "{} has opened a link", hello.name);
  return {session, to_wire(reply)};
}

/// Sessions end their requests first.
void close(pointer self) {
  auto& state = self->state;
  state.is_stopping = true;
  for (const auto& [link, session] : state.sessions) self->send(session, stop_atom::value);
  if (state.sessions.empty()) self->quit();
}

caf::behavior door(pointer self, std::shared_ptr<const door_desk> desk, wire_door_options options) {
  self->state.desk = std::move(desk);
  self->state.options = std::move(options);
  ignore_strangers(self);
  self->set_down_handler([self](const caf::down_msg& down) {
    auto& sessions = self->state.sessions;
    std::erase_if(sessions, [&](const auto& it) { return it.second == down.source; });
    if (self->state.is_stopping && sessions.empty()) self->quit();
  });
  return {
    [self](hello_atom, std::uint32_t version, const std::string& key, const std::string& name) {
      return greet(self, {version, key, name});
    },
    [self](stop_atom) {
      if (is_local_sender(self)) close(self);
    },
  };
}

/// The library does not say why it can't listen.
error not_listening(const host_address& at) {
  const auto tried = check_can_listen(at);
  auto why = tried ? error{errc::port_in_use,
                           fmt::format("can't listen on {}: the port was in use a moment ago",
                                       format_host_address(at)),
                           "port"}
                   : tried.error();
  why.param = "actor." + why.param;
  const auto setting = why.param;
  return std::move(why).within(setting);
}

}  // namespace

struct wire_door::parts {
  std::shared_ptr<actor_host> host;
  std::shared_ptr<door_desk> desk;
  caf::actor actor;
  bool has_stopped = false;
};

wire_door::wire_door(std::unique_ptr<parts> opened) : parts_(std::move(opened)) {}

wire_door::~wire_door() {
  stop();
}

result<std::unique_ptr<wire_door>> wire_door::open(std::shared_ptr<actor_host> host,
                                                   const wire_door_options& options) {
  if (!host->has_network())
    return fail(errc::bad_config, "the actor system was made without network");
  auto made = std::make_unique<parts>();
  made->host = std::move(host);
  auto& system = made->host->system();
  auto named = options;
  if (named.node_name.empty()) named.node_name = default_node_name(options.port);
  made->desk = std::make_shared<door_desk>(named.node_name);
  made->actor = system.spawn(door, std::shared_ptr<const door_desk>(made->desk), named);
  // An empty name means every address to the library.
  const auto port =
    made->host->has_tls()
      ? caf::openssl::publish(made->actor, options.port, options.host.c_str(), true)
      : system.middleman().publish(made->actor, options.port, options.host.c_str(), true);
  auto out = std::unique_ptr<wire_door>(new wire_door(std::move(made)));
  if (!port) return tl::unexpected<error>(not_listening({options.host, options.port}));
  out->port_ = *port;
  out->node_name_ = named.node_name;
  return out;
}

void wire_door::note_loading(double progress, const std::string& stage) {
  parts_->desk->note_loading(progress, stage);
}

void wire_door::attach(const client& engine) {
  parts_->desk->attach(door_of(engine));
}

const std::shared_ptr<door_desk>& wire_door::desk() const {
  return parts_->desk;
}

void wire_door::stop() {
  if (std::exchange(parts_->has_stopped, true)) return;
  auto& system = parts_->host->system();
  caf::scoped_actor self{system, true};
  if (port_ != 0) system.middleman().unpublish(parts_->actor, port_);
  self->send(parts_->actor, stop_atom::value);
  self->wait_for(parts_->actor);
  parts_->actor = nullptr;
}

}  // namespace deepinfer
