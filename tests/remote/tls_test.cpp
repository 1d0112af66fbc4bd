#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/actors/hash_node.hpp"
#include "tests/remote/child_process.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

/// An authority of its own and a certificate of it, as an operator would make them.
class authority {
public:
  authority() {
    run("openssl ecparam -name prime256v1 -genkey -noout -out ca.key");
    run("openssl req -x509 -new -key ca.key -subj /CN=authority -days 2 -out ca.crt");
    run("openssl ecparam -name prime256v1 -genkey -noout -out node.key");
    run("openssl req -new -key node.key -subj /CN=node -out node.csr");
    run("openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 "
        "-out node.crt");
  }

  const std::string& path() const { return files_.path(); }

  client_options to(std::uint16_t port) const {
    client_options out;
    out.port = port;
    out.connect_timeout = 20s;
    out.connection_timeout = 20s;
    out.tls_certificate = files_.file("node.crt");
    out.tls_key = files_.file("node.key");
    out.tls_ca = files_.file("ca.crt");
    return out;
  }

private:
  void run(const std::string& command) const {
    const auto line = "cd " + files_.path() + " && " + command + " 2>/dev/null";
    REQUIRE_MESSAGE(std::system(line.c_str()) == 0, command);
  }

  temp_directory files_;
};

}  // namespace

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
