#include "actors/wire_door.hpp"

#include <doctest/doctest.h>

#include "tests/remote/child_process.hpp"
#include "tests/remote/raw_link.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// A node with a door, in this process; links have actor systems of their own.
struct open_node {
  explicit open_node(std::vector<std::string> keys = {}) {
    host = actor_host::open({}).value();
    wire_door_options options;
    options.port = 0;
    options.keys = std::move(keys);
    door = wire_door::open(host, options).value();
    hash_node_options sizes;
    sizes.parts.host = host;
    it = start_hash_node(sizes);
    door->attach(it.engine->connect());
  }

  std::shared_ptr<actor_host> host;
  hash_node it;
  std::unique_ptr<wire_door> door;
};

generate_request named(const std::string& id, std::int32_t tokens) {
  auto out = greedy(prompt_ids("a", 5), tokens);
  out.request_id = id;
  return out;
}

}  // namespace

TEST_CASE("a port that is in use is refused with its address and a way out") {
  const open_node node;
  wire_door_options options;
  options.port = node.door->port();
  const auto other = actor_host::open({}).value();
  const auto refused = wire_door::open(other, options);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::port_in_use);
  CHECK(refused.error().param == "actor.port");
  const auto& message = refused.error().message;
  CHECK(message.find("127.0.0.1:" + std::to_string(options.port)) != std::string::npos);
  CHECK(message.find("choose another port") != std::string::npos);
  CHECK(wire_door::open(std::make_shared<actor_host>(), options).error().code == errc::bad_config);
}

TEST_CASE("without TLS only this machine may be listened for, and TLS needs all its files") {
  actor_settings settings;
  for (const auto* host : {"0.0.0.0", "10.0.0.1", ""}) {
    settings.host = host;
    const auto refused = actor_host::open(settings);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::bad_config);
    CHECK(refused.error().param == "actor.host");
    CHECK(refused.error().message.find("actor.tls_certificate") != std::string::npos);
  }
  settings.host = "127.0.0.1";
  settings.tls_key = "key.pem";
  auto refused = actor_host::open(settings);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::bad_config);
  CHECK(refused.error().message.find("all three or none") != std::string::npos);
  const temp_directory files;
  files.write("empty.pem", "no certificate");
  settings.tls_certificate = files.file("missing.pem");
  settings.tls_ca = files.file("empty.pem");
  refused = actor_host::open(settings);
  REQUIRE(!refused);
  CHECK(refused.error().param == "actor.tls_certificate");
  settings.tls_certificate = files.file("empty.pem");
  refused = actor_host::open(settings);
  REQUIRE(!refused);
  CHECK(refused.error().message.find("found no certificate") != std::string::npos);
}

TEST_CASE("another version of the protocol is refused with both numbers") {
  const open_node node;
  raw_link link(node.door->port());
  const auto refused = link.hello(wire_version + 1, "");
  CHECK(refused.code == errc::invalid_argument);
  CHECK(refused.param == "version");
  CHECK(refused.message.find("found 2, expected 1") != std::string::npos);
  CHECK(link.hello(wire_version, "").code == errc::ok);
}

TEST_CASE("nobody speaks in another's session, and a link without a key has none") {
  open_node node({"blue=sk-1"});
  raw_link owner(node.door->port());
  CHECK(owner.hello(wire_version, "sk-1").code == errc::ok);
  raw_link stranger(node.door->port());
  CHECK(stranger.hello(wire_version, "sk-2").code == errc::unauthenticated);
  CHECK(!stranger.session);
  // Handles are numbers that can be guessed; here it is simply given away.
  const auto address = caf::actor_cast<caf::strong_actor_ptr>(owner.session);
  const auto there = stranger.handle_of(address->node(), address->id());
  REQUIRE(there);
  const auto bytes = to_wire(named("r", 5));
  CHECK(stranger.refusal(there, generate_atom::value, bytes).code == errc::unauthenticated);
  CHECK(stranger.refusal(there, call_atom::value, std::string("stats"), std::string()).code ==
        errc::unauthenticated);
  stranger.tell(there, stop_atom::value);
  CHECK(owner.refusal(owner.session, generate_atom::value, bytes).code == errc::ok);
}

TEST_CASE("the name of a link's key is the tenant of its requests, whatever they say") {
  open_node node({"blue=sk-1", "sk-2"});
  raw_link named_link(node.door->port());
  hello_reply reply;
  CHECK(named_link.hello(wire_version, "sk-1", &reply).code == errc::ok);
  CHECK(reply.tenant == "blue");
  CHECK(reply.version == wire_version);
  CHECK(reply.node == node.door->node_name());
  raw_link plain(node.door->port());
  CHECK(plain.hello(wire_version, "sk-2", &reply).code == errc::ok);
  CHECK(reply.tenant.empty());
}

TEST_CASE("mutants of what a link says are answered, and the node goes on") {
  open_node node;
  raw_link link(node.door->port());
  REQUIRE(link.hello(wire_version, "").code == errc::ok);
  mutator mutate(17);
  const auto valid = to_wire(named("r", 2));
  const auto call = to_wire(number_call{3});
  int refused = 0;
  for (int i = 0; i < with_effort(5'000); ++i) {
    const auto request = mutate.bytes(valid);
    // Most are notes: an answer to each would make this a test of the network's delay.
    if (i % 25 == 0) {
      if (link.refusal(link.session, generate_atom::value, request).code != errc::ok) ++refused;
    } else {
      link.tell(link.session, generate_atom::value, request);
    }
    link.tell(link.session, cancel_atom::value, mutate.bytes("r"));
    link.tell(link.session, call_atom::value, mutate.bytes("stats"), mutate.bytes(call));
    if (i % 10 == 0) {
      link.tell(link.session, credit_atom::value, mutate.bytes("r"),
                static_cast<std::int32_t>(mutate.next()));
      link.tell(link.session, chunk_atom::value, mutate.bytes(valid));
      link.tell(link.door, hello_atom::value, static_cast<std::uint32_t>(mutate.next()),
                mutate.bytes("key"), mutate.bytes("name"));
      link.tell(link.door, mutate.bytes("what"), std::uint64_t{7});
      link.tell(link.session, caf::make_error(caf::sec::runtime_error, mutate.bytes("why")));
    }
    link.drain();
  }
  CHECK(refused > 20);
  // Its last hellos were refused; the session is still its own.
  link.tell(link.session, cancel_atom::value, std::string("r"));
  CHECK(eventually([&] {
    return link.refusal(link.session, generate_atom::value, to_wire(named("last", 2))).code ==
           errc::ok;
  }));
  raw_link fresh(node.door->port());
  CHECK(fresh.hello(wire_version, "").code == errc::ok);
  const auto prompt = prompt_ids("b", 5);
  CHECK(node.it.engine->connect().generate_sync(greedy(prompt, 5), patience)->ids ==
        expected_ids(prompt, 5));
}
