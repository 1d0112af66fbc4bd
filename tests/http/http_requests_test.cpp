// What a server takes for a request, how it answers, what it refuses: raw bytes in, raw bytes out.
#include <doctest/doctest.h>

#include <string>

#include <fmt/format.h>

#include "runtime/http/http_server.hpp"
#include "tests/http/http_fixture.hpp"
#include "tests/http/raw_client.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

raw_answer ask(http_fixture& fixture, std::string_view request) {
  auto client = fixture.connect();
  client.send(request);
  return client.read_answer();
}

/// A request that must be refused and end its connection in good order.
raw_answer refused(http_fixture& fixture, std::string_view request) {
  auto client = fixture.connect();
  client.send(request);
  auto answer = client.read_answer();
  CHECK(answer.is_complete);
  CHECK(answer.header("Connection") == "close");
  CHECK(answer.header("Content-Type") == "application/json");
  CHECK(client.read_to_end());
  return answer;
}

}  // namespace

TEST_CASE("a request is answered with the headers of the house and the connection stays") {
  http_fixture fixture;
  auto client = fixture.connect();
  for (int i = 0; i < 3; ++i) {
    client.send("POST /echo?a=%20b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    const auto answer = client.read_answer();
    CHECK(answer.status == 200);
    CHECK(answer.body == "POST a=%20b hello");
    CHECK(answer.header("Content-Length") == "17");
    CHECK(answer.header("Server") == "deepinfer");
    CHECK(answer.header("Date").ends_with(" GMT"));
    CHECK(answer.header("Connection") == "keep-alive");
    CHECK(answer.header("Keep-Alive") == "timeout=120");
  }
  CHECK(fixture.server().stats().requests == 3);
  CHECK(fixture.server().stats().connections == 1);
}

TEST_CASE("a path comes decoded, a peer with its port, headers in any case") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET http://h:80/%6beep?q HTTP/1.1\r\nhOST: h\r\nX-Two: 1\r\nx-two: 2\r\n\r\n");
  const auto& kept = fixture.kept();
  CHECK(kept.request->path == "/keep");
  CHECK(kept.request->query == "q");
  CHECK(kept.request->count("X-TWO") == 2);
  REQUIRE(kept.request->header("X-TWO") != nullptr);
  CHECK(*kept.request->header("X-TWO") == "1");
  CHECK(kept.request->header("X-Three") == nullptr);
  CHECK(kept.request->peer.starts_with("127.0.0.1:"));
  CHECK(kept.request->received_us > 0);
  kept.reply->send({});
  CHECK(client.read_answer().status == 200);
}

TEST_CASE("requests written in one go are answered in their order") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /one HTTP/1.1\r\nHost: h\r\n\r\nGET /keep HTTP/1.1\r\nHost: h\r\n\r\n"
              "GET /three HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(client.read_answer().body == "/one");
  fixture.kept().reply->send({200, {}, "two"});
  CHECK(client.read_answer().body == "two");
  CHECK(client.read_answer().body == "/three");
}

TEST_CASE("more requests than may wait are read later, and none is lost") {
  http_server_options options;
  options.max_pipelined = 2;
  http_fixture fixture(options);
  auto client = fixture.connect();
  std::string many;
  for (int i = 0; i < 2000; ++i)
    many += fmt::format("GET {} HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n",
                        i == 0 ? "/keep" : fmt::format("/{}", i), std::string(60, 'x'));
  REQUIRE(client.send(many));
  fixture.kept().reply->send({200, {}, "first"});
  CHECK(client.read_answer().body == "first");
  for (int i = 1; i < 2000; ++i) REQUIRE(client.read_answer().body == fmt::format("/{}", i));
}

TEST_CASE("a body in chunks of one byte, with extensions and trailers, is one body") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char c : std::string("one byte each")) {
    client.send("1;note=x\r\n");
    client.send(std::string(1, c));
    client.send("\r\n");
  }
  client.send(
    "0\r\nX-Trailer: ignored\r\nX-Other: too\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(client.read_answer().body == "POST  one byte each");
  CHECK(client.read_answer().body == "/next");
}

TEST_CASE("a request may come byte by byte, with line ends before it") {
  http_fixture fixture;
  auto client = fixture.connect();
  for (const char c : std::string("\r\n\r\nPOST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
                                  "\r\nabc"))
    client.send(std::string(1, c));
  CHECK(client.read_answer().body == "POST  abc");
}

TEST_CASE("Expect: 100-continue is answered once the body may come") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send(
    "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  REQUIRE(client.read_until("\r\n\r\n"));
  CHECK(client.unread() == "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("body");
  CHECK(client.read_answer().body == "POST  body");
}

TEST_CASE("Expect: 100-continue waits for the answers before it") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /keep HTTP/1.1\r\nHost: h\r\n\r\nPOST /echo HTTP/1.1\r\nHost: h\r\n"
              "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  fixture.kept().reply->send({200, {}, "first"});
  CHECK(client.read_answer().body == "first");
  REQUIRE(client.read_until("100 Continue\r\n\r\n"));
  client.send("body");
  CHECK(client.read_answer().body == "POST  body");
}

TEST_CASE("a body that is not admitted is never asked for") {
  http_server_options options;
  options.admit = [](const http_request& request) -> result<void> {
    if (request.header("Authorization") == nullptr) return fail(errc::unauthenticated, "no key");
    return {};
  };
  http_fixture fixture(options);
  const auto answer =
    refused(fixture, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n"
                     "Expect: 100-continue\r\n\r\n");
  CHECK(answer.status == 401);
  CHECK(answer.body == "{\"error\":\"unauthenticated\"}");
  SUBCASE("without a body the connection goes on") {
    auto client = fixture.connect();
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n"
                "Authorization: x\r\n\r\n");
    CHECK(client.read_answer().status == 401);
    CHECK(client.read_answer().body == "/b");
  }
}

TEST_CASE("HEAD gets the header of the answer and no body") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("HEAD /path HTTP/1.1\r\nHost: h\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto answer = client.read_answer(true);
  CHECK(answer.status == 200);
  CHECK(answer.header("Content-Length") == "5");
  CHECK(client.read_answer().body == "/next");
}

TEST_CASE("OPTIONS and methods nobody knows reach the handler") {
  http_fixture fixture;
  CHECK(ask(fixture, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").body == "*");
  CHECK(ask(fixture, "BREW /echo HTTP/1.1\r\nHost: h\r\n\r\n").body == "BREW  ");
}

TEST_CASE("HTTP/1.0 closes unless it was asked to stay") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n");
  auto answer = client.read_answer();
  CHECK(answer.body == "/a");
  CHECK(answer.header("Connection") == "keep-alive");
  answer = client.read_answer();
  CHECK(answer.body == "/b");
  CHECK(answer.header("Connection") == "close");
  CHECK(client.read_to_end());
}

TEST_CASE("Connection: close ends the connection after the answer") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /a HTTP/1.1\r\nHost: h\r\nConnection: TE, Close\r\n\r\n");
  const auto answer = client.read_answer();
  CHECK(answer.body == "/a");
  CHECK(answer.header("Connection") == "close");
  CHECK(client.read_to_end());
}

TEST_CASE("a body whose length is told twice is refused") {
  http_fixture fixture;
  const auto status_of = [&](std::string_view headers) {
    return refused(fixture,
                   fmt::format("POST /echo HTTP/1.1\r\nHost: h\r\n{}\r\n5\r\nhello\r\n0\r\n"
                               "\r\nGET /hidden HTTP/1.1\r\nHost: h\r\n\r\n",
                               headers))
      .status;
  };
  CHECK(status_of("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") == 400);
  CHECK(status_of("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") == 400);
  CHECK(status_of("Content-Length: 5\r\nContent-Length: 5\r\n") == 400);
  CHECK(status_of("Content-Length: 5\r\nContent-Length: 6\r\n") == 400);
  CHECK(status_of("Content-Length: 5, 5\r\n") == 400);
  CHECK(status_of("Content-Length: -5\r\n") == 400);
  CHECK(status_of("Content-Length: 5x\r\n") == 400);
  CHECK(status_of("Content-Length: \r\n") == 400);
  CHECK(status_of("Content-Length: 99999999999999999999999\r\n") == 400);
  CHECK(status_of("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") == 400);
  CHECK(status_of("Transfer-Encoding: gzip, chunked\r\n") == 501);
  CHECK(status_of("Transfer-Encoding: identity\r\n") == 501);
  CHECK(status_of("Transfer-Encoding: chunked\r\nContent-Length : 5\r\n") == 400);
  CHECK(fixture.server().stats().requests == 0);
  CHECK(fixture.is_alive());
}

TEST_CASE("what is no HTTP is refused in the form of the product") {
  http_fixture fixture;
  const auto status_of = [&](std::string_view bytes) { return refused(fixture, bytes).status; };
  CHECK(status_of("nonsense\r\n\r\n") == 400);
  CHECK(status_of("GET  / HTTP/1.1\r\nHost: h\r\n\r\n") == 400);
  CHECK(status_of("GET nowhere HTTP/1.1\r\nHost: h\r\n\r\n") == 400);
  CHECK(status_of("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/2.0\r\nHost: h\r\n\r\n") == 505);
  CHECK(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == 505);
  CHECK(status_of("GET / HTTP/1.1\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: h\r\nExpect: a-miracle\r\n\r\n") == 417);
  CHECK(status_of("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n") ==
        400);
  CHECK(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == 400);
  CHECK(status_of(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15)) == 400);
  CHECK(fixture.server().stats().requests == 0);
  CHECK(fixture.server().stats().refused == 13);
}

TEST_CASE("lines that end with LF alone and header lines that are folded are refused") {
  http_fixture fixture;
  const auto status_of = [&](std::string_view bytes) { return refused(fixture, bytes).status; };
  CHECK(status_of("GET / HTTP/1.1\nHost: h\n\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\nHost: h\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: h\r\nX: y\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/2.0\r\nHost: h\n\r\n") == 505);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n z\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: h\r\nX:\r\n\tz\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\n Host: h\r\n\r\n") == 400);
  const auto chunked = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  CHECK(status_of(std::string(chunked) + "5\nhello\r\n0\r\n\r\n") == 400);
  // In a body lines are its own.
  const auto body =
    ask(fixture, "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n\n a\n");
  CHECK(body.status == 200);
  CHECK(fixture.is_alive());
}

TEST_CASE("headers have limits") {
  http_server_options options;
  options.max_header_bytes = 1000;
  options.max_headers = 10;
  http_fixture fixture(options);
  const auto with = [](const std::string& more) {
    return "GET /fine HTTP/1.1\r\nHost: h\r\n" + more + "\r\n";
  };
  const std::string exact(1000 - with("X: \r\n").size(), 'x');
  CHECK(ask(fixture, with("X: " + exact + "\r\n")).status == 200);
  CHECK(refused(fixture, with("X: " + exact + "x\r\n")).status == 431);
  CHECK(refused(fixture, "GET /" + std::string(5000, 'p')).status == 431);
  CHECK(refused(fixture, "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(100'000, 'y')).status ==
        431);
  std::string lines;
  for (int i = 0; i < 9; ++i) lines += "A: b\r\n";
  CHECK(ask(fixture, with(lines)).status == 200);
  CHECK(refused(fixture, with(lines + "A: b\r\n")).status == 431);
}

TEST_CASE("bodies have limits, told before they are read") {
  http_server_options options;
  options.max_body_bytes = 1000;
  http_fixture fixture(options);
  const std::string body(1000, 'b');
  CHECK(ask(fixture, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n" + body).status ==
        200);
  CHECK(refused(fixture, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n").status ==
        413);
  const std::string chunked = "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  CHECK(ask(fixture, chunked + "3e8\r\n" + body + "\r\n0\r\n\r\n").status == 200);
  CHECK(refused(fixture, chunked + "3e8\r\n" + body + "\r\n1\r\n").status == 413);
  CHECK(refused(fixture, chunked + "ffffffffffffffff\r\n").status == 413);
  CHECK(refused(fixture, chunked + "1;" + std::string(100'000, 'e')).status == 400);
}

TEST_CASE("a client that sends far too much still gets to read why it was refused") {
  http_server_options options;
  options.max_body_bytes = 1000;
  http_fixture fixture(options);
  auto client = fixture.connect();
  client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n");
  CHECK(client.send(std::string(8'000'000, 'b')));
  const auto answer = client.read_answer();
  CHECK(answer.status == 413);
  CHECK(answer.is_complete);
  CHECK(client.read_to_end());
}

TEST_CASE("a handler that drops its reply or throws has answered 500") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /drop HTTP/1.1\r\nHost: h\r\n\r\nGET /throw HTTP/1.1\r\nHost: h\r\n\r\n"
              "GET /after HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(client.read_answer().status == 500);
  const auto answer = client.read_answer();
  CHECK(answer.status == 500);
  CHECK(answer.body == "{\"error\":\"internal\"}");
  CHECK(client.read_answer().body == "/after");
}

TEST_CASE("no header of an answer can smuggle in another one") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /keep HTTP/1.1\r\nHost: h\r\n\r\n");
  fixture.kept().reply->send(
    {200,
     {{"X-Id", "a\r\nX-Evil: 1\r\n\r\nbody"}, {"Bad Name", "x"}, {"Content-Length", "999"}},
     "ok"});
  const auto answer = client.read_answer();
  CHECK(answer.header("X-Id") == "a  X-Evil: 1    body");
  CHECK(answer.header("X-Evil").empty());
  CHECK(answer.head.find("Bad Name") == std::string::npos);
  CHECK(answer.body == "ok");
}

TEST_CASE("an answer of 204 or 304 has no body and no length") {
  http_fixture fixture;
  auto client = fixture.connect();
  client.send("GET /keep HTTP/1.1\r\nHost: h\r\n\r\nGET /after HTTP/1.1\r\nHost: h\r\n\r\n");
  fixture.kept().reply->send({204, {}, "not sent"});
  const auto answer = client.read_answer();
  CHECK(answer.status == 204);
  CHECK(answer.header("Content-Length").empty());
  CHECK(client.read_answer().body == "/after");
}
