// The parts of HTTP that need no socket: targets, header words, events, replies, framing.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/http/answer_writer.hpp"
#include "runtime/http/header_text.hpp"
#include "runtime/http/reply_state.hpp"
#include "runtime/http/sse.hpp"
#include "runtime/http/uri.hpp"

using namespace deepinfer;

namespace {

/// A reply and the bell that it rings.
struct reply_world {
  reply_world() = default;
  reply_world(const reply_world&) = delete;
  reply_world& operator=(const reply_world&) = delete;
  ~reply_world() { bell->close(); }

  int wakes = 0;
  std::shared_ptr<reply_doorbell> bell = std::make_shared<reply_doorbell>([this] { ++wakes; });
  std::shared_ptr<reply_state> reply =
    std::make_shared<reply_state>(bell, std::weak_ptr<reply_owner>());
  reply_part part;
};

std::string bytes_of(const outgoing& out) {
  std::string all;
  for (const auto part : out.rest()) all += part;
  return all;
}

}  // namespace

TEST_CASE("percent-decoding takes two hexadecimal digits and nothing else") {
  CHECK(percent_decode("a%20b%2Fc%2f+").value() == "a b/c/+");
  CHECK(percent_decode("%00").value() == std::string(1, '\0'));
  CHECK(percent_decode("").value().empty());
  for (const auto* bad : {"%", "%1", "%g0", "%0g", "a%%20", "%-1"})
    CHECK(percent_decode(bad).error().code == errc::invalid_argument);
}

TEST_CASE("a target is a path, an absolute URI or a star") {
  const auto path_of = [](std::string_view target) { return split_target(target).value().path; };
  CHECK(path_of("/a/b%20c?d=%20#f") == "/a/b c");
  CHECK(split_target("/a?b?c=%20#f")->query == "b?c=%20");
  CHECK(path_of("http://host:1/x?y") == "/x");
  CHECK(path_of("http://host") == "/");
  CHECK(path_of("http://host?q") == "/");
  CHECK(path_of("*") == "*");
  CHECK(path_of("//double") == "//double");
  for (const auto* bad : {"", "a", "host:443", "://x/", "%2Fa", "ht tp://h/"})
    CHECK(!split_target(bad));
}

TEST_CASE("values of a query are found by name and decoded") {
  CHECK(query_value("a=1&b=x+y%21&a=2", "a") == "1");
  CHECK(query_value("a=1&b=x+y%21&a=2", "b") == "x y!");
  CHECK(query_value("a=1&flag&c=", "flag") == "");
  CHECK(query_value("a=1&flag&c=", "c") == "");
  CHECK(query_value("n%61me=v=w", "name") == "v=w");
  CHECK(!query_value("a=1", "b"));
  CHECK(query_value("a=%1", "a") == "%1");
  CHECK(!query_value("", "a"));
}

TEST_CASE("words of headers are compared in any case") {
  CHECK(equal_ignoring_case("Content-LENGTH", "content-length"));
  CHECK(!equal_ignoring_case("a", "ab"));
  CHECK(!equal_ignoring_case("[", "{"));
  CHECK(has_token("keep-alive , Upgrade", "upgrade"));
  CHECK(has_token("close", "close"));
  CHECK(!has_token("closed, not-close", "close"));
  CHECK(!has_token("", "close"));
  CHECK(is_header_name("X-Request_Id"));
  CHECK(!is_header_name(""));
  CHECK(!is_header_name("a b"));
  CHECK(!is_header_name("a:"));
  CHECK(clean_header_value("a\r\nb\0c\x7f\t\xc3\xa9") == "a  b");  // a literal ends at its NUL
  CHECK(clean_header_value(std::string_view("a\0b\x7f\t\xc3\xa9", 7)) == "a b \t\xc3\xa9");
}

TEST_CASE("a date has the one form of HTTP") {
  CHECK(http_date(784111777) == "Sun, 06 Nov 1994 08:49:37 GMT");
  CHECK(http_date(951782400) == "Tue, 29 Feb 2000 00:00:00 GMT");
}

TEST_CASE("events are framed so that no data can end one early") {
  CHECK(sse_event("{\"a\":1}") == "data: {\"a\":1}\n\n");
  CHECK(sse_event("") == "data: \n\n");
  CHECK(sse_event("a\nb\r\nc\rd") == "data: a\ndata: b\ndata: c\ndata: d\n\n");
  CHECK(sse_event("a\n") == "data: a\ndata: \n\n");
  CHECK(sse_comment("keep-alive") == ": keep-alive\n\n");
  CHECK(sse_comment("a\nevent: x") == ": a event: x\n\n");
  CHECK(sse_done() == "data: [DONE]\n\n");
}

TEST_CASE("a reply rings once for all that is said before it is heard") {
  reply_world world;
  auto& reply = *world.reply;
  reply.begin(200, {});
  reply.write("a");
  reply.write("b");
  CHECK(world.wakes == 1);
  CHECK(reply.pending_bytes() == 2);
  for (const auto& rung : world.bell->take()) rung->answer_bell();
  REQUIRE(reply.take(world.part));
  CHECK(world.part.head->status == 200);
  CHECK(world.part.piece == "ab");
  CHECK(!world.part.is_end);
  CHECK(!reply.take(world.part));
  reply.write("c");
  CHECK(world.wakes == 2);
  CHECK(reply.pending_bytes() == 3);
  reply.taken(0);
  CHECK(reply.pending_bytes() == 1);
}

TEST_CASE("on_drained is called each time what is pending falls far enough, and only then") {
  reply_world world;
  auto& reply = *world.reply;
  int drained = 0;
  reply.begin(200, {});
  reply.on_drained(10, [&] { ++drained; });
  reply.write(std::string(10, 'x'));
  reply.take(world.part);
  reply.taken(0);
  CHECK(drained == 0);  // it was never above
  for (int i = 1; i <= 2; ++i) {
    reply.write(std::string(30, 'x'));
    reply.take(world.part);
    reply.taken(20);
    reply.taken(11);
    CHECK(drained == i - 1);
    reply.taken(10);
    reply.taken(0);
    CHECK(drained == i);
  }
  reply.write(std::string(30, 'x'));
  reply.leave();
  CHECK(drained == 2);
  CHECK(reply.pending_bytes() == 0);
}

TEST_CASE("only the first answer counts, and a dropped reply says so") {
  reply_world world;
  auto& reply = *world.reply;
  SUBCASE("sent") {
    reply.send({201, {}, "x"});
    reply.send({202, {}, "y"});
    reply.begin(203, {});
    reply.drop();
    REQUIRE(reply.take(world.part));
    CHECK(world.part.head->status == 201);
    CHECK(world.part.is_whole);
  }
  SUBCASE("dropped") {
    reply_state::handle_of(world.reply).reset();
    REQUIRE(reply.take(world.part));
    CHECK(world.part.is_dropped);
  }
  SUBCASE("ended without a beginning") {
    reply.write("x");
    reply.end();
    REQUIRE(reply.take(world.part));
    CHECK(world.part.is_dropped);
    CHECK(world.part.piece.empty());
  }
  CHECK(!reply.take(world.part));
}

TEST_CASE("whoever asks later is told that the client has left, once") {
  reply_world world;
  auto& reply = *world.reply;
  int gone = 0;
  reply.leave();
  reply.on_gone([&] { ++gone; });
  CHECK(gone == 0);  // it is called on the io thread
  for (const auto& rung : world.bell->take()) rung->answer_bell();
  CHECK(gone == 1);
  SUBCASE("and a complete answer can lose nobody") {
    reply_world other;
    other.reply->complete();
    other.reply->on_gone([&] { ++gone; });
    other.reply->leave();
    CHECK(gone == 1);
  }
}

TEST_CASE("a call may hold the reply itself, and may be replaced") {
  reply_world world;
  std::weak_ptr<http_reply> watched;
  {
    auto handle = reply_state::handle_of(world.reply);
    watched = handle;
    handle->on_gone([handle] {});
    handle->on_drained(1, [handle] {});
  }
  CHECK(!watched.expired());
  SUBCASE("replaced, which drops the reply") {
    world.reply->on_gone([] {});
    world.reply->on_drained(1, [] {});
    REQUIRE(world.reply->take(world.part));
    CHECK(world.part.is_dropped);
  }
  SUBCASE("the client leaves") {
    world.reply->leave();
  }
  SUBCASE("the answer is complete") {
    world.reply->complete();
  }
  CHECK(watched.expired());
}

TEST_CASE("what is left of a payload is told to the byte, whatever stands around it") {
  answer_writer writer({});
  reply_part part;
  part.head = http_response{200, {{"X", "y"}}, {}};
  part.piece = std::string(300, 'p');
  outgoing out;
  writer.frame(part, {"name", "date", true, 75}, out);
  const auto all = bytes_of(out);
  const std::string head = "HTTP/1.1 200 OK\r\nServer: name\r\nDate: date\r\nX: y\r\n"
                           "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n"
                           "Keep-Alive: timeout=75\r\n\r\n";
  CHECK(all == head + "12c\r\n" + std::string(300, 'p') + "\r\n");
  std::size_t last = 300;
  for (std::size_t sent = 0; sent <= all.size(); ++sent) {
    out.sent = sent;
    CHECK(bytes_of(out) == all.substr(sent));
    CHECK(out.payload_left() <= last);
    CHECK(out.payload_left() <= all.size() - sent);
    last = out.payload_left();
  }
  CHECK(last == 0);
  CHECK(out.is_empty());
  CHECK(!writer.is_complete());
  out.clear();
  reply_part end;
  end.is_end = true;
  writer.frame(end, {"name", "date", true, 75}, out);
  CHECK(bytes_of(out) == "0\r\n\r\n");
  CHECK(writer.is_complete());
  CHECK(writer.keep_alive());
}
