// One connection without a socket, by a clock that stands still: deadlines, order, what is read.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/http/connection_core.hpp"

using namespace deepinfer;
using namespace std::chrono_literals;

namespace {

using ending = connection_core::ending;

/// A protocol small enough for a test: "GET 5;hello" is a request with a body of five bytes, and
/// "!" is none at all.
class short_reader final : public request_reader {
public:
  std::size_t feed(std::string_view bytes) override {
    if (bytes.front() == '!') {
      refusal_ = refusal_of(errc::invalid_argument, "not a request");
      return 1;
    }
    if (has_header_) {
      const auto used = std::min<std::size_t>(bytes.size(), length_ - request_->body.size());
      request_->body += bytes.substr(0, used);
      return used;
    }
    const auto end = bytes.find(';');
    if (end == std::string_view::npos) return 0;
    length_ = static_cast<std::size_t>(std::stoi(std::string(bytes.substr(4, end - 4))));
    request_->method = "GET";
    request_->headers = {{"Host", "h"}};
    has_header_ = true;
    return end + 1;
  }
  const std::optional<http_refusal>& refusal() const override { return refusal_; }
  bool has_header() const override { return has_header_; }
  bool is_complete() const override { return has_header_ && request_->body.size() == length_; }
  bool is_http_10() const override { return false; }
  std::uint64_t content_length() const override { return length_; }
  const std::shared_ptr<http_request>& request() const override { return request_; }

private:
  std::shared_ptr<http_request> request_ = std::make_shared<http_request>();
  std::optional<http_refusal> refusal_;
  std::size_t length_ = 0;
  bool has_header_ = false;
};

http_server_options small_options() {
  http_server_options options;
  options.max_pipelined = 3;
  options.max_header_bytes = 100;
  options.max_body_bytes = 1000;
  options.header_timeout = 10s;
  options.body_timeout = 30s;
  options.write_timeout = 60s;
  options.idle_timeout = 120s;
  return options;
}

/// A connection whose handler keeps everything. What it wants to send is taken at once, but for
/// what a test leaves in `core.output()`.
struct connection_world final : reply_owner {
  explicit connection_world(http_server_options options = small_options())
    : service(std::move(options), [this](auto request, auto reply) {
        bodies.push_back(request->body);
        replies.push_back(reply);
      }) {
    service.doorbell = std::make_shared<reply_doorbell>([] {});
    service.make_reader = [] { return std::make_unique<short_reader>(); };
    core.set_owner(self);
  }
  connection_world(const connection_world&) = delete;
  connection_world& operator=(const connection_world&) = delete;
  ~connection_world() override { service.doorbell->close(); }

  void reply_changed(reply_state& reply) override { core.reply_changed(reply, now); }
  void settle() {
    for (const auto& reply : service.doorbell->take()) reply->answer_bell();
  }
  void come(std::string_view bytes) {
    core.bytes_came(bytes, now);
    settle();
  }
  void answer(std::size_t n, const std::string& body) {
    replies.at(n)->send({200, {}, body});
    settle();
  }
  /// All that is sent, taken by the kernel.
  std::string sent() {
    std::string all;
    while (!core.output().is_empty()) {
      std::size_t size = 0;
      for (const auto part : core.output().rest()) {
        all += part;
        size += part.size();
      }
      core.bytes_sent(size, now);
      settle();
    }
    return all;
  }
  void pass(std::chrono::seconds time) {
    now += time;
    core.time_is_up(now);
    settle();
  }
  bool is_open() const { return core.how_to_end() == ending::open; }

  connection_core::time_point now{1000s};
  http_service service;
  connection_core core{service, "peer", now};
  std::vector<std::string> bodies;
  std::vector<std::shared_ptr<http_reply>> replies;
  std::shared_ptr<reply_owner> self{this, [](auto*) {}};
};

}  // namespace

TEST_CASE("an idle connection may be idle anew after each answer") {
  connection_world world;
  CHECK(world.core.deadline() == world.now + 120s);
  world.pass(119s);
  world.come("GET 0;");
  CHECK(world.core.deadline() == connection_core::time_point::max());
  world.pass(5000s);
  CHECK(world.is_open());
  world.answer(0, "x");
  world.sent();
  CHECK(world.core.deadline() == world.now + 120s);
  world.pass(119s);
  CHECK(world.is_open());
  world.pass(1s);
  CHECK(world.core.how_to_end() == ending::closed);
  CHECK(world.service.counts.refused == 0);
}

TEST_CASE("a header has its time from its first byte on, however many come") {
  connection_world world;
  world.pass(100s);
  world.come("G");
  const auto deadline = world.now + 10s;
  for (const char c : std::string("ET 12345")) {
    CHECK(world.core.deadline() == deadline);
    world.pass(1s);
    world.come(std::string(1, c));
  }
  world.pass(2s);
  CHECK(world.sent().starts_with("HTTP/1.1 408 "));
  CHECK(world.core.how_to_end() == ending::lingering);
  CHECK(world.bodies.empty());
}

TEST_CASE("a body has its time for every byte") {
  connection_world world;
  world.come("GET 3;");
  for (int i = 0; i < 2; ++i) {
    CHECK(world.core.deadline() == world.now + 30s);
    world.pass(29s);
    world.come("b");
  }
  SUBCASE("and is whole") {
    world.pass(29s);
    world.come("b");
    CHECK(world.bodies == std::vector<std::string>{"bbb"});
  }
  SUBCASE("and is late") {
    world.pass(30s);
    CHECK(world.sent().starts_with("HTTP/1.1 408 "));
  }
}

TEST_CASE("the time for a request that came ahead starts when the answer before it is complete") {
  connection_world world;
  world.come("GET 0;GE");
  world.pass(1000s);
  world.answer(0, "first");
  CHECK(world.sent().ends_with("first"));
  CHECK(world.core.deadline() == world.now + 10s);
  world.pass(9s);
  world.come("T 0;");
  CHECK(world.bodies.size() == 2);
}

TEST_CASE("a client that takes some bytes now and then stays, one that takes none is cut off") {
  connection_world world;
  int gone = 0;
  world.come("GET 0;");
  world.replies[0]->on_gone([&] { ++gone; });
  world.answer(0, std::string(1000, 'x'));
  for (int i = 0; i < 5; ++i) {
    CHECK(world.core.deadline() == world.now + 60s);
    world.pass(59s);
    world.core.bytes_sent(1, world.now);
  }
  SUBCASE("bytes that come are no sign of taking any") {
    world.pass(30s);
    world.come("GET 0;");
    CHECK(world.core.deadline() == world.now + 30s);
    world.pass(30s);
  }
  SUBCASE("silence") {
    world.pass(60s);
  }
  CHECK(world.core.how_to_end() == ending::reset);
  CHECK(gone == 1);
  CHECK(world.service.counts.gone == 1);
}

TEST_CASE("the handler gets one request of a connection at a time") {
  connection_world world;
  world.come("GET 1;aGET 1;bGET 1;cGET 1;dGET 1;e");
  for (std::size_t i = 0; i < 5; ++i) {
    REQUIRE(world.bodies.size() == i + 1);
    world.answer(i, "answer");
    CHECK(world.sent().ends_with("answer"));
  }
  CHECK(world.bodies == std::vector<std::string>{"a", "b", "c", "d", "e"});
}

TEST_CASE("what comes ahead is bounded, and read on as answers are complete") {
  connection_world world;
  std::size_t came = 0;
  const std::string request = "GET 900;" + std::string(900, 'b');
  while (world.core.wants_bytes()) {
    world.come(request);
    REQUIRE(++came < 1000);
  }
  // The bodies of two requests at most wait, and a header's size and the rest in bytes.
  CHECK(came * request.size() < 100'000);
  for (std::size_t i = 0; i < came; ++i) {
    world.answer(i, "x");
    world.sent();
  }
  CHECK(world.core.wants_bytes());
  CHECK(world.bodies.size() == came);
}

TEST_CASE("a refusal waits for the answers before it and ends the connection") {
  connection_world world;
  world.come("GET 0;GET 0;!GET 0;");
  CHECK(world.sent().empty());
  world.answer(0, "first");
  CHECK(world.sent().ends_with("first"));
  world.answer(1, "second");
  const auto rest = world.sent();
  CHECK(rest.find("second") < rest.find("HTTP/1.1 400 "));
  CHECK(world.core.how_to_end() == ending::lingering);
  CHECK(world.bodies.size() == 2);
}

TEST_CASE("behind its last answer a connection reads a bounded amount for a bounded time") {
  connection_world world;
  world.come("!");
  world.sent();
  REQUIRE(world.core.how_to_end() == ending::lingering);
  CHECK(world.core.wants_bytes());
  SUBCASE("the client closes") {
    world.core.input_ended(world.now);
  }
  SUBCASE("the client goes on and on") {
    const std::string bytes(1 << 20, 'x');
    for (int i = 0; i < 16; ++i) world.come(bytes);
    CHECK(world.core.how_to_end() == ending::lingering);
    world.come(bytes);
  }
  SUBCASE("the client is silent") {
    world.pass(4s);
    CHECK(world.core.how_to_end() == ending::lingering);
    world.pass(1s);
  }
  SUBCASE("the server stops") {
    world.core.close_if_idle();
  }
  CHECK(world.core.how_to_end() == ending::closed);
  CHECK(world.service.counts.gone == 0);
}

TEST_CASE("a server that stops waits for what has a whole header") {
  connection_world world;
  SUBCASE("a body under way") {
    world.come("GET 3;b");
  }
  SUBCASE("an answer") {
    world.come("GET 3;bbb");
  }
  world.service.is_stopping = true;
  world.core.close_if_idle();
  CHECK(world.is_open());
  if (world.bodies.empty()) world.come("bb");
  world.answer(0, "x");
  CHECK(world.sent().find("Connection: close\r\n") != std::string::npos);
  CHECK(world.core.how_to_end() == ending::lingering);
}

TEST_CASE("a server that stops does not wait for half a header") {
  connection_world world;
  world.come("GET");
  world.core.close_if_idle();
  CHECK(world.core.how_to_end() == ending::closed);
}

TEST_CASE("a client that closes its sending side has left, or reads on where that is set") {
  enum class at_work { nothing, a_stream, a_whole_answer };
  const auto leaves = [](bool is_gone, at_work what) {
    CAPTURE(is_gone);
    CAPTURE(static_cast<int>(what));
    auto options = small_options();
    options.eof_is_gone = is_gone;
    connection_world world(options);
    int gone = 0;
    world.come("GET 1;aGET 1;bGET 1;");
    auto& first = *world.replies.at(0);
    first.on_gone([&] { ++gone; });
    if (what == at_work::a_stream) {
      first.begin(200, {});
      first.write("piece");
      world.settle();
      CHECK(world.sent().find("piece") != std::string::npos);
    } else if (what == at_work::a_whole_answer) {
      world.answer(0, "whole");
      world.core.bytes_sent(1, world.now);
    }
    world.core.input_ended(world.now);
    if (what == at_work::a_whole_answer) {
      CHECK(world.is_open());
      CHECK(world.sent().ends_with("whole"));
    } else if (!is_gone) {
      if (what == at_work::a_stream)
        first.end();
      else
        first.send({200, {}, "late"});
      world.settle();
      CHECK(world.sent().size() > 4);
    }
    REQUIRE(world.bodies.size() == (is_gone ? 1u : 2u));
    if (!is_gone) {
      world.answer(1, "second");
      CHECK(world.sent().ends_with("second"));
    }
    CHECK(world.core.how_to_end() == ending::closed);
    CHECK(gone == (is_gone && what != at_work::a_whole_answer ? 1 : 0));
    CHECK(world.service.counts.gone == static_cast<std::uint64_t>(gone));
  };
  for (const bool is_gone : {true, false})
    for (const auto what : {at_work::nothing, at_work::a_stream, at_work::a_whole_answer})
      leaves(is_gone, what);
}
