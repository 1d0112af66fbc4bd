#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include "tests/actors/hash_node.hpp"
#include "tests/remote/authority.hpp"
#include "tests/remote/child_process.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

/// A TCP connection of somebody who may not know what listens there.
class stranger {
public:
  explicit stranger(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  }
  stranger(const stranger&) = delete;
  stranger& operator=(const stranger&) = delete;
  ~stranger() { close(fd_); }

  /// Says it and nothing more, until the node has hung up.
  void say(const std::string& bytes) const {
    REQUIRE(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
    REQUIRE(shutdown(fd_, SHUT_WR) == 0);
    const timeval limit{60, 0};
    REQUIRE(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    char heard[256];
    ssize_t got = 0;
    do got = recv(fd_, heard, sizeof heard, 0);
    while (got > 0);
    REQUIRE((got == 0 || errno == ECONNRESET));
  }

private:
  int fd_;
};

/// A request whose answer is read bit by bit, and must be the model's to the last token.
class reading {
public:
  explicit reading(const client& engine)
    : chunks_(engine.generate(greedy(prompt_ids("reading", 9), most)).value()) {}

  void go_on(std::size_t tokens) {
    const auto until = ids_.size() + tokens;
    while (ids_.size() < until) {
      const auto chunk = chunks_.next(patience);
      REQUIRE_MESSAGE(chunk, chunk.error().message);
      REQUIRE(chunk->has_value());
      REQUIRE(!(*chunk)->finish);
      ids_.insert(ids_.end(), (*chunk)->ids.begin(), (*chunk)->ids.end());
    }
    const auto whole = expected_ids(prompt_ids("reading", 9), static_cast<std::int32_t>(until));
    CHECK(std::equal(whole.begin(), whole.end(), ids_.begin()));
  }

private:
  static constexpr std::int32_t most = 100'000;
  stream chunks_;
  std::vector<token_id> ids_;
};

/// Certificates for one more client than `ours`, which may lose its own.
void copy_files(const authority& ours, const std::string& folder) {
  ours.run("mkdir " + folder + " && cp node.crt node.key ca.crt " + folder);
}

}  // namespace

TEST_CASE("a connection that TLS ends leaves those of others as they are") {
  const authority ours;
  node_process node(child_settings{{"TLS", ours.path()}});
  const auto engine = client::connect(ours.to(node.port));
  REQUIRE_MESSAGE(engine, engine.error().message);
  reading one(*engine);
  one.go_on(10);
  const auto port = std::to_string(node.port);
  for (int round = 0; round < 3; ++round) {
    { const stranger bare(node.port); }
    one.go_on(200);
    stranger(node.port).say("GET / HTTP/1.0\r\n\r\n");
    one.go_on(200);
    stranger(node.port).say("\x16\x03\x01\x02");
    one.go_on(200);
    ours.run("timeout 10 openssl s_client -connect 127.0.0.1:" + port +
             " </dev/null >/dev/null 2>&1 || true");
    one.go_on(200);
    // One that belongs here, and leaves.
    CHECK(client::connect(ours.to(node.port)).value().stats().has_value());
    one.go_on(200);
    auto plain = ours.to(node.port);
    plain.tls_certificate = plain.tls_key = plain.tls_ca = "";
    plain.connect_timeout = 500ms;
    CHECK(!client::connect(plain));
    one.go_on(200);
  }
}

TEST_CASE("a node and its clients go on when the files of TLS are replaced or removed") {
  const authority ours;
  copy_files(ours, "node");
  copy_files(ours, "lost");
  copy_files(ours, "late");
  const auto from = [&](const std::string& folder, std::uint16_t port) {
    auto out = ours.to(port);
    out.tls_certificate = ours.file(folder + "/node.crt");
    out.tls_key = ours.file(folder + "/node.key");
    out.tls_ca = ours.file(folder + "/ca.crt");
    return out;
  };
  std::optional<node_process> node(std::in_place, child_settings{{"TLS", ours.file("node")}});
  const auto port = node->port;
  const auto engine = client::connect(from("lost", port));
  REQUIRE_MESSAGE(engine, engine.error().message);
  {
    reading one(*engine);
    one.go_on(10);
    const char* const ends[] = {
      "openssl ecparam -name prime256v1 -genkey -noout -out node/node.key",
      "echo nothing > node/node.crt", "chmod 0 node/ca.crt", "rm -r node lost"};
    for (const auto* command : ends) {
      ours.run(command);
      { const stranger bare(port); }
      const auto late = client::connect(from("late", port));
      REQUIRE_MESSAGE(late, command);
      CHECK(late->stats().has_value());
      one.go_on(200);
    }
  }
  // The client finds the node again with what it once read.
  node.reset();
  copy_files(ours, "node");
  node.emplace(child_settings{{"TLS", ours.file("node")}, {"PORT", std::to_string(port)}});
  CHECK(eventually([&] { return engine->stats().has_value(); }));
}

TEST_CASE("strangers who take every descriptor of a node over TLS do not end it") {
  const authority ours;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  auto few = before;
  few.rlim_cur = 64;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);  // which the child keeps
  node_process node(child_settings{{"TLS", ours.path()}});
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  {
    std::vector<std::unique_ptr<stranger>> many;
    for (int i = 0; i < 100; ++i) many.push_back(std::make_unique<stranger>(node.port));
    std::this_thread::sleep_for(200ms);
    CHECK(node.process.ask("rest") == "at rest");
  }
  const auto engine = client::connect(ours.to(node.port));
  REQUIRE_MESSAGE(engine, engine.error().message);
  CHECK(engine->stats().has_value());
}
