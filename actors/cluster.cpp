#include "actors/cluster.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "actors/host_address.hpp"
#include "actors/node_census.hpp"
#include "actors/remote_link.hpp"
#include "actors/wire_session.hpp"
#include "messages/wire.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

/// More nodes than any table for people; a stranger with a key can't fill the memory.
constexpr std::size_t max_members = 1024;
constexpr std::size_t max_name_bytes = 256;

/// What a join is answered with: one that was not known, and one that was.
constexpr const char* join_is_new = "welcome";
constexpr const char* join_is_known = "known";

using clock = std::chrono::steady_clock;

using cluster_actor = request_watcher_actor::extend<
  // The verbs of cluster.hpp.
  rpc<std::string, call_atom, std::string, std::string>,
  // Says join again and forgets who has not. INTERNAL.
  note<tick_atom>,
  // Ends every link and leaves.
  note<stop_atom>>;

enum class origin : std::uint8_t { peer, joined, told };

struct member {
  origin from = origin::peer;
  std::string name;  ///< as it says; until it has, its address
  host_address at;
  remote_link_actor link;
  bool is_up = false;
  bool is_announced = false;  ///< `on_peer` was called
  std::string reason;
  clock::time_point said_join;  ///< it, to this one
  bool is_join_due = false;     ///< this one's join waits for an answer, or for the connection
  bool has_joined = false;      ///< this one, as the newest answer said
  std::string join_failure;     ///< that was logged last
};

struct cluster_state {
  static inline const char* name = "cluster";

  cluster_state() = default;

  caf::io::middleman_actor network;
  cluster_options options;
  cluster_hooks hooks;
  std::shared_ptr<const door_desk> desk;
  node_entry own;
  std::map<std::int32_t, member> members;
  std::int32_t added = 0;
};

using pointer = cluster_actor::stateful_pointer<cluster_state>;

/// A member that has not said its name yet, at an address that a named one has, is that one.
void count(pointer self) {
  const auto& state = self->state;
  std::map<std::string, std::string> name_at;
  for (const auto& [number, it] : state.members) {
    const auto at = format_host_address(it.at);
    if (it.name != at) name_at.emplace(at, it.name);
  }
  node_census nodes;
  nodes.note(state.own.name, true);
  for (const auto& [number, it] : state.members) {
    const auto named = name_at.find(it.name);
    nodes.note(named == name_at.end() ? it.name : named->second, it.is_up);
  }
  nodes.tell(state.options.counts);
}

std::int32_t add(pointer self, origin from, const host_address& at, std::string name) {
  auto& state = self->state;
  remote_link_options link;
  link.to = at;
  link.api_key = state.options.api_key;
  link.name = state.own.name;
  link.connect_timeout = state.options.connect_timeout;
  link.wait_timeout = state.options.connect_timeout;
  link.health_interval = state.options.health_interval;
  link.misfit = state.options.misfit;
  const auto number = ++state.added;
  auto& it = state.members[number];
  it.from = from;
  it.at = at;
  it.name = std::move(name);
  it.link = self->spawn(remote_link, state.network, std::move(link));
  it.reason = "not connected yet";
  it.said_join = clock::now();
  tell(self, it.link, watch_atom::value, number, request_watcher_actor(self));
  count(self);
  return number;
}

void withdraw(pointer self, member& it) {
  if (!std::exchange(it.is_announced, false)) return;
  log(severity::warning, "node {} takes no requests: {}", it.name, it.reason);
  if (self->state.hooks.on_peer_lost) self->state.hooks.on_peer_lost(it.name);
}

/// One node may be known twice, as a peer and because it joined: it counts once.
void announce(pointer self, member& it) {
  auto& state = self->state;
  if (it.is_announced || !it.is_up || it.from == origin::told) return;
  if (it.name == state.own.name) {
    it.reason = "this node itself";
    log(severity::warning, "actor.peers: found {}, which is this node itself: no requests go there",
        format_host_address(it.at));
    return;
  }
  for (const auto& [number, other] : state.members)
    if (other.is_announced && other.name == it.name) return;
  it.is_announced = true;
  log(severity::info, "node {} at {} takes requests", it.name, format_host_address(it.at));
  if (state.hooks.on_peer) state.hooks.on_peer(it.name, it.link);
}

void announce_all(pointer self) {
  for (auto& [number, it] : self->state.members) announce(self, it);
}

void on_ready(pointer self, std::int32_t number, bool is_ready, const std::string& why) {
  auto& members = self->state.members;
  const auto found = members.find(number);
  if (found == members.end()) return;
  auto& it = found->second;
  it.is_up = is_ready;
  it.reason = is_ready ? "" : why;
  count(self);
  if (!is_ready) {
    withdraw(self, it);
    return announce_all(self);  // it may be known in another way, too
  }
  ask(self, it.link, control_time_limit, open_atom::value)
    .then(
      [self, number](const std::string& name) {
        const auto again = self->state.members.find(number);
        if (again == self->state.members.end()) return;
        // Its address may lead to another node by now.
        if (again->second.name != name) withdraw(self, again->second);
        again->second.name = name;
        count(self);
        announce(self, again->second);
      },
      [](const caf::error&) {});
}

void drop(pointer self, std::int32_t number) {
  auto node = self->state.members.extract(number);
  if (node.empty()) return;
  if (node.mapped().is_up) node.mapped().reason = "this node stops";
  withdraw(self, node.mapped());
  tell(self, node.mapped().link, stop_atom::value);
  count(self);
  announce_all(self);
}

result<std::string> take_join(pointer self, const std::string& bytes) {
  auto& state = self->state;
  DI_TRY(const auto asked, from_wire<join_call>(bytes));
  if (asked.name.empty() || asked.name.size() > max_name_bytes || asked.host.empty() ||
      asked.host.size() > max_name_bytes || asked.port == 0 || asked.port > 65'535)
    return fail(errc::invalid_argument,
                "a join must name the node, its host and its port from 1 to 65535", "join");
  if (asked.name == state.own.name)
    return fail(
      errc::invalid_argument,
      fmt::format("this node is called {}, too: each needs a name of its own", asked.name), "join");
  const host_address at{asked.host, static_cast<std::uint16_t>(asked.port)};
  for (auto& [number, it] : state.members) {
    if (it.from != origin::joined || it.name != asked.name) continue;
    it.said_join = clock::now();
    if (it.at.host == at.host && it.at.port == at.port) return to_wire(text_reply{join_is_known});
    // Two that take turns under one name would end each other's requests.
    if (it.is_up)
      return fail(errc::invalid_argument,
                  fmt::format("the node at {} is called {}, too: each needs a name of its own",
                              format_host_address(it.at), asked.name),
                  "join");
    drop(self, number);
    break;
  }
  if (state.members.size() >= max_members)
    return fail(errc::overloaded, fmt::format("{} nodes are known", state.members.size()));
  log(severity::info, "node {} at {} asks for requests", asked.name, format_host_address(at));
  add(self, origin::joined, at, asked.name);
  return to_wire(text_reply{join_is_new});
}

std::string list_nodes(pointer self) {
  auto& state = self->state;
  node_list out;
  out.nodes.push_back(state.own);
  out.nodes.back().state = state.desk->look().engine ? "up" : "loading";
  for (const auto from : {origin::peer, origin::joined, origin::told})
    for (const auto& [number, it] : state.members) {
      if (it.from != from) continue;
      auto& entry = out.nodes.emplace_back();
      entry.name = it.name;
      entry.host = it.at.host;
      entry.port = it.at.port;
      entry.state = it.is_up ? "up" : "down";
      entry.origin = from == origin::peer ? "peer" : from == origin::joined ? "joined" : "told";
      entry.reason = it.reason;
    }
  return to_wire(out);
}

void on_join_answer(member& told, const std::string& name, bool is_new) {
  const bool was_joined = std::exchange(told.has_joined, true);
  told.join_failure.clear();
  if (told.is_up) told.reason.clear();
  if (was_joined && !is_new) return;
  log(severity::info, "joined the node {} at {}: it may send requests here", name,
      format_host_address(told.at));
}

void on_join_failure(member& told, const error& failure) {
  told.has_joined = false;
  told.reason = failure.message;
  if (std::exchange(told.join_failure, failure.message) == failure.message) return;
  log(severity::warning, "node at {} is not joined: {}", format_host_address(told.at),
      failure.message);
}

/// Waits for the connection first: while it is being made nothing has failed.
void say_join(pointer self, std::int32_t number, member& it) {
  if (std::exchange(it.is_join_due, true)) return;
  const auto ended = [self, number](auto&& note) {
    const auto found = self->state.members.find(number);
    if (found == self->state.members.end()) return;
    found->second.is_join_due = false;
    note(found->second);
  };
  const auto on_failure = [ended](const caf::error& why) {
    ended([&](member& told) { on_join_failure(told, from_caf(why)); });
  };
  self->request(it.link, caf::infinite, open_atom::value)
    .then(
      [self, link = it.link, ended, on_failure](const std::string& name) {
        const auto& own = self->state.own;
        ask(self, link, control_time_limit, call_atom::value, std::string(verb::join),
            to_wire(join_call{own.name, own.host, own.port}))
          .then(
            [ended, name](const std::string& bytes) {
              const auto reply = from_wire<text_reply>(bytes);
              const bool is_new = reply && reply->text == join_is_new;
              ended([&](member& told) { on_join_answer(told, name, is_new); });
            },
            on_failure);
      },
      on_failure);
}

void turn(pointer self) {
  auto& state = self->state;
  std::vector<std::int32_t> gone;
  for (auto& [number, it] : state.members) {
    if (it.from == origin::told) say_join(self, number, it);
    const bool is_silent = clock::now() - it.said_join > state.options.forget_after;
    if (it.from == origin::joined && !it.is_up && is_silent) gone.push_back(number);
  }
  for (const auto number : gone) drop(self, number);
  self->delayed_send(self, state.options.join_interval, tick_atom::value);
}

struct cluster_start {
  caf::io::middleman_actor network;
  cluster_options options;
  cluster_hooks hooks;
  std::shared_ptr<const door_desk> desk;
  node_entry own;
  std::vector<host_address> peers, told;
};

cluster_actor::behavior_type run(pointer self, const cluster_start& with) {
  auto& state = self->state;
  state.network = with.network;
  state.options = with.options;
  state.hooks = with.hooks;
  state.desk = with.desk;
  state.own = with.own;
  count(self);
  for (const auto& at : with.peers) add(self, origin::peer, at, format_host_address(at));
  for (const auto& at : with.told) add(self, origin::told, at, format_host_address(at));
  turn(self);
  return {
    [](started_atom, std::int32_t, const std::string&, std::int32_t) {},
    [](ended_atom, std::int32_t, const std::string&, const request_end&) {},
    [](returned_atom, std::int32_t, const std::string&) {},
    [self](ready_atom, std::int32_t number, bool is_ready, const std::string& why) {
      on_ready(self, number, is_ready, why);
    },
    [](slots_atom, std::int32_t, std::int32_t) {},
    [](gone_atom, std::int32_t, const std::string&) {},
    [self](call_atom, const std::string& verb,
           const std::string& bytes) -> caf::result<std::string> {
      if (verb == verb::nodes) return list_nodes(self);
      auto answer = take_join(self, bytes);
      if (!answer) return to_caf(answer.error());
      return std::move(*answer);
    },
    [self](tick_atom) { turn(self); },
    [self](stop_atom) {
      while (!self->state.members.empty()) drop(self, self->state.members.begin()->first);
      self->quit();
    },
  };
}

/// How others reach what listens on every address.
std::string host_for_others(const std::string& host) {
  return is_any_host(host) ? machine_name() : host;
}

}  // namespace

struct cluster::parts {
  std::shared_ptr<actor_host> host;
  cluster_actor actor;
  bool has_stopped = false;
};

cluster::cluster(std::unique_ptr<parts> opened) : parts_(std::move(opened)) {}

cluster::~cluster() {
  stop();
}

result<std::unique_ptr<cluster>> cluster::open(std::shared_ptr<actor_host> host,
                                               const actor_settings& settings, wire_door& door,
                                               cluster_options options, cluster_hooks hooks) {
  cluster_start with;
  DI_TRY(auto peers, read_addresses(settings.peers, "actor.peers"));
  DI_TRY(auto told, read_addresses(settings.join, "actor.join"));
  with.peers = std::move(peers.addresses);
  with.told = std::move(told.addresses);
  with.network = network_of(*host);
  with.options = std::move(options);
  with.hooks = std::move(hooks);
  with.desk = door.desk();
  with.own.name = door.node_name();
  with.own.host = host_for_others(settings.host);
  with.own.port = door.port();
  with.own.origin = "self";
  auto made = std::make_unique<parts>();
  made->host = std::move(host);
  made->actor = made->host->system().spawn(run, std::move(with));
  door.desk()->attach_cluster(made->actor);
  return std::unique_ptr<cluster>(new cluster(std::move(made)));
}

result<node_list> cluster::nodes() const {
  DI_TRY(const auto bytes,
         ask_and_wait<std::string>(parts_->host->system(), parts_->actor, control_time_limit,
                                   call_atom::value, std::string(verb::nodes), std::string()));
  return from_wire<node_list>(bytes);
}

void cluster::stop() {
  if (std::exchange(parts_->has_stopped, true)) return;
  caf::scoped_actor self{parts_->host->system(), true};
  self->send(parts_->actor, stop_atom::value);
  self->wait_for(parts_->actor);
  parts_->actor = nullptr;
}

}  // namespace deepinfer
