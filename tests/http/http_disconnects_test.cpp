// Clients that leave: in the middle of an answer, before it, by halves, in silence.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/http/http_server.hpp"
#include "tests/http/http_fixture.hpp"
#include "tests/http/raw_client.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::string_view keep = "POST /keep HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi";

/// Clients may close their sending side and read on.
http_server_options half_closing() {
  http_server_options options;
  options.eof_is_gone = false;
  return options;
}

/// Everything a client that has left must leave behind.
void check_left(http_fixture& fixture, kept_reply& kept, signal& gone) {
  CHECK(gone.wait());
  CHECK(kept.reply->is_gone());
  CHECK(fixture.server().stats().gone_clients == 1);
  CHECK(soon([&] { return fixture.server().stats().open_connections == 0; }));
  signal late;
  kept.reply->on_gone([&] { late.raise(); });
  CHECK(late.wait());
  CHECK(gone.count() == 1);
  kept.reply->write("ignored");
  kept.reply->end();
  CHECK(kept.reply->pending_bytes() == 0);
  CHECK(fixture.is_alive());
}

}  // namespace

TEST_CASE("a reset is noticed while nothing is written") {
  http_fixture fixture(half_closing());
  auto client = fixture.connect();
  client.send(keep);
  auto& kept = fixture.kept();
  signal gone;
  kept.reply->on_gone([&] { gone.raise(); });
  SUBCASE("before the answer") {}
  SUBCASE("between two pieces of it") {
    kept.reply->begin(200, {});
    kept.reply->write("first");
    REQUIRE(client.read_until("first"));
  }
  SUBCASE("after the client had closed its sending side") {
    client.shutdown_send();
    kept.reply->begin(200, {});
    kept.reply->write("first");
    REQUIRE(client.read_until("first"));
  }
  client.reset();
  check_left(fixture, kept, gone);
}

TEST_CASE("a reset is noticed while so much waits that nothing more is read") {
  http_server_options options;
  options.max_pipelined = 1;
  options.max_header_bytes = 1024;
  http_fixture fixture(options);
  auto client = fixture.connect();
  client.send(keep);
  auto& kept = fixture.kept();
  signal gone;
  kept.reply->on_gone([&] { gone.raise(); });
  std::string more;
  while (more.size() < 200'000) more += "GET /more HTTP/1.1\r\nHost: h\r\n\r\n";
  client.send(more);
  client.reset();
  check_left(fixture, kept, gone);
  CHECK(fixture.kept_count() == 1);
}

TEST_CASE("urgent data does not keep a reset from being noticed by the next write") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /keep HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  auto& kept = fixture.kept();
  signal gone;
  kept.reply->on_gone([&] { gone.raise(); });
  client.send_urgent();
  CHECK(fixture.is_alive());
  kept.reply->begin(200, {});
  client.reset();
  for (int i = 0; i < 1000 && gone.count() == 0; ++i) {
    kept.reply->write("piece");
    soon([&] { return kept.reply->pending_bytes() == 0; });
  }
  CHECK(gone.wait());
}

TEST_CASE("without eof_is_gone a client that closed its sending side gets all its answers") {
  http_fixture fixture(half_closing());
  auto client = fixture.connect();
  client.send(keep);
  client.send("GET /second HTTP/1.1\r\nHost: h\r\n\r\n");
  client.shutdown_send();
  auto& kept = fixture.kept();
  signal gone;
  kept.reply->on_gone([&] { gone.raise(); });
  kept.reply->begin(200, {});
  kept.reply->write("slowly ");
  REQUIRE(client.read_until("slowly "));
  kept.reply->write("but whole");
  kept.reply->end();
  auto answer = client.read_answer();
  CHECK(answer.body == "slowly but whole");
  CHECK(answer.is_complete);
  answer = client.read_answer();
  CHECK(answer.body == "/second");
  CHECK(client.read_to_end());
  CHECK(gone.count() == 0);
  CHECK(fixture.server().stats().gone_clients == 0);
}

TEST_CASE("a client that closes in good order is gone while nothing is written") {
  constexpr std::string_view last = "GET /keep HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
  const auto leaves = [](std::string_view request, bool has_begun, bool closes_all) {
    CAPTURE(request);
    CAPTURE(has_begun);
    CAPTURE(closes_all);
    http_fixture fixture;
    auto client = fixture.connect();
    client.send(request);
    auto& kept = fixture.kept();
    signal gone;
    kept.reply->on_gone([&] { gone.raise(); });
    if (has_begun) {
      kept.reply->begin(200, {});
      kept.reply->write("first");
      REQUIRE(client.read_until("first"));
    }
    if (closes_all)
      client.close();
    else
      client.shutdown_send();
    check_left(fixture, kept, gone);
  };
  for (const auto request : {keep, last})
    for (const bool has_begun : {false, true})
      for (const bool closes_all : {false, true}) leaves(request, has_begun, closes_all);
}

TEST_CASE("requests that came ahead of a client's leaving are not begun") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send(keep);
  client.send(keep);
  client.send("GET /third HTTP/1.1\r\nHost: h\r\n\r\n");
  auto& kept = fixture.kept();
  signal gone;
  kept.reply->on_gone([&] { gone.raise(); });
  client.shutdown_send();
  check_left(fixture, kept, gone);
  CHECK(client.read_to_end());
  CHECK(client.unread().empty());
  CHECK(fixture.kept_count() == 1);
}

TEST_CASE("a client that asked something short and closed at once has its answer") {
  http_fixture fixture;
  for (int i = 0; i < 50; ++i) {
    auto client = fixture.connect();
    client.send("GET /short HTTP/1.1\r\nHost: h\r\n\r\n");
    client.shutdown_send();
    REQUIRE(client.read_answer().body == "/short");
    REQUIRE(client.read_to_end());
  }
  CHECK(soon([&] { return fixture.server().stats().open_connections == 0; }));
  CHECK(fixture.server().stats().gone_clients == 0);
}

TEST_CASE("without eof_is_gone a client that closed is found out by writing to it") {
  http_fixture fixture(half_closing());
  auto client = fixture.connect();
  client.send(keep);
  auto& kept = fixture.kept();
  signal gone;
  kept.reply->on_gone([&] { gone.raise(); });
  kept.reply->begin(200, {});
  client.close();
  for (int i = 0; i < 1000 && gone.count() == 0; ++i) {
    kept.reply->write("piece");
    soon([&] { return kept.reply->pending_bytes() == 0; });
  }
  check_left(fixture, kept, gone);
}

TEST_CASE("a client that leaves after its answer has not left anything") {
  http_fixture fixture;
  signal gone;
  for (int i = 1; i <= 6; ++i) {
    auto client = fixture.connect();
    client.send(keep);
    auto& kept = fixture.kept(i);
    kept.reply->on_gone([&] { gone.raise(); });
    kept.reply->send({200, {}, "whole"});
    CHECK(client.read_answer().body == "whole");
    if (i % 2 == 0)
      client.reset();
    else
      client.close();
  }
  CHECK(soon([&] { return fixture.server().stats().open_connections == 0; }));
  CHECK(gone.count() == 0);
  CHECK(fixture.server().stats().gone_clients == 0);
}

TEST_CASE("two hundred clients that leave in mid-stream leave nothing behind") {
  http_fixture fixture;
  constexpr int clients = 200;
  signal gone;
  std::vector<raw_client> open;
  for (int i = 1; i <= clients; ++i) {
    open.push_back(fixture.connect());
    open.back().send(keep);
    auto& kept = fixture.kept(i);
    kept.reply->on_gone([&] { gone.raise(); });
    kept.reply->begin(200, {});
    kept.reply->write("piece");
  }
  for (auto& client : open) client.reset();
  CHECK(gone.wait(clients));
  CHECK(fixture.server().stats().gone_clients == clients);
  CHECK(soon([&] { return fixture.server().stats().open_connections == 0; }));
}

TEST_CASE("a request that is cut off by its client is forgotten") {
  http_fixture fixture;
  for (const auto* part : {"", "GE", "GET /keep HTTP/1.1\r\nHost",
                           "POST /keep HTTP/1.1\r\nHost: h\r\n"
                           "Content-Length: 5\r\n\r\nhel",
                           "POST /keep HTTP/1.1\r\nHost: h\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    auto half = fixture.connect();
    half.send(part);
    half.shutdown_send();
    CHECK(half.read_to_end());
    CHECK(half.unread().empty());
    auto rude = fixture.connect();
    rude.send(part);
    rude.reset();
  }
  CHECK(soon([&] { return fixture.server().stats().open_connections == 0; }));
  CHECK(fixture.server().stats().requests == 0);
}
