// An actor of one's own that watches a node: gauges, health and open requests, every few
// milliseconds, while requests run. It asks without waiting, as an actor must.
//   04_watch_actor MODEL_DIR
#include <cstdio>
#include <vector>

#include "actors/actor_host.hpp"
#include "actors/node.hpp"
#include "actors/protocol.hpp"
#include "messages/wire.hpp"

namespace {

using namespace deepinfer;

/// Looks (tick) and is told what there is (call, verb, bytes).
using watcher =
  caf::typed_actor<note<tick_atom>, note<call_atom, std::string, std::string>, note<stop_atom>>;

void ask(const watcher& who, const client& engine, std::string_view verb) {
  engine.call(verb, {}, [who, name = std::string(verb)](result<std::string> answer) {
    if (answer) tell_from_outside(who, call_atom::value, name, std::move(*answer));
  });
}

void show(const std::string& verb, const std::string& bytes) {
  if (const auto it = from_wire<node_stats>(bytes); verb == verb::stats && it)
    std::printf("running %d queued %d steps %llu kv %lld of %lld free\n", it->running, it->queued,
                static_cast<unsigned long long>(it->steps),
                static_cast<long long>(it->kv_blocks_free),
                static_cast<long long>(it->kv_blocks_total));
  if (const auto it = from_wire<node_health>(bytes); verb == verb::health && it)
    std::printf("health: %s\n", name_of(it->state).data());
  if (const auto it = from_wire<request_list>(bytes); verb == verb::requests && it)
    for (const auto& request : it->requests)
      std::printf("request %s: %s, %d tokens\n", request.id.c_str(), request.state.c_str(),
                  request.output_tokens);
}

watcher::behavior_type watch(watcher::pointer self, const client& engine) {
  tell(self, self, tick_atom::value);
  return {
    [self, engine](tick_atom) {
      for (const auto what : {verb::stats, verb::health, verb::requests}) ask(self, engine, what);
      self->delayed_send(self, std::chrono::milliseconds(5), tick_atom::value);
    },
    [](call_atom, const std::string& verb, const std::string& bytes) { show(verb, bytes); },
    [self](stop_atom) { self->quit(); },
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL_DIR\n", argv[0]);
    return 2;
  }
  node_parts parts;
  parts.host = std::make_shared<actor_host>();
  const auto engine = node::load({}, argv[1], {}, nullptr, parts);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  const auto client = (*engine)->connect();
  const auto eyes = parts.host->system().spawn(watch, client);

  generate_request request;
  request.text = "In the beginning";
  request.sampling.max_tokens = 200;
  request.sampling.ignore_eos = true;
  std::vector<stream> open;
  for (int i = 0; i < 4; ++i)
    if (auto it = client.generate(request)) open.push_back(std::move(*it));
  for (auto& it : open)
    while (auto chunk = it.next(std::chrono::seconds(60)))
      if (!*chunk) break;
  std::printf("%zu requests have ended\n", open.size());
  tell_from_outside(eyes, stop_atom::value);
  return open.size() == 4 ? 0 : 1;
}
