#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <string>

#include <fmt/format.h>

#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/cli/serving_binary.hpp"
#include "tests/http/raw_client.hpp"
#include "tests/support/taken_port.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

raw_answer get(std::uint16_t port, const std::string& path) {
  raw_client it(port);
  REQUIRE(it.send("GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
  return it.read_answer();
}

/// Whether so many requests run, now or soon.
bool open_requests_are(const serving_binary& server, int number) {
  const auto text = fmt::format("\"running\":{},", number);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (get(server.http_port(), "/v1/internal/stats").body.find(text) == std::string::npos)
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

}  // namespace

TEST_CASE("serve says when it is ready, answers over HTTP, and SIGTERM ends it with 0") {
  serving_binary server(serve_args());
  REQUIRE_MESSAGE(server.wait_for_line("Ready: http://127.0.0.1:"), server.err());
  CHECK(holds(server.err(), "(model tiny-v41, 256 KV blocks x 64 = 16,384 tokens, about 8 requests "
                            "at full length)"));
  const auto port = server.http_port();
  const auto health = get(port, "/health");
  CHECK(health.status == 200);
  CHECK(holds(health.body, "ready"));
  CHECK(holds(health.body, "\"progress\":1.0"));
  CHECK_FALSE(holds(health.body, "\"node\":\"\""));
  CHECK(get(port, "/health/ready").status == 200);
  raw_client asking(port);
  REQUIRE(asking.send(post_request(
    "/v1/completions", R"({"prompt":"Once there was","max_tokens":4,"temperature":0})")));
  const auto answer = asking.read_answer();
  CHECK(answer.status == 200);
  const auto read = parse_json(answer.body);
  REQUIRE_MESSAGE(read, answer.body);
  CHECK(read->at("usage").at("completion_tokens").to_number<int>() == 4);
  server.signal(SIGTERM);
  CHECK(server.wait() == 0);
  CHECK(holds(server.err(), "stopped\n"));
}

TEST_CASE("a model is named by its folder, by the word tiny, or not at all") {
  serving_binary server(serve_args({"tiny"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: http://127.0.0.1:"), server.err());
  CHECK(holds(server.err(), "(model tiny-v41, "));
  const auto both = run_binary(serve_args({"tiny", "--model", "tiny"}));
  CHECK(both.code == 2);
  CHECK(holds(both.err, "found MODEL and --model, expected one of them"));
}

TEST_CASE("a port in use is exit code 4, with address, port and what to do, before any loading") {
  const taken_port taken;
  const auto ran =
    run_binary({"serve", "/no/such/model", "--port", taken.text(), "--no-actor-listen"});
  CHECK(ran.code == 4);
  CHECK(holds(ran.err, "server.port: 127.0.0.1:" + taken.text()));
  CHECK(holds(ran.err, "--port"));
  CHECK(ran.err.find("listening") == std::string::npos);
  CHECK(ran.err.find("config.json") == std::string::npos);
}

TEST_CASE("an actor port in use is exit code 4 as well, an address that is not ours 2") {
  const taken_port taken;
  const auto actor =
    run_binary({"serve", "/no/such/model", "--port", "0", "--actor-port", taken.text()});
  CHECK(actor.code == 4);
  CHECK(holds(actor.err, "actor.port: can't listen on 127.0.0.1:" + taken.text() +
                           ": the port is in use; choose another"));
  const auto foreign = run_binary(
    {"serve", "/no/such/model", "--host", "203.0.113.1", "--port", "0", "--no-actor-listen"});
  CHECK(foreign.code == 2);
  CHECK(holds(foreign.err, "server.host: 203.0.113.1"));
}

TEST_CASE("an address of a node that is none is refused before any loading") {
  for (const auto* flag : {"--peer", "--join"}) {
    const auto ran = run_binary(serve_args({"/no/such/model", flag, "a:1,b:2"}));
    CHECK(ran.code == 2);
    CHECK(holds(ran.err, ": found 'a:1,b:2', expected HOST:PORT"));
  }
}

TEST_CASE("a peer that is this node itself, and one without a port, are warned of") {
  std::uint16_t own = 0;
  {
    const taken_port once;
    own = once.number();
  }
  const auto port = std::to_string(own);
  serving_binary server(serve_args(
    {"--actor-port", port, "--peer", "127.0.0.1:" + port, "--peer", "nonsense.invalid"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  CHECK(holds(server.err(),
              "actor.peers: found 'nonsense.invalid' without a port, nonsense.invalid:4242 is "
              "taken"));
  CHECK(
    server.wait_for_line("actor.peers: found 127.0.0.1:" + port + ", which is this node itself"));
}

TEST_CASE("a model that is not there is exit code 3, a wrong setting 2") {
  const auto missing = run_binary(serve_args({"/no/such/model"}));
  CHECK(missing.code == 3);
  CHECK(holds(missing.err, "/no/such/model"));
  CHECK(holds(missing.err, "listening on http://127.0.0.1:"));
  const auto wrong = run_binary(serve_args({"--routing", "random"}));
  CHECK(wrong.code == 2);
  CHECK(holds(wrong.err, "--routing: found 'random', expected one of prefix, least_load"));
  const auto keys = run_binary(serve_args({"--api-key-file", "/no/such/keys"}));
  CHECK(keys.code == 2);
  CHECK(holds(keys.err, "/no/such/keys"));
}

TEST_CASE("the banner names what was set and hides the keys of clients") {
  serving_binary server(serve_args({"--api-key", "bob=very-secret"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  CHECK(holds(server.err(), "deepinfer 0."));
  CHECK(holds(server.err(), "engine.num_kv_blocks 256 (--num-kv-blocks)"));
  CHECK(holds(server.err(), "bob=***"));
  CHECK(server.err().find("very-secret") == std::string::npos);
  CHECK(get(server.http_port(), "/v1/models").status == 401);
}

TEST_CASE("who listens for others without a key is warned") {
  serving_binary server(serve_args({"--host", "0.0.0.0"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  CHECK(holds(server.err(), "server.host 0.0.0.0: whoever reaches this address"));
}

TEST_CASE("SIGHUP changes nothing, SIGUSR1 tells what the engine is doing") {
  serving_binary server(serve_args());
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  server.signal(SIGHUP);
  CHECK(server.wait_for_line("SIGHUP: "));
  server.signal(SIGUSR1);
  CHECK(server.wait_for_line("state: running=0 queued=0 "));
  CHECK(get(server.http_port(), "/health").status == 200);
  server.signal(SIGINT);
  CHECK(server.wait() == 0);
}

TEST_CASE("a stream that runs when SIGTERM comes is finished, new requests are refused meanwhile") {
  const temp_directory place;
  serving_binary server(serve_args({"--script", slow_script(place)}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  const auto port = server.http_port();
  raw_client reader(port);
  REQUIRE(reader.send(post_request("/v1/completions",
                                   R"({"prompt":"Once","max_tokens":200,"temperature":0,)"
                                   R"("ignore_eos":true,"stream":true})")));
  REQUIRE(reader.read_until("data: "));
  raw_client late(port);  // its connection is there before the drain begins
  server.signal(SIGTERM);
  REQUIRE(server.wait_for_line("stopping: "));
  // The drain is a message: what overtakes it is served.
  auto refused = raw_answer{};
  for (int turn = 0; turn < 50 && refused.status != 503; ++turn) {
    REQUIRE(late.send(post_request("/v1/completions", R"({"prompt":"Once","max_tokens":1})")));
    refused = late.read_answer();
  }
  CHECK(refused.status == 503);
  CHECK(holds(refused.body, "draining"));
  const auto answer = reader.read_answer();
  CHECK(answer.is_complete);
  CHECK(holds(answer.body, "\"finish_reason\":\"length\""));
  CHECK(holds(answer.body, "data: [DONE]"));
  CHECK(server.wait() == 0);
}

TEST_CASE("a scripted node counts what all of its replicas hold") {
  const temp_directory place;
  serving_binary server(serve_args({"--script", slow_script(place), "--dp-size", "2"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  CHECK(holds(server.err(), "cpu, 2 threads"));
  CHECK(
    holds(server.err(), "512 KV blocks x 64 = 32,768 tokens, about 16 requests at full length"));
}

TEST_CASE("what runs at the end of a drain ends with server_shutdown, and the code is 0") {
  const temp_directory place;
  serving_binary server(serve_args({"--shutdown-timeout", "0s", "--script", slow_script(place)}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  raw_client reader(server.http_port());
  REQUIRE(reader.send(post_request("/v1/completions",
                                   R"({"prompt":"Once","max_tokens":2000,"temperature":0,)"
                                   R"("ignore_eos":true,"stream":true})")));
  REQUIRE(reader.read_until("data: "));
  server.signal(SIGTERM);
  const auto answer = reader.read_answer();
  CHECK(holds(answer.body, "server_shutdown"));
  CHECK(answer.body.find("[DONE]") == std::string::npos);
  CHECK(server.wait() == 0);
}

TEST_CASE(
  "at a second signal open requests are told so, whoever does not read, and the code is 130") {
  const temp_directory place;
  serving_binary server(serve_args({"--script", slow_script(place), "--shutdown-timeout", "1h"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  const auto asked = [](const std::string& more) {
    return post_request("/v1/completions", R"({"prompt":"Once","max_tokens":2000,"temperature":0,)"
                                           R"("ignore_eos":true)" +
                                             more + "}");
  };
  const auto stream = R"(,"stream":true)";
  raw_client reader(server.http_port());
  REQUIRE(reader.send(asked(stream)));
  REQUIRE(reader.read_until("data: "));
  raw_client whole(server.http_port());
  REQUIRE(whole.send(asked("")));
  raw_client idler(server.http_port(), 4096);
  REQUIRE(idler.send(asked(stream)));
  REQUIRE(open_requests_are(server, 3));
  server.signal(SIGTERM);
  REQUIRE(server.wait_for_line("stopping: "));
  server.signal(SIGINT);
  const auto cut = reader.read_answer();
  CHECK(holds(cut.body, R"("code":"server_shutdown"}})"));
  CHECK(cut.is_complete);
  CHECK(cut.body.find("[DONE]") == std::string::npos);
  const auto refused = whole.read_answer();
  CHECK(refused.status == 503);
  CHECK(holds(refused.body, R"("code":"server_shutdown"}})"));
  CHECK(server.wait() == 130);
}

TEST_CASE("the end of a drain tells an answer that is not streamed, too") {
  const temp_directory place;
  serving_binary server(serve_args({"--shutdown-timeout", "0s", "--script", slow_script(place)}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  raw_client whole(server.http_port());
  REQUIRE(whole.send(post_request("/v1/completions", R"({"prompt":"Once","max_tokens":2000,)"
                                                     R"("ignore_eos":true})")));
  REQUIRE(open_requests_are(server, 1));
  server.signal(SIGTERM);
  const auto refused = whole.read_answer();
  CHECK(refused.status == 503);
  CHECK(holds(refused.body, R"("code":"server_shutdown"}})"));
  CHECK(server.wait() == 0);
}

TEST_CASE("the same signal twice at once, as timeout and wrappers send it, is one") {
  const temp_directory place;
  serving_binary server(serve_args({"--script", slow_script(place), "--shutdown-timeout", "1h"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  raw_client reader(server.http_port());
  REQUIRE(reader.send(post_request("/v1/completions", R"({"prompt":"Once","max_tokens":40,)"
                                                      R"("ignore_eos":true,"stream":true})")));
  REQUIRE(reader.read_until("data: "));
  server.signal(SIGTERM);
  server.signal(SIGTERM);
  CHECK(holds(reader.read_answer().body, "[DONE]"));
  CHECK(server.wait() == 0);
}

TEST_CASE("a third signal ends the process with 130") {
  const temp_directory place;
  serving_binary server(serve_args({"--script", slow_script(place), "--shutdown-timeout", "1h"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  raw_client reader(server.http_port());
  REQUIRE(reader.send(post_request("/v1/completions", R"({"prompt":"Once","max_tokens":2000,)"
                                                      R"("ignore_eos":true,"stream":true})")));
  REQUIRE(reader.read_until("data: "));
  server.signal(SIGTERM);
  REQUIRE(server.wait_for_line("stopping: "));
  server.signal(SIGINT);
  REQUIRE(server.wait_for_line("a second signal: "));
  server.signal(SIGTERM);
  CHECK(server.wait() == 130);
}

TEST_CASE("log lines as JSON are objects with ts, level and msg") {
  serving_binary server(serve_args({"--log-format", "json"}));
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  server.signal(SIGTERM);
  CHECK(server.wait() == 0);
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < server.err().size(); ++lines) {
    const auto end = server.err().find('\n', begin);
    const auto line = parse_json(server.err().substr(begin, end - begin));
    REQUIRE_MESSAGE(line, server.err().substr(begin, end - begin));
    const auto& object = line->as_object();
    // A request's line has its facts as fields, too.
    CHECK((object.size() == 3) == (object.at("msg").as_string().find("request ") != 0));
    CHECK(object.at("ts").as_string().size() ==
          std::string("2026-01-01T00:00:00.000+00:00").size());
    CHECK(object.contains("level"));
    CHECK(object.at("msg").is_string());
    begin = end + 1;
  }
  CHECK(lines >= 4);
}
