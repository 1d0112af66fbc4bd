#include "runtime/http/response_parser.hpp"

#include <doctest/doctest.h>

#include "runtime/http/event_reader.hpp"
#include "runtime/http/load_client.hpp"

using namespace deepinfer;

namespace {

struct reading {
  bool is_complete = false;
  int status = 0;
  std::string body;
  bool keeps_alive = false;
  std::size_t taken = 0;
  std::string failure;
};

/// Fed in pieces of `size` bytes, then the end of the connection where it is not complete.
reading read_in_pieces(std::string_view bytes, std::size_t size) {
  reading out;
  response_parser parser([&out](std::string_view piece) { out.body += piece; });
  while (out.taken < bytes.size() && !parser.is_complete()) {
    const auto fed = parser.feed(bytes.substr(out.taken, size));
    if (!fed) {
      out.failure = fed.error().message;
      return out;
    }
    out.taken += *fed;
  }
  if (const auto ended = parser.finish(); !ended) out.failure = ended.error().message;
  out.is_complete = parser.is_complete();
  out.status = parser.status();
  out.keeps_alive = parser.keeps_alive();
  return out;
}

}  // namespace

TEST_CASE("an answer is read the same in pieces of any size") {
  struct row {
    std::string_view bytes;
    int status;
    std::string_view body;
    bool keeps_alive;
    std::size_t behind;  ///< bytes of the next answer
  };
  const row rows[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP", 200, "hello", true, 4},
    {"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n"
     "X: y\r\n\r\n",
     200, "abc0123456789", true, 0},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, "",
     true, 0},
    {"HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end", false, 0},
    {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 200, "x", false, 0},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", true, 0},
  };
  for (const auto& it : rows) {
    for (std::size_t size = 1; size <= it.bytes.size(); ++size) {
      CAPTURE(it.bytes);
      CAPTURE(size);
      const auto got = read_in_pieces(it.bytes, size);
      CHECK(got.failure == "");
      CHECK(got.is_complete);
      CHECK(got.status == it.status);
      CHECK(got.body == it.body);
      CHECK(got.keeps_alive == it.keeps_alive);
      CHECK(got.taken == it.bytes.size() - it.behind);
    }
  }
}

TEST_CASE("what is no answer, or ends within one, is an error that says so") {
  for (const std::string_view bytes :
       {"SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 2", ""}) {
    CAPTURE(bytes);
    CHECK(read_in_pieces(bytes, 3).failure != "");
  }
}

TEST_CASE("events are read in pieces of any size, comments are not events") {
  const std::string_view bytes = ": keep-alive\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:two\r\ndata: "
                                 "lines\r\n\r\ndata: [DONE]\n\n";
  for (std::size_t size = 1; size <= bytes.size(); ++size) {
    CAPTURE(size);
    std::vector<std::string> events;
    event_reader reader([&events](std::string_view data) { events.emplace_back(data); });
    for (std::size_t at = 0; at < bytes.size(); at += size) reader.feed(bytes.substr(at, size));
    CHECK(events == std::vector<std::string>{"{\"a\":1}", "two\nlines", "[DONE]"});
  }
}

TEST_CASE("a URL is a host, a port and a path, or an error that quotes it") {
  const auto whole = parse_url("http://example.org:8080/base/");
  REQUIRE(whole);
  CHECK(whole->host == "example.org");
  CHECK(whole->port == 8080);
  CHECK(whole->base == "/base");
  CHECK(parse_url("http://[::1]:9")->host == "::1");
  CHECK(parse_url("http://[::1]:9")->port == 9);
  CHECK(parse_url("http://h")->port == 80);
  for (const auto* text :
       {"https://h", "h:80", "http://", "http://h:", "http://h:x", "http://h:99999"})
    CHECK(parse_url(text).error().message.find(text) != std::string::npos);
}
