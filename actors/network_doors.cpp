#include "actors/network_doors.hpp"

#include <map>
#include <mutex>

#include <fmt/format.h>

#include "actors/cluster.hpp"
#include "actors/host_address.hpp"
#include "actors/key_file.hpp"
#include "actors/model_match.hpp"
#include "actors/node_state.hpp"
#include "actors/remote_link.hpp"
#include "actors/wire_door.hpp"
#include "actors/wire_session.hpp"
#include "messages/wire.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/secret.hpp"

namespace deepinfer {
namespace {

/// Keys of the settings and of their file, one a line; # begins a comment.
result<std::vector<std::string>> keys_of(const server_settings& settings) {
  auto keys = settings.api_keys;
  DI_TRY(const auto file, key_file_text(settings));
  for (auto& entry : key_entries(file)) keys.push_back(std::move(entry));
  return keys;
}

/// What this node shows to others: they share keys, so the first of its own will do.
std::string key_for_peers(const std::vector<std::string>& keys) {
  if (keys.empty()) return {};
  return std::string(split_key(keys.front()).key);
}

/// As the node says it to others; nothing where it has no model to speak of.
std::optional<model_info> model_of(const client& engine) {
  const auto bytes = engine.call(verb::model, {});
  if (!bytes) return std::nullopt;
  auto model = from_wire<model_info>(*bytes);
  return model ? std::optional(*std::move(model)) : std::nullopt;
}

class doors final : public network_doors {
public:
  doors(std::shared_ptr<actor_host> host, const engine_settings& settings,
        std::vector<std::string> keys, std::unique_ptr<wire_door> door)
    : host_(std::move(host)),
      settings_(settings),
      keys_(std::move(keys)),
      door_(std::move(door)) {}
  ~doors() override { stop(); }

  std::uint16_t port() const override { return door_->port(); }
  void note_loading(double progress, const std::string& stage) override {
    door_->note_loading(progress, stage);
  }

  result<void> attach(const client& engine, node& here) override {
    here_ = &here;
    cluster_options options;
    options.api_key = key_for_peers(keys_);
    options.counts = here.inside().parts.counts.get();
    if (const auto own = model_of(engine))
      options.misfit = [own = *own](const model_info& there) { return mismatch_of(own, there); };
    cluster_hooks hooks;
    hooks.on_peer = [this](const std::string& name, const node_door_actor& front) {
      add(name, front);
    };
    hooks.on_peer_lost = [this](const std::string& name) { remove(name); };
    DI_TRY(cluster_, cluster::open(host_, settings_.actor, *door_, options, std::move(hooks)));
    here.inside().neighbours->attach(door_->desk()->look().cluster.value());
    door_->attach(engine);
    return {};
  }

  void stop() override {
    if (cluster_) cluster_->stop();
    if (door_) door_->stop();
  }

private:
  void add(const std::string& name, const node_door_actor& front) {
    const auto link = caf::actor_cast<remote_link_actor>(front);
    const auto watch = [&link](const request_watcher_actor& watcher, std::int32_t number) {
      return front_of(link, watcher, number);
    };
    const std::lock_guard lock(mutex_);
    numbers_[name] = here_->inside().add_remote({name, settings_.engine.max_num_seqs, true}, watch);
    log(severity::info, "node {}: requests may go there", name);
  }
  void remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) return;
    here_->inside().remove_remote(found->second);
    numbers_.erase(found);
    log(severity::warning, "node {}: no more requests go there", name);
  }

  std::shared_ptr<actor_host> host_;
  engine_settings settings_;
  std::vector<std::string> keys_;
  std::unique_ptr<wire_door> door_;
  std::unique_ptr<cluster> cluster_;
  node* here_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, std::int32_t> numbers_;  ///< of nodes that requests may go to
};

/// A mistake in them is told before a model is loaded.
result<void> check_addresses(const actor_settings& actor) {
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
    {"actor.peers", &actor.peers}, {"actor.join", &actor.join}};
  for (const auto& [setting, texts] : lists) {
    DI_TRY(const auto read, read_addresses(*texts, setting));
    for (const auto& text : read.warnings) log(severity::warning, "{}", text);
  }
  return {};
}

}  // namespace

result<std::unique_ptr<network_doors>> network_doors::open(std::shared_ptr<actor_host> host,
                                                           const engine_settings& settings) {
  const auto& actor = settings.actor;
  if (!actor.is_enabled) {
    if (!actor.peers.empty() || !actor.join.empty())
      return fail(errc::bad_config, "actor.enabled: found false beside actor.peers or actor.join, "
                                    "which need the actor port");
    return nullptr;
  }
  DI_TRY_VOID(check_addresses(actor));
  wire_door_options options;
  options.host = actor.host;
  options.port = actor.port;
  options.node_name = actor.node_name;
  DI_TRY(options.keys, keys_of(settings.server));
  DI_TRY(auto door, wire_door::open(host, options));
  return std::unique_ptr<network_doors>(
    std::make_unique<doors>(std::move(host), settings, std::move(options.keys), std::move(door)));
}

}  // namespace deepinfer
