#include <doctest/doctest.h>

#include "tests/actors/hash_node.hpp"
#include "tests/remote/authority.hpp"
#include "tests/remote/child_process.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

TEST_CASE("over TLS a node serves who shows a certificate of its authority, and nobody else") {
  const authority ours;
  node_process node(child_settings{{"TLS", ours.path()}});
  const auto prompt = prompt_ids("a", 9);
  {
    const auto engine = client::connect(ours.to(node.port));
    REQUIRE_MESSAGE(engine, engine.error().message);
    CHECK(engine->generate_sync(greedy(prompt, 20), patience)->ids == expected_ids(prompt, 20));
  }
  const auto refusal_of = [](client_options to) {
    to.connect_timeout = 2s;
    const auto refused = client::connect(to);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::not_ready);
    return refused.error().message;
  };
  const auto is_about_certificates = [](const std::string& message) {
    INFO(message);
    CHECK(message.find("nobody answers") == std::string::npos);
    CHECK(message.find("--actor-tls-certificate") != std::string::npos);
  };
  const auto without = [](client_options to) {
    to.tls_certificate = to.tls_key = to.tls_ca = "";
    return to;
  };
  is_about_certificates(refusal_of(without(ours.to(node.port))));
  const authority theirs;
  auto foreign = theirs.to(node.port);
  is_about_certificates(refusal_of(foreign));
  foreign.tls_ca = ours.path() + "/ca.crt";  // knows the node, is not known by it
  is_about_certificates(refusal_of(foreign));
  node_process plain(child_settings{{}});
  is_about_certificates(refusal_of(ours.to(plain.port)));
  // Where nothing listens that is no matter of certificates, with them or without.
  CHECK(refusal_of(ours.to(1)).find("nobody answers") != std::string::npos);
  CHECK(refusal_of(without(ours.to(1))).find("nobody answers") != std::string::npos);
  // None of this has hurt the node.
  const auto engine = client::connect(ours.to(node.port));
  REQUIRE_MESSAGE(engine, engine.error().message);
  CHECK(engine->generate_sync(greedy(prompt, 20), patience)->ids == expected_ids(prompt, 20));
}

TEST_CASE("with TLS a node may be reached by others") {
  const authority ours;
  node_process node(child_settings{{"TLS", ours.path()}, {"HOST", "0.0.0.0"}});
  const auto engine = client::connect(ours.to(node.port));
  REQUIRE_MESSAGE(engine, engine.error().message);
  CHECK(engine->stats().has_value());
}
