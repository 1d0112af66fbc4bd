// A node that others can reach: its door listens before the model is there, then a client comes
// over the network, as one on another machine would.
//   03_launch_node MODEL_DIR [PORT]
#include <cstdio>
#include <cstdlib>

#include "actors/actor_host.hpp"
#include "actors/node.hpp"
#include "actors/wire_door.hpp"

namespace {

int report(const deepinfer::error& failure) {
  std::fprintf(stderr, "%s\n", failure.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL_DIR [PORT]\n", argv[0]);
    return 2;
  }
  // Network and door: from now on health can be asked for.
  deepinfer::engine_settings settings;
  settings.actor.node_name = "example";
  const auto host = deepinfer::actor_host::open(settings.actor);
  if (!host) return report(host.error());
  deepinfer::wire_door_options options;
  options.port = static_cast<std::uint16_t>(argc > 2 ? std::atoi(argv[2]) : 0);
  options.node_name = settings.actor.node_name;
  const auto door = deepinfer::wire_door::open(*host, options);
  if (!door) return report(door.error());

  // The model, in the same actor system.
  deepinfer::node_parts parts;
  parts.host = *host;
  const auto engine = deepinfer::node::load(
    settings, argv[1],
    [&](std::uint64_t done, std::uint64_t total) {
      (*door)->note_loading(static_cast<double>(done) / static_cast<double>(total), "weights");
    },
    nullptr, parts);
  if (!engine) return report(engine.error());
  (*door)->attach((*engine)->connect());

  // Somebody comes by.
  deepinfer::client_options where;
  where.port = (*door)->port();
  const auto client = deepinfer::client::connect(where);
  if (!client) return report(client.error());
  const auto health = client->health();
  if (!health) return report(health.error());
  std::printf("node %s is %s\n", health->node.c_str(), name_of(health->state).data());
  deepinfer::generate_request request;
  request.text = "In the beginning";
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 16;
  const auto answer = client->generate_sync(request, std::chrono::seconds(60));
  if (!answer) return report(answer.error());
  std::printf("%d tokens: %s\n", answer->finish.usage.completion_tokens, answer->text.c_str());
  (*door)->stop();
  return 0;
}
