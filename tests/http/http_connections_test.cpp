// The life of connections and of the server: how many, how long, how it stops.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>

#include "runtime/http/http_server.hpp"
#include "tests/http/http_fixture.hpp"
#include "tests/http/raw_client.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using std::chrono::milliseconds;

namespace {

constexpr std::string_view keep = "GET /keep HTTP/1.1\r\nHost: h\r\n\r\n";
constexpr std::string_view get = "GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";

std::size_t resident_bytes() {
  std::size_t all = 0, resident = 0;
  auto* file = std::fopen("/proc/self/statm", "r");
  REQUIRE(file != nullptr);
  CHECK(std::fscanf(file, "%zu %zu", &all, &resident) == 2);
  std::fclose(file);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Lets the process have that many descriptors for a while.
class descriptor_limit {
public:
  explicit descriptor_limit(rlim_t at_most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit now{std::min(at_most, before_.rlim_max), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  descriptor_limit(const descriptor_limit&) = delete;
  descriptor_limit& operator=(const descriptor_limit&) = delete;
  ~descriptor_limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("a thousand idle connections cost little and all still work") {
  const descriptor_limit limit(4096);
  http_fixture fixture;
  CHECK(fixture.is_alive());
  constexpr int count = 1000;
  [[maybe_unused]] const auto before = resident_bytes();
  std::vector<raw_client> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(fixture.connect());
    // Every second one has been served before; both kinds must be small.
    if (i % 2 == 0) continue;
    clients.back().send(
      fmt::format("POST /plain HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n\r\n{}",
                  std::string(50'000, 'b')));
    REQUIRE(clients.back().read_answer().is_complete);
  }
  REQUIRE(soon([&] { return fixture.server().stats().open_connections == count; }));
#ifndef __SANITIZE_ADDRESS__  // it keeps what is freed
  CHECK(resident_bytes() - before < 20 << 20);
#endif
  for (auto& client : clients) client.send(get);
  for (auto& client : clients) REQUIRE(client.read_answer().body == "/plain");
}

TEST_CASE("one connection too many is told so") {
  http_server_options options;
  options.max_connections = 2;
  http_fixture fixture(options);
  auto first = fixture.connect();
  auto second = fixture.connect();
  REQUIRE(soon([&] { return fixture.server().stats().open_connections == 2; }));
  auto third = fixture.connect();
  third.send(get);
  const auto answer = third.read_answer();
  CHECK(answer.status == 503);
  CHECK(answer.body == "{\"error\":\"overloaded\"}");
  CHECK(third.read_to_end());
  first.send(get);
  CHECK(first.read_answer().status == 200);
  first.close();
  third.close();
  REQUIRE(soon([&] { return fixture.server().stats().open_connections == 1; }));
  auto fourth = fixture.connect();
  fourth.send(get);
  CHECK(fourth.read_answer().status == 200);
}

TEST_CASE("a crowd far above the limit is turned away and the server goes on") {
  http_server_options options;
  options.max_connections = 1;
  http_fixture fixture(options);
  auto first = fixture.connect();
  REQUIRE(soon([&] { return fixture.server().stats().open_connections == 1; }));
  std::vector<raw_client> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(fixture.connect());
  for (auto& one : crowd) {
    one.read_until("\r\n\r\n");
    CHECK((one.unread().empty() || one.unread().starts_with("HTTP/1.1 503 ")));
  }
  crowd.clear();
  first.send(get);
  CHECK(first.read_answer().status == 200);
}

TEST_CASE("a slow header and a slow body are answered 408") {
  http_server_options options;
  options.header_timeout = milliseconds(50);
  options.body_timeout = milliseconds(50);
  http_fixture fixture(options);
  for (const auto* part :
       {"G", "GET / HTTP/1.1\r\nHost: h\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"}) {
    auto client = fixture.connect();
    client.send(part);
    const auto answer = client.read_answer();
    CHECK(answer.status == 408);
    CHECK(answer.body == "{\"error\":\"request_timeout\"}");
    CHECK(client.read_to_end());
  }
}

TEST_CASE("a header that comes in drops is refused all the same") {
  http_server_options options;
  options.header_timeout = milliseconds(100);
  http_fixture fixture(options);
  auto client = fixture.connect();
  client.send("GET / HTTP/1.1\r\nHost: h\r\n");
  // Each drop is sent as soon as the server can have read the one before.
  while (client.send("X: y\r\n") && !client.has_input(milliseconds(5))) {
  }
  CHECK(client.read_answer().status == 408);
}

TEST_CASE("an idle connection is closed without a word") {
  http_server_options options;
  options.idle_timeout = milliseconds(900);  // long enough to send a request in
  http_fixture fixture(options);
  auto silent = fixture.connect();
  CHECK(silent.read_to_end());
  CHECK(silent.unread().empty());
  auto client = fixture.connect();
  client.send(get);
  const auto answer = client.read_answer();
  CHECK(answer.status == 200);
  CHECK(answer.header("Keep-Alive").empty());
  CHECK(client.read_to_end());
  CHECK(client.unread().empty());
}

TEST_CASE("an answer may take longer than a connection may be idle") {
  http_server_options options;
  options.idle_timeout = options.header_timeout = options.body_timeout = options.write_timeout =
    milliseconds(50);
  http_fixture fixture(options);
  auto client = fixture.connect();
  client.send(keep);
  auto reply = fixture.kept().reply;
  fixture.server().after(milliseconds(300), [reply] { reply->send({200, {}, "at last"}); });
  CHECK(client.read_answer().body == "at last");
}

TEST_CASE("a server that stops closes what is idle and lets open answers end") {
  http_fixture fixture;
  auto idle = fixture.connect();
  auto half = fixture.connect();
  half.send("GET /never");
  auto busy = fixture.connect();
  busy.send(keep);
  auto reply = fixture.kept().reply;
  reply->begin(200, {});
  reply->write("begun ");
  REQUIRE(busy.read_until("begun "));
  REQUIRE(soon([&] { return fixture.server().stats().open_connections == 3; }));
  std::thread stopper([&] { fixture.server().stop(std::chrono::hours(1)); });
  CHECK(idle.read_to_end());
  CHECK(!half.read_until("x"));
  reply->write("and ended");
  reply->end();
  const auto answer = busy.read_answer();
  CHECK(answer.is_complete);
  CHECK(answer.body == "begun and ended");
  CHECK(busy.read_to_end());
  stopper.join();
  CHECK(fixture.server().stats().open_connections == 0);
  CHECK(fixture.server().stats().gone_clients == 0);
}

TEST_CASE("an answer that begins while the server stops closes its connection") {
  http_fixture fixture;
  auto busy = fixture.connect();
  busy.send(keep);
  auto reply = fixture.kept().reply;
  auto idle = fixture.connect();
  REQUIRE(soon([&] { return fixture.server().stats().open_connections == 2; }));
  std::thread stopper([&] { fixture.server().stop(std::chrono::hours(1)); });
  CHECK(idle.read_to_end());
  reply->send({200, {}, "last"});
  const auto answer = busy.read_answer();
  CHECK(answer.body == "last");
  CHECK(answer.header("Connection") == "close");
  stopper.join();
}

TEST_CASE("at its deadline a server that stops closes everything") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send(keep);
  auto reply = fixture.kept().reply;
  signal gone;
  reply->on_gone([&] { gone.raise(); });
  reply->begin(200, {});
  REQUIRE(client.read_until("\r\n\r\n"));
  fixture.server().stop(milliseconds(20));
  CHECK(gone.count() == 1);
  CHECK(reply->is_gone());
  CHECK(!client.read_answer().is_complete);
  fixture.server().stop(milliseconds(0));
}

TEST_CASE("a handler may stop the server it is called by") {
  signal called;
  http_server* server = nullptr;
  auto opened = http_server::open({}, [&](auto, auto reply) {
    reply->send({200, {}, "bye"});
    server->stop(std::chrono::hours(1));
    called.raise();
  });
  REQUIRE(opened);
  server = opened->get();
  raw_client client(server->port());
  client.send(get);
  CHECK(client.read_answer().body == "bye");
  CHECK(called.wait());
  server->stop(std::chrono::hours(1));
}

TEST_CASE("calls after a delay run on the io thread, in the order of their time") {
  http_fixture fixture;
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  signal done;
  const auto note = [&](int n) {
    return [&, n] {
      order.push_back(n);
      threads.push_back(std::this_thread::get_id());
      done.raise();
    };
  };
  fixture.server().after(milliseconds(60), note(2));
  fixture.server().after(milliseconds(0), note(1));
  fixture.server().after(milliseconds(0), [] { throw std::runtime_error("a call's own"); });
  REQUIRE(done.wait(2));
  CHECK(order == std::vector<int>{1, 2});
  CHECK(threads[0] == threads[1]);
  CHECK(threads[0] != std::this_thread::get_id());
  fixture.server().after(std::chrono::hours(1), note(3));
  fixture.server().stop(milliseconds(0));
  fixture.server().after(milliseconds(0), note(4));
  CHECK(done.count() == 2);
}

TEST_CASE("a port in use, an unknown host, a foreign address are told") {
  http_fixture fixture;
  const auto handler = [](auto, auto) {};
  http_server_options options;
  options.port = fixture.server().port();
  auto taken = http_server::open(options, handler);
  REQUIRE(!taken);
  CHECK(taken.error().code == errc::port_in_use);
  CHECK(taken.error().message.find(fmt::format("127.0.0.1:{}", options.port)) != std::string::npos);
  options.host = "203.0.113.1";  // an address for documentation, never ours
  taken = http_server::open(options, handler);
  REQUIRE(!taken);
  CHECK(taken.error().code == errc::bad_config);
  options.host = "no such host";
  taken = http_server::open(options, handler);
  REQUIRE(!taken);
  CHECK(taken.error().code == errc::bad_config);
}

TEST_CASE("without descriptors a client waits, and is served when there are some again") {
  http_fixture fixture;
  CHECK(fixture.is_alive());
  REQUIRE(soon([&] { return fixture.server().stats().open_connections == 0; }));
  const descriptor_limit limit(256);
  std::vector<int> taken;
  for (int one = ::dup(0); one >= 0; one = ::dup(0)) taken.push_back(one);
  REQUIRE(!taken.empty());
  ::close(taken.back());
  taken.pop_back();
  auto client = fixture.connect();  // takes the last one
  client.send(get);
  CHECK(!client.has_input(milliseconds(200)));
  for (const int one : taken) ::close(one);
  CHECK(client.read_answer().body == "/plain");
}
