// Answers that come in pieces: framing, flushing, back-pressure, ends and cuts.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "runtime/http/http_server.hpp"
#include "tests/http/http_fixture.hpp"
#include "tests/http/raw_client.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::string_view keep = "GET /keep HTTP/1.1\r\nHost: h\r\n\r\n";
const std::vector<http_header> text{{"Content-Type", "text/event-stream"}};

}  // namespace

TEST_CASE("a stream is chunked and every piece is there before the next one is made") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send(keep);
  auto& reply = *fixture.kept().reply;
  reply.begin(200, text);
  REQUIRE(client.read_until("\r\n\r\n"));
  CHECK(client.unread().find("Transfer-Encoding: chunked\r\n") != std::string::npos);
  CHECK(client.unread().find("Content-Type: text/event-stream\r\n") != std::string::npos);
  client.take(client.unread().size());
  for (int i = 0; i < 20; ++i) {
    reply.write(fmt::format("piece {}", i));
    REQUIRE(client.read_until(fmt::format("piece {}\r\n", i)));
  }
  reply.end();
  REQUIRE(client.read_until("0\r\n\r\n"));
  client.take(client.unread().size());
  client.send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(client.read_answer().body == "/next");
}

TEST_CASE("a stream that ends at once is whole, an empty one too") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send(std::string(keep) + std::string(keep));
  auto first = fixture.kept(1).reply;
  first->begin(200, text);
  first->write("all");
  first->write("");
  first->write(" of it");
  first->end();
  first->write("nothing of this");
  first->send({500, {}, "nor this"});
  auto answer = client.read_answer();
  CHECK(answer.is_complete);
  CHECK(answer.body == "all of it");
  auto second = fixture.kept(2).reply;
  second->begin(200, text);
  second->end();
  answer = client.read_answer();
  CHECK(answer.is_complete);
  CHECK(answer.body.empty());
}

TEST_CASE("a stream for HTTP/1.0 ends with its connection") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /keep HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  auto& reply = *fixture.kept().reply;
  reply.begin(200, text);
  reply.write("one ");
  reply.write("two");
  reply.end();
  const auto answer = client.read_answer();
  CHECK(answer.header("Transfer-Encoding").empty());
  CHECK(answer.header("Connection") == "close");
  CHECK(answer.body == "one two");
  CHECK(answer.is_complete);
}

TEST_CASE("HEAD of a stream gets its header only") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("HEAD /keep HTTP/1.1\r\nHost: h\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n");
  auto& reply = *fixture.kept().reply;
  reply.begin(200, text);
  reply.write("not sent");
  reply.end();
  CHECK(client.read_answer(true).status == 200);
  CHECK(client.read_answer().body == "/next");
  CHECK(reply.pending_bytes() == 0);
}

TEST_CASE("a cut stream is seen to be incomplete") {
  http_fixture fixture;
  auto client = fixture.connect();
  SUBCASE("in chunks") {
    client.send(keep);
    auto& kept = fixture.kept();
    kept.reply->begin(200, text);
    kept.reply->write("half");
    SUBCASE("cut") {
      kept.reply->cut();
    }
    SUBCASE("dropped") {
      kept.reply.reset();
    }
    SUBCASE("answered again") {
      kept.reply->send({200, {}, "other"});
    }
    const auto answer = client.read_answer();
    CHECK(answer.status == 200);
    CHECK(answer.body == "half");
    CHECK(!answer.is_complete);
    CHECK(!client.was_reset());
  }
  SUBCASE("HTTP/1.0") {
    client.send("GET /keep HTTP/1.0\r\n\r\n");
    auto& kept = fixture.kept();
    kept.reply->begin(200, text);
    kept.reply->write("half");
    REQUIRE(client.read_until("half"));
    kept.reply->cut();
    CHECK(!client.read_to_end());
    CHECK(client.was_reset());
  }
}

TEST_CASE("a slow reader fills its own buffer, and is told of when it has read") {
  http_fixture fixture;
  auto client = fixture.connect(4096);
  client.send(keep);
  auto reply = fixture.kept().reply;
  signal drained;
  constexpr std::size_t low = 64 << 10;
  reply->on_drained(low, [&] { drained.raise(); });
  reply->begin(200, text);
  const std::string piece(16 << 10, 'p');
  std::size_t written = 0;
  while (reply->pending_bytes() < 512 << 10 && written < 64 << 20) {
    reply->write(piece);
    written += piece.size();
  }
  // What the kernel took is bounded as well, whatever it could hold.
  CHECK(written < 8 << 20);
  // While the first pieces were written the kernel may have taken all there was.
  const auto before = drained.count();
  CHECK(fixture.is_alive());
  reply->end();
  const auto answer = client.read_answer();
  CHECK(answer.is_complete);
  CHECK(answer.body.size() == written);
  CHECK(soon([&] { return drained.count() > before; }));
  CHECK(soon([&] { return reply->pending_bytes() == 0; }));
}

TEST_CASE("a stream that is held back by on_drained never holds more than it is allowed") {
  http_fixture fixture;
  auto client = fixture.connect(4096);
  client.send(keep);
  auto reply = fixture.kept().reply;
  constexpr std::size_t high = 256 << 10;
  const std::string piece(10'000, 'p');
  std::size_t left = 4 << 20;
  std::atomic<std::size_t> most{0};
  const auto fill = [&, reply] {
    while (left > 0 && reply->pending_bytes() < high) {
      const auto size = std::min(left, piece.size());
      reply->write(piece.substr(0, size));
      left -= size;
      most = std::max(most.load(), reply->pending_bytes());
    }
    if (left == 0) reply->end();
  };
  reply->begin(200, text);
  reply->on_drained(high / 4, fill);
  fixture.server().after(std::chrono::milliseconds(0), fill);
  const auto answer = client.read_answer();
  CHECK(answer.is_complete);
  CHECK(answer.body.size() == 4 << 20);
  CHECK(most <= high + piece.size());
}

TEST_CASE("a client that takes nothing for too long is gone") {
  http_server_options options;
  options.write_timeout = std::chrono::milliseconds(100);
  http_fixture fixture(options);
  auto client = fixture.connect(4096);
  client.send(keep);
  auto reply = fixture.kept().reply;
  signal gone;
  reply->on_gone([&] { gone.raise(); });
  reply->begin(200, text);
  reply->write(std::string(32 << 20, 'x'));
  CHECK(gone.wait());
  CHECK(reply->is_gone());
  CHECK(reply->pending_bytes() == 0);
  CHECK(fixture.server().stats().gone_clients == 1);
}

TEST_CASE("many streams are written from several threads, each in its order") {
  http_fixture fixture;
  constexpr int streams = 64;
  constexpr int pieces = 100;
  std::vector<raw_client> clients;
  for (int i = 0; i < streams; ++i) {
    clients.push_back(fixture.connect());
    clients.back().send(keep);
  }
  fixture.kept(streams);
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t)
    writers.emplace_back([&fixture, t] {
      for (int p = -1; p <= pieces; ++p)
        for (int s = t; s < streams; s += 4) {
          auto& reply = *fixture.kept(s + 1).reply;
          if (p < 0)
            reply.begin(200, {});
          else if (p < pieces)
            reply.write(fmt::format("{} ", p));
          else
            reply.end();
        }
    });
  std::string expected;
  for (int p = 0; p < pieces; ++p) expected += fmt::format("{} ", p);
  for (auto& client : clients) {
    const auto answer = client.read_answer();
    CHECK(answer.is_complete);
    CHECK(answer.body == expected);
    CHECK(answer.chunks <= pieces);
  }
  for (auto& writer : writers) writer.join();
}

TEST_CASE("a reply that outlives its server does nothing") {
  std::shared_ptr<http_reply> reply;
  std::shared_ptr<http_reply> other;
  signal gone;
  {
    http_fixture fixture;
    auto client = fixture.connect();
    auto second = fixture.connect();
    client.send(keep);
    reply = fixture.kept(1).reply;
    second.send(keep);
    other = fixture.kept(2).reply;
    reply->on_gone([&] { gone.raise(); });
    reply->begin(200, text);
  }
  CHECK(gone.count() == 1);
  CHECK(reply->is_gone());
  reply->write("into the void");
  reply->end();
  other->send({200, {}, "late"});
  other->on_gone([&] { gone.raise(); });
  CHECK(reply->pending_bytes() == 0);
}
