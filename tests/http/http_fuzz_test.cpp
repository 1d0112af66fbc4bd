// Damaged requests by the thousand: no crash, no hang, and every answer a refusal or a success.
#include <doctest/doctest.h>

#include <array>
#include <set>
#include <string>

#include <fmt/format.h>

#include "runtime/http/http_server.hpp"
#include "tests/http/http_fixture.hpp"
#include "tests/http/raw_client.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::array<std::string_view, 7> valid_requests{
  "GET /a/path?with=query&and=%20 HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n",
  "POST /v1/chat HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: "
  "27\r\n\r\n"
  "{\"messages\":[],\"stream\":1}\n",
  "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
  "chunked\r\n\r\n5;ext=\"q\"\r\nhello\r\n1\r\n!\r\n"
  "0\r\nTrailer: t\r\n\r\n",
  "POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
  "HEAD /h HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\nGET /i HTTP/1.1\r\nHost: h\r\n\r\n",
  "GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /older HTTP/1.0\r\n\r\n",
  "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX: folded\r\n value\r\n\r\n"};

/// Statuses of all answers in what a server has sent; the body of each is "ok" or an error.
std::set<int> statuses_in(const std::string& received) {
  std::set<int> statuses;
  for (auto at = received.find("HTTP/1.1 "); at != std::string::npos;
       at = received.find("HTTP/1.1 ", at + 1))
    statuses.insert(std::atoi(received.c_str() + at + 9));
  return statuses;
}

}  // namespace

TEST_CASE("damaged requests are answered or refused, and never harm the next client") {
  http_server_options options;
  options.max_header_bytes = 2000;
  options.max_headers = 20;
  options.max_body_bytes = 5000;
  options.refuse = [](const error& why) {
    return http_response{http_status_of(why.code), {}, std::string(name_of(why.code))};
  };
  auto opened = http_server::open(options, [](auto request, auto reply) {
    if (request->body.size() % 2 == 0) return reply->send({200, {}, "ok"});
    reply->begin(200, {});
    reply->write("ok");
    reply->end();
  });
  REQUIRE(opened);
  const auto port = (*opened)->port();
  const std::set<int> allowed{100, 200, 400, 413, 417, 431, 501, 505};
  mutator mutate(2026);
  std::set<int> seen;
  const int mutants = with_effort(10'000);
  for (int i = 0; i < mutants; ++i) {
    const auto valid = valid_requests[mutate.below(valid_requests.size())];
    const auto mutant = mutate.once_in(2) ? mutate.bytes(valid) : mutate.text(valid);
    raw_client client(port);
    const auto cut = mutate.once_in(2) ? mutant.size() : mutate.below(mutant.size() + 1);
    client.send(std::string_view(mutant).substr(0, cut));
    client.send(std::string_view(mutant).substr(cut));
    client.shutdown_send();
    CAPTURE(i);
    CAPTURE(mutant);
    REQUIRE(client.read_to_end());
    for (const int status : statuses_in(client.unread())) {
      REQUIRE(allowed.contains(status));
      seen.insert(status);
    }
    client.reset();
    if (i % 1000 != 0) continue;
    raw_client plain(port);
    plain.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    REQUIRE(plain.read_answer().body == "ok");
  }
  // The mutants reach far: past the request line, the header, the body.
  CHECK(seen.contains(100));
  CHECK(seen.contains(200));
  CHECK(seen.contains(400));
  CHECK(seen.contains(413));
  CHECK(soon([&] { return (*opened)->stats().open_connections <= 1; }));
  CHECK((*opened)->stats().gone_clients == 0);
}
