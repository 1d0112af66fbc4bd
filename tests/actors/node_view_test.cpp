#include <doctest/doctest.h>

#include "actors/node/completion.hpp"
#include "actors/node/node_view.hpp"

using namespace deepinfer;

namespace {

request_list two_requests() {
  request_list out;
  out.requests.push_back({"r-1", "mine", "bob", "decode", 0, 12, 8, 40, 1'500'000, 3, 7});
  out.requests.push_back({"r-22", "", "", "queued", 1, 100, 0, 0, 125'000'000, 0, {}});
  return out;
}

}  // namespace

TEST_CASE("open requests are a table with a line each, whose columns stand below each other") {
  const auto table = request_table(two_requests());
  CHECK(table == "ID    STATE   REPLICA  PROMPT  CACHED  OUTPUT  AGE    TENANT  CLIENT ID\n"
                 "r-1   decode  0        12      8       40      1.5s   bob     mine\n"
                 "r-22  queued  1        100     0       0       2m05s  -       -\n");
  CHECK(request_table({}) == "no open request\n");
}

TEST_CASE("what a client calls its request cannot write to the terminal of an operator") {
  request_list list = two_requests();
  list.requests[0].client_request_id = "\033[2Jgone\r\n\x07";
  const auto table = request_table(list);
  CHECK(table.find('\033') == std::string::npos);
  CHECK(table.find('\r') == std::string::npos);
  CHECK(table.find("?[2Jgone???") != std::string::npos);
  list.requests[0].client_request_id = std::string(1000, 'x');
  CHECK(request_table(list).size() < 400);
}

TEST_CASE("a look at a node tells rates since the look before, and totals without one") {
  node_view view;
  view.health.state = health_state::ready;
  view.health.node = "first";
  view.health.replicas = 2;
  view.stats.running = 1;
  view.stats.kv_blocks_total = 100;
  view.stats.kv_blocks_free = 70;
  view.stats.kv_blocks_cached = 10;
  view.stats.steps = 50;
  view.stats.tokens_out = 600;
  view.requests = two_requests();
  const auto once = top_text(view);
  CHECK(once.starts_with("first  ready  2 replicas, 0 open requests\n"));
  CHECK(once.find("so far    600 tokens, 50 steps\n") != std::string::npos);
  CHECK(once.find("KV        100 blocks: 20.0 % used, 10.0 % cached") != std::string::npos);
  view.before = node_stats{};
  view.before->tokens_out = 400;
  view.before->steps = 40;
  view.seconds = 2.0;
  CHECK(top_text(view).find("rates     100 tok/s, 5 steps/s\n") != std::string::npos);
  const auto object = top_object(view);
  CHECK(object.at("health").at("state") == "ready");
  CHECK(object.at("stats").at("tokens_out") == 600);
  CHECK(object.at("requests").as_array().size() == 2);
}

TEST_CASE("one of a kind is one replica") {
  node_view view;
  for (const auto& [number, text] :
       {std::pair{0, "0 replicas, 0 open requests"}, std::pair{1, "1 replica, 1 open request"},
        std::pair{2, "2 replicas, 2 open requests"}}) {
    view.health.replicas = view.health.open_requests = number;
    CHECK(top_text(view).find(text) != std::string::npos);
  }
}

TEST_CASE("completion knows every command, the second words of groups, and flags") {
  const auto commands = all_commands();
  for (const auto* shell : {"bash", "zsh", "fish"}) {
    CAPTURE(std::string(shell));
    const auto script = completion_script(shell, commands);
    REQUIRE(script);
    for (const auto* part : {"serve", "validate", "shutdown-timeout", "no-fair-shares", "once"})
      CHECK(script->find(part) != std::string::npos);
  }
  const auto unknown = completion_script("tcsh", commands);
  REQUIRE(!unknown);
  CHECK(unknown.error().code == errc::bad_config);
}
