#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "actors/actor_host.hpp"
#include "actors/cluster.hpp"
#include "actors/wire_door.hpp"
#include "runtime/base/log.hpp"
#include "tests/actors/hash_node.hpp"

using namespace deepinfer;

namespace {

/// A setting of this child; "" where it has none.
std::string setting(const std::string& name) {
  const auto* value = std::getenv(("DEEPINFER_CHILD_" + name).c_str());
  return value == nullptr ? "" : value;
}

std::int32_t number(const std::string& name, std::int32_t otherwise) {
  const auto text = setting(name);
  return text.empty() ? otherwise : std::stoi(text);
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

void answer(const std::string& line) {
  std::cout << "@ " << line << std::endl;
}

[[noreturn]] void leave(const std::string& why) {
  answer(why);
  _exit(1);
}

actor_settings network() {
  actor_settings out;
  out.host = setting("HOST").empty() ? "127.0.0.1" : setting("HOST");
  out.port = static_cast<std::uint16_t>(number("PORT", 0));
  out.node_name = setting("NAME");
  out.peers = words(setting("PEERS"));
  out.join = words(setting("JOIN"));
  out.heartbeat_interval = std::chrono::milliseconds(number("HEARTBEAT", 200));
  out.connection_timeout = std::chrono::milliseconds(number("TIMEOUT", 20'000));
  if (const auto tls = setting("TLS"); !tls.empty()) {
    out.tls_certificate = tls + "/node.crt";
    out.tls_key = tls + "/node.key";
    out.tls_ca = tls + "/ca.crt";
  }
  return out;
}

bool is_at_rest(const client& engine) {
  const auto stats = engine.stats();
  return stats && stats->running == 0 && stats->queued == 0 && stats->inflight_steps == 0 &&
         stats->slots_total > 0 && stats->kv_blocks_free == stats->kv_blocks_total &&
         stats->slots_free == stats->slots_total;
}

/// Commands: attach, loading SHARE STAGE, rest, stop.
void run_node() {
  const auto settings = network();
  auto host = actor_host::open(settings);
  if (!host) leave(host.error().message);
  wire_door_options options;
  options.host = settings.host;
  options.port = settings.port;
  options.node_name = settings.node_name;
  options.keys = words(setting("KEYS"));
  auto door = wire_door::open(*host, options);
  if (!door) leave(door.error().message);
  auto sizes = endless();
  sizes.parts.host = *host;
  if (const auto slow = number("SLOW", 0); slow > 0)
    sizes.server.slow_consumer_timeout = std::chrono::milliseconds(slow);
  const auto it = start_hash_node(sizes);
  const auto engine = it.engine->connect();
  if (setting("LOADING").empty()) (*door)->attach(engine);
  cluster_options around;
  around.join_interval = std::chrono::milliseconds(200);
  around.health_interval = std::chrono::milliseconds(100);
  auto others = cluster::open(*host, settings, **door, around, {});
  if (!others) leave(others.error().message);
  answer("port " + std::to_string((*door)->port()));
  for (std::string line; std::getline(std::cin, line);) {
    const auto command = words(line);
    if (command.empty()) continue;
    if (command[0] == "attach") {
      (*door)->attach(engine);
      answer("attached");
    } else if (command[0] == "loading") {
      (*door)->note_loading(std::stod(command[1]), command[2]);
      answer("noted");
    } else if (command[0] == "rest") {
      answer(is_at_rest(engine) ? "at rest" : "busy");
    } else if (command[0] == "stop") {
      (*door)->stop();
      answer("stopped");
    }
  }
  _exit(0);
}

/// Starts an endless request, reads its first chunk and answers with its id; then waits.
void run_client() {
  client_options options;
  options.port = static_cast<std::uint16_t>(number("PORT", 0));
  const auto engine = client::connect(options);
  if (!engine) leave(engine.error().message);
  auto request = greedy(prompt_ids("child", 9), many_tokens);
  request.window = number("WINDOW", 0);
  auto chunks = engine->generate(request);
  if (!chunks) leave(chunks.error().message);
  const auto first = chunks->next(patience);
  answer(first && *first ? "started " + chunks->id() : "failed");
  for (std::string line; std::getline(std::cin, line);) {
    if (line != "read") continue;
    generate_result rest;
    while (true) {
      const auto chunk = chunks->next(patience);
      if (!chunk || !*chunk) break;
      rest.add(**chunk);
    }
    answer(std::string(name_of(rest.finish.code)));
  }
  _exit(0);
}

}  // namespace

TEST_CASE("a child of these tests: a node or a client in a process of its own" * doctest::skip()) {
  configure_log(setting("LOG").empty() ? severity::off : severity::debug, false);
  if (setting("ROLE") == "node") run_node();
  if (setting("ROLE") == "client") run_client();
}
