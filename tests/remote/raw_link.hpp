/// A link to a door that says what a test wants, as a program of another version or of no good will
/// could: CAF messages by hand, from an actor system of its own.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>

#include "actors/actor_host.hpp"
#include "actors/client_state.hpp"
#include "actors/wire_protocol.hpp"
#include "messages/wire.hpp"
#include "tests/actors/hash_node.hpp"

namespace deepinfer::test {

class raw_link {
public:
  explicit raw_link(std::uint16_t port)
    : host_(actor_host::open({}, {.threads = 1}).value()),
      self_(std::make_unique<caf::scoped_actor>(host_->system())) {
    auto found = host_->system().middleman().remote_actor("127.0.0.1", port);
    REQUIRE(found);
    door = *found;
  }

  /// The error a door or session answers with, or none.
  template <class... Args>
  error refusal(const caf::actor& whom, Args&&... args) {
    error out{errc::ok, "", {}};
    (*self_)
      ->request(whom, std::chrono::seconds(patience), std::forward<Args>(args)...)
      .receive([](const std::string&) {},
               [&out](const caf::error& why) { out = from_remote(why); });
    return out;
  }

  /// Says hello; keeps the session. The error, or none.
  error hello(std::uint32_t version, const std::string& key, hello_reply* reply = nullptr) {
    error out{errc::ok, "", {}};
    (*self_)
      ->request(door, std::chrono::seconds(patience), hello_atom::value, version, key,
                std::string("raw"))
      .receive(
        [&](const caf::actor& opened, const std::string& bytes) {
          session = opened;
          if (reply != nullptr) *reply = from_wire<hello_reply>(bytes).value();
        },
        [&out](const caf::error& why) { out = from_remote(why); });
    return out;
  }

  template <class... Args>
  void tell(const caf::actor& whom, Args&&... args) {
    (*self_)->send(whom, std::forward<Args>(args)...);
  }

  /// What has come and nobody waits for: chunks, answers to notes.
  void drain() {
    while ((*self_)->has_next_message())
      (*self_)->receive(caf::others >> [](caf::message_view&) -> caf::result<caf::message> {
        return caf::sec::unexpected_message;
      });
  }

  /// An actor of another node by its number, as a program that guesses would name it.
  caf::actor handle_of(const caf::node_id& node, caf::actor_id number) {
    auto& broker = host_->system().middleman();
    auto* registry = dynamic_cast<caf::io::basp_broker*>(caf::actor_cast<caf::abstract_actor*>(
      broker.named_broker<caf::io::basp_broker>(caf::atom("BASP"))));
    REQUIRE(registry != nullptr);
    return caf::actor_cast<caf::actor>(registry->proxies().get_or_put(node, number));
  }

  caf::actor door;
  caf::actor session;

private:
  std::shared_ptr<actor_host> host_;
  std::unique_ptr<caf::scoped_actor> self_;
};

}  // namespace deepinfer::test
