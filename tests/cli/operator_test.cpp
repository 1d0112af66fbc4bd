// The commands of an operator, and of clients elsewhere, against a node that serves.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/cli/serving_binary.hpp"
#include "tests/http/raw_client.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr const char* before_actor_port = "for remote clients on 127.0.0.1:";

/// A node that serves, and commands that ask it.
struct served_node {
  explicit served_node(std::vector<std::string> more = {}) : server(serve_args(std::move(more))) {
    REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
    address = "127.0.0.1:" + std::to_string(server.port_behind(before_actor_port).value_or(0));
  }

  run_result ask(std::vector<std::string> args) const {
    args.insert(args.end(), {"--connect", address});
    return run_binary(args);
  }
  json::value ask_json(std::vector<std::string> args) const {
    args.push_back("--json");
    const auto ran = ask(std::move(args));
    REQUIRE_MESSAGE(ran.code == 0, ran.err);
    auto read = parse_json(ran.out, 128);
    REQUIRE_MESSAGE(read, ran.out);
    return *std::move(read);
  }

  serving_binary server;
  std::string address;
};

/// A stream that has begun.
raw_client open_stream(std::uint16_t port, int tokens) {
  raw_client out(port);
  const auto body = R"({"prompt":"Once","temperature":0,"ignore_eos":true,"stream":true,)"
                    R"("max_tokens":)" +
                    std::to_string(tokens) + "}";
  REQUIRE(out.send("POST /v1/completions HTTP/1.1\r\nHost: test\r\nX-Request-Id: mine\r\n"
                   "Content-Type: application/json\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body));
  REQUIRE(out.read_until("data: "));
  return out;
}

}  // namespace

TEST_CASE("ps lists what is open, top what the node is doing, both for people and as JSON") {
  const temp_directory place;
  const served_node node({"--script", slow_script(place)});
  CHECK(node.ask({"ps"}).out == "no open request\n");
  const auto open = open_stream(node.server.http_port(), 2000);
  const auto list = node.ask_json({"ps"}).as_array();
  REQUIRE(list.size() == 1);
  CHECK(list[0].at("client_request_id") == "mine");
  const auto table = node.ask({"ps"});
  CHECK(table.code == 0);
  CHECK(holds(table.out, "mine"));
  const auto top = node.ask_json({"top"});
  CHECK(top.at("health").at("state") == "ready");
  CHECK(top.at("requests").as_array().size() == 1);
  CHECK(top.at("stats").at("kv_blocks_total") == 256);
  CHECK(holds(node.ask({"top", "--once"}).out, "ready"));
}

TEST_CASE("a request elsewhere gives the same text as one in the same process") {
  const served_node node;
  const std::vector<std::string> ask{"generate", "Once there was", "--max-tokens",
                                     "12",       "--temperature",  "0"};
  const auto here = run_binary(ask);
  const auto there = node.ask(ask);
  REQUIRE_MESSAGE(there.code == 0, there.err);
  CHECK(there.out == here.out);
  const std::vector<std::string> talk{"chat", "What is 7 + 5?", "--temperature", "0"};
  const auto answer = node.ask(talk);
  REQUIRE_MESSAGE(answer.code == 0, answer.err);
  CHECK(answer.out == run_binary(talk).out);
}

TEST_CASE("trace fetches steps as Chrome JSON, into a file or to the output") {
  const served_node node;
  REQUIRE(node.ask({"generate", "Once", "--max-tokens", "4"}).code == 0);
  const temp_directory place;
  const auto written = node.ask({"trace", "--steps", "100", "-o", place.file("t.json")});
  REQUIRE_MESSAGE(written.code == 0, written.err);
  CHECK(written.out.empty());
  const auto trace = parse_json(read_file(place.file("t.json")).value(), 128);
  REQUIRE(trace);
  CHECK(trace->at("traceEvents").as_array().size() > 4);
  CHECK(parse_json(node.ask({"trace"}).out, 128));
}

TEST_CASE("config get shows what holds, config set changes it and says what was") {
  const served_node node({"--api-key", "bob=secret"});
  const auto with_key = [&](std::vector<std::string> args) {
    args.insert(args.end(), {"--api-key", "secret"});
    return node.ask(std::move(args));
  };
  const auto refused = node.ask({"config", "get"});
  CHECK(refused.code == 1);
  const auto all = with_key({"config", "get"});
  REQUIRE_MESSAGE(all.code == 0, all.err);
  CHECK(holds(all.out, "engine.num_kv_blocks"));
  CHECK(all.out.find("null") == std::string::npos);
  for (const auto* key : {"model.path", "model.served_name", "actor.node_name"}) {
    CAPTURE(key);
    CHECK(holds(with_key({"config", "get", key}).out, "# chosen at load"));
  }
  CHECK(holds(with_key({"config", "get", "model.served_name"}).out, "tiny-v41"));
  CHECK(holds(with_key({"config", "get", "engine.seed"}).out, "(drawn for each request"));
  CHECK(holds(all.out, "bob=***"));
  CHECK(all.out.find("secret") == std::string::npos);
  const auto set = with_key({"config", "set", "engine.depth", "1"});
  REQUIRE_MESSAGE(set.code == 0, set.err);
  CHECK(set.out == "engine.depth: 1 instead of 2\n");
  const auto one = with_key({"config", "get", "engine.depth"});
  CHECK(holds(one.out, "config set"));
  CHECK(with_key({"config", "set", "server.routing", "least_load"}).code == 0);
  CHECK(with_key({"generate", "Once", "--max-tokens", "2"}).code == 0);
  const auto restart = with_key({"config", "set", "server.port", "1"});
  CHECK(restart.code == 2);
  CHECK(holds(restart.err, "server.port: needs a restart"));
  CHECK(holds(with_key({"config", "set", "engine.depth", "3"}).err, "expected at most 2"));
  const auto negative = with_key({"config", "set", "engine.min_decode_gap", "-4"});
  CHECK(negative.code == 2);
  CHECK(holds(negative.err, "found '-4', expected a whole number from 0 to 1000000"));
  for (const auto& words : {std::vector<std::string>{"config", "get", "engine.dpeth"},
                            std::vector<std::string>{"config", "set", "engine.dpeth", "1"}}) {
    const auto unknown = with_key(words);
    CHECK(unknown.code == 2);
    CHECK(holds(unknown.err, "found 'engine.dpeth', which is no setting"));
    CHECK(holds(unknown.err, "did you mean 'engine.depth'?"));
  }
  for (const auto& words : {std::vector<std::string>{"config", "get", "log_level"},
                            std::vector<std::string>{"config", "set", "log_level", "debug"}}) {
    const auto unknown = with_key(words);
    CHECK(unknown.code == 2);
    CHECK(holds(unknown.err, "did you mean 'observability.log_level'?"));
  }
}

TEST_CASE("drain waits for what is open, refuses what is new, and can be undone") {
  const temp_directory place;
  const served_node node({"--script", slow_script(place)});
  auto open = open_stream(node.server.http_port(), 2000);
  const auto early = node.ask({"drain", "--timeout", "0"});
  CHECK(early.code == 1);
  const auto refused = node.ask({"generate", "Once", "--max-tokens", "1"});
  CHECK(refused.code == 1);
  CHECK(holds(refused.err, "drain"));
  open.close();
  const auto done = node.ask({"drain", "--timeout", "60s", "--json"});
  REQUIRE_MESSAGE(done.code == 0, done.err);
  CHECK(parse_json(done.out)->at("state") == "draining");
  CHECK(node.ask({"drain", "--undo"}).code == 0);
  CHECK(node.ask({"generate", "Once", "--max-tokens", "1"}).code == 0);
}

TEST_CASE("a gateway serves over HTTP what a node elsewhere computes") {
  const served_node node;
  serving_binary gateway({"gateway", "--connect", node.address, "--port", "0"});
  REQUIRE_MESSAGE(gateway.wait_for_line("Ready: "), gateway.err());
  REQUIRE(gateway.wait_for_line("requests go to " + node.address));
  const auto port = gateway.http_port();
  raw_client it(port);
  REQUIRE(it.send("GET /health/ready HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
  CHECK(it.read_answer().status == 200);  // it does not say so before
  auto stream = open_stream(port, 20);
  CHECK(stream.read_answer().body.find("[DONE]") != std::string::npos);
  gateway.signal(SIGTERM);
  CHECK(gateway.wait() == 0);
  CHECK(node.ask({"ps"}).out == "no open request\n");
}

TEST_CASE("where no node answers a command says so and gives 1") {
  std::string address;
  {
    const served_node node;
    address = node.address;
  }
  const auto ran = run_binary({"ps", "--connect", address});
  CHECK(ran.code == 1);
  CHECK(holds(ran.err, address));
}

TEST_CASE("whoever takes the port of HTTP for the actor port is told which one it is") {
  const served_node node;
  const auto http = "127.0.0.1:" + std::to_string(node.server.http_port());
  for (const auto& words :
       {std::vector<std::string>{"ps"}, std::vector<std::string>{"config", "get"},
        std::vector<std::string>{"generate", "Once"}}) {
    auto args = words;
    args.insert(args.end(), {"--connect", http});
    const auto ran = run_binary(args);
    CHECK(ran.code == 2);
    CHECK(holds(ran.err, "--connect: " + http +
                           ": what answers there speaks another protocol, as "
                           "HTTP: expected a node's actor port (--actor-port, 4242 by default)"));
  }
  serving_binary gateway({"gateway", "--connect", http, "--port", "0"});
  CHECK(gateway.wait_for_line("node at " + http + ": what answers there speaks another protocol"));
}

TEST_CASE("TLS files that can't be used are exit code 2 of every command that has them") {
  const temp_directory files;
  files.write("none.pem", "nothing of the kind");
  const auto path = files.file("none.pem");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"ps", "--connect", "127.0.0.1:1"},
        {"serve", "--port", "0", "--actor-port", "0"},
        {"gateway", "--port", "0", "--connect", "127.0.0.1:1"}}) {
    auto args = command;
    args.insert(args.end(),
                {"--actor-tls-certificate", path, "--actor-tls-key", path, "--actor-tls-ca", path});
    const auto ran = run_binary(args);
    CHECK(ran.code == 2);
    CHECK(holds(ran.err, "actor.tls_certificate: " + path +
                           ": found no certificate, expected a certificate in PEM form"));
  }
}

TEST_CASE("a node over TLS tells in its log why it has refused a connection") {
  const temp_directory files;
  const auto certificate = files.file("node.crt"), key = files.file("node.key");
  const auto made =
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=node "
    "-keyout " +
    key + " -out " + certificate + " 2>/dev/null";
  REQUIRE(std::system(made.c_str()) == 0);
  served_node node({"--actor-tls-certificate", certificate, "--actor-tls-key", key,
                    "--actor-tls-ca", certificate});
  CHECK(run_binary({"ps", "--connect", node.address}).code == 1);
  CHECK(node.server.wait_for_line("is refused: TLS: "));
  CHECK(run_binary({"ps", "--connect", node.address, "--actor-tls-certificate", certificate,
                    "--actor-tls-key", key, "--actor-tls-ca", certificate})
          .code == 0);
}
