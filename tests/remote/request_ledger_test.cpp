#include "actors/request_ledger.hpp"

#include <doctest/doctest.h>

#include "actors/host_address.hpp"
#include "actors/reconnect_pace.hpp"
#include "tests/support/taken_port.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

token_chunk piece(std::uint64_t seq, std::int32_t index, bool finishes, bool is_last) {
  token_chunk out;
  out.request_id = "r";
  out.seq = seq;
  out.index = index;
  out.ids = {1, 2};
  if (finishes) out.finish.emplace();
  out.is_last = is_last;
  return out;
}

using verdict = request_ledger::verdict;

}  // namespace

TEST_CASE("a request in the ledger goes on to its last chunk, and its id is free again") {
  request_ledger open;
  CHECK(open.open("r", 1));
  CHECK_FALSE(open.open("r", 1));
  CHECK(open.pass(piece(0, 0, false, false)) == verdict::goes_on);
  CHECK(open.pass(piece(1, 0, true, true)) == verdict::last);
  CHECK(open.pass(piece(2, 0, false, false)) == verdict::unknown);
  CHECK(open.size() == 0);
  CHECK(open.open("r", 1));
}

TEST_CASE("a chunk that repeats, skips or is of no answer is a gap, and changes nothing") {
  request_ledger open;
  CHECK(open.open("r", 2));
  CHECK(open.pass(piece(0, 0, false, false)) == verdict::goes_on);
  CHECK(open.pass(piece(0, 0, false, false)) == verdict::gap);
  CHECK(open.pass(piece(2, 0, false, false)) == verdict::gap);
  CHECK(open.pass(piece(1, 2, false, false)) == verdict::gap);
  CHECK(open.pass(piece(1, -1, false, false)) == verdict::gap);
  CHECK(open.pass(piece(1, 1, false, false)) == verdict::goes_on);
}

TEST_CASE(
  "a request that is ended gets one finish for each answer that had none, the last one last") {
  request_ledger open;
  CHECK(open.open("r", 3));
  CHECK(open.pass(piece(0, 1, true, false)) == verdict::goes_on);
  CHECK(open.pass(piece(1, 2, false, false)) == verdict::goes_on);
  const auto chunks = open.end("r", errc::rank_lost, "gone");
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].seq == 2);
  CHECK(chunks[0].index == 0);
  CHECK_FALSE(chunks[0].is_last);
  CHECK(chunks[1].seq == 3);
  CHECK(chunks[1].index == 2);
  CHECK(chunks[1].is_last);
  CHECK(chunks[1].finish->reason == finish_reason::error);
  CHECK(chunks[1].finish->code == errc::rank_lost);
  CHECK(chunks[1].finish->message == "gone");
  CHECK(chunks[1].finish->usage.completion_tokens == 2);
  CHECK(open.end("r", errc::rank_lost, "gone").empty());
}

TEST_CASE("a request for absurdly many answers costs the ledger little") {
  request_ledger open;
  CHECK(open.open("r", 2'000'000'000));
  CHECK(open.open("s", -5));
  CHECK(open.end("s", errc::internal, "").size() == 1);
}

TEST_CASE("pauses between attempts double to a limit, are shortened by chance, and start anew") {
  reconnect_pace pace;
  CHECK(pace.next(0.0) == 50ms);
  CHECK(pace.next(0.0) == 100ms);
  CHECK(pace.next(0.5) == 150ms);
  for (int i = 0; i < 100; ++i) pace.next(0.0);
  CHECK(pace.next(0.0) == reconnect_pace::most);
  CHECK(pace.next(0.999) >= reconnect_pace::most / 2);
  pace.succeeded();
  CHECK(pace.next(0.0) == 50ms);
}

TEST_CASE("HOST:PORT is read in every form people write, and nothing else is") {
  const auto check = [](const char* text, const char* host, std::uint16_t port) {
    CAPTURE(std::string(text));
    const auto at = parse_host_address(text, 4242);
    REQUIRE(at);
    CHECK(at->host == host);
    CHECK(at->port == port);
  };
  check("10.0.0.2:80", "10.0.0.2", 80);
  check("node-b", "node-b", 4242);
  check("[::1]:65535", "::1", 65535);
  check("[::1]", "::1", 4242);
  check("fe80::1", "fe80::1", 4242);
  for (const auto* text : {"", ":80", "a:", "a:0", "a:65536", "a:x", "a:80 ", "[::1", "[::1]80",
                           "[]:1", "a:1,b:2", "http://a:80", "a/b", "a b:1"}) {
    CAPTURE(std::string(text));
    const auto at = parse_host_address(text, 4242);
    REQUIRE(!at);
    CHECK(at.error().code == errc::bad_config);
    CHECK(at.error().message.find(std::string("'") + text + "'") != std::string::npos);
  }
  CHECK(format_host_address({"::1", 80}) == "[::1]:80");
  CHECK(format_host_address({"a", 80}) == "a:80");
}

TEST_CASE("addresses of nodes are read by one rule wherever they are listed") {
  const auto read = read_addresses({"a:1", "b", "[::1]:2", "a:1", "b:4242"}, "actor.peers");
  REQUIRE(read);
  std::vector<std::string> texts;
  for (const auto& at : read->addresses) texts.push_back(format_host_address(at));
  CHECK(texts == std::vector<std::string>{"a:1", "b:4242", "[::1]:2"});
  CHECK(read->warnings ==
        std::vector<std::string>{"actor.peers: found 'b' without a port, b:4242 is taken"});
  const auto wrong = read_addresses({"a:1", "b:x"}, "--connect");
  REQUIRE(!wrong);
  CHECK(wrong.error().code == errc::bad_config);
  CHECK(wrong.error().message.starts_with("--connect: found 'b:x'"));
  CHECK(read_addresses({}, "actor.join")->addresses.empty());
}

TEST_CASE("why nothing can listen at an address is told apart") {
  CHECK(check_can_listen({"127.0.0.1", 0}));
  CHECK(check_can_listen({"localhost", 0}));
  const auto refused = [](const host_address& at) {
    const auto tried = check_can_listen(at);
    REQUIRE(!tried);
    return tried.error();
  };
  const auto foreign = refused({"203.0.113.1", 4242});  // an address for documentation, never ours
  CHECK(foreign.code == errc::bad_config);
  CHECK(foreign.param == "host");
  CHECK(foreign.message == "can't listen on 203.0.113.1:4242: the address is none of this "
                           "machine's");
  const auto unknown = refused({"nonsense.invalid", 4242});
  CHECK(unknown.code == errc::bad_config);
  CHECK(unknown.message.find("the host is not known") != std::string::npos);
  const taken_port taken;
  const auto in_use = refused({"127.0.0.1", taken.number()});
  CHECK(in_use.code == errc::port_in_use);
  CHECK(in_use.param == "port");
}

TEST_CASE("loopback is what only this machine reaches") {
  for (const auto* host : {"localhost", "127.0.0.1", "127.8.0.9", "::1"}) CHECK(is_loopback(host));
  for (const auto* host : {"", "0.0.0.0", "::", "10.0.0.1", "127.evil.example", "1270.0.0.1"})
    CHECK_FALSE(is_loopback(host));
}
