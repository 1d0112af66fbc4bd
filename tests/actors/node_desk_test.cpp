#include <doctest/doctest.h>

#include "actors/node.hpp"
#include "actors/node_desk.hpp"
#include "messages/wire.hpp"
#include "runtime/base/json.hpp"

using namespace deepinfer;

namespace {

std::shared_ptr<const request_intake> tiny_intake() {
  auto words = tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
  intake_facts facts;
  facts.model_name = "tiny-v41";
  facts.vocab_size = 2048;
  facts.max_model_len = 64;
  facts.eos_ids = {1};
  return std::make_shared<request_intake>(std::move(words), std::move(facts));
}

effective_config config_with(std::map<std::string, std::vector<std::string>> flags) {
  parsed_flags given;
  given.values = std::move(flags);
  return make_effective({.file = {}, .environment = {}, .flags = given}).value();
}

struct desk_fixture {
  effective_config config = config_with({{"api-key", {"secret"}}});
  node_facts facts = [] {
    node_facts it;
    it.model_name = "tiny-v41";
    it.num_kv_blocks = 8;
    it.block_size = 64;
    return it;
  }();
  node_desk desk{model_info_of(facts, config.settings, 2048, 1'700'000'000), tiny_intake(),
                 std::make_shared<live_config>(config)};

  template <class Answer, class Asked>
  Answer ask(std::string_view verb, const Asked& asked) {
    const auto bytes = desk.answer(verb, to_wire(asked));
    REQUIRE_MESSAGE(bytes, bytes.error().message);
    return from_wire<Answer>(*bytes).value();
  }
};

}  // namespace

TEST_CASE_FIXTURE(desk_fixture, "a text becomes ids and pieces, and ids become the text again") {
  const auto list = ask<token_list>(verb::tokenize, tokenize_call{"Once there was", {}, false});
  REQUIRE(list.ids.size() > 1);
  REQUIRE(list.pieces.size() == list.ids.size());
  std::string joined;
  for (const auto& piece : list.pieces) joined += piece;
  CHECK(joined == "Once there was");
  CHECK(ask<text_reply>(verb::detokenize, list).text == "Once there was");
  const auto with_bos = ask<token_list>(verb::tokenize, tokenize_call{"Once there was", {}, true});
  CHECK(with_bos.ids.size() == list.ids.size() + 1);
  CHECK(with_bos.ids.front() == 0);
}

TEST_CASE_FIXTURE(desk_fixture, "a chat is rendered to the prompt that a request would have") {
  const std::string chat = R"({"messages":[{"role":"user","content":"Hi"}]})";
  const auto rendered = ask<token_list>(verb::render, tokenize_call{{}, chat, false});
  CHECK(rendered.text.find("Hi") != std::string::npos);
  generate_request request;
  request.chat = chat;
  const auto accepted = tiny_intake()->accept(request, 1);
  REQUIRE(accepted);
  CHECK(rendered.ids == *accepted->prompt);
  CHECK(ask<token_list>(verb::tokenize, tokenize_call{{}, chat, false}).ids == rendered.ids);
}

TEST_CASE_FIXTURE(desk_fixture, "a question that makes no sense is refused, and says which part") {
  const auto failure_of = [&](std::string_view verb, const std::string& bytes) {
    const auto answer = desk.answer(verb, bytes);
    REQUIRE(!answer);
    return answer.error();
  };
  CHECK(failure_of("dance", {}).code == errc::not_found);
  CHECK(failure_of(verb::tokenize, to_wire(tokenize_call{})).param == "text");
  CHECK(failure_of(verb::render, to_wire(tokenize_call{"x", {}, false})).param == "chat");
  CHECK(failure_of(verb::render, to_wire(tokenize_call{{}, "{", false})).code ==
        errc::invalid_json);
  const auto range = failure_of(verb::detokenize, to_wire(token_list{{5, 2048}, {}, {}}));
  CHECK(range.code == errc::invalid_argument);
  CHECK(range.message == "tokens: entry 1 is 2048, expected 0 to 2047");
  CHECK(failure_of(verb::detokenize, "\xff\xff").code == errc::invalid_argument);
}

TEST_CASE_FIXTURE(desk_fixture, "settings are told with their origin, keys of clients are not") {
  const auto reply = ask<text_reply>(verb::config_get, text_reply{});
  CHECK(reply.text.find("secret") == std::string::npos);
  const auto read = parse_json(reply.text).value();
  CHECK(read.at("server.api_key").at("origin") == "--api-key");
  CHECK(read.at("engine.depth").at("value") == 2);
}

TEST_CASE_FIXTURE(desk_fixture, "a model is known by its names and by what can change its tokens") {
  const auto model = ask<model_info>(verb::model, text_reply{});
  CHECK(model.names == std::vector<std::string>{"tiny-v41"});
  CHECK(model.vocab_size == 2048);
  CHECK(model.loaded_at == 1'700'000'000);
  const auto fingerprint = [&](std::map<std::string, std::vector<std::string>> flags) {
    return model_info_of(facts, config_with(std::move(flags)).settings, 2048, 1).fingerprint;
  };
  CHECK(fingerprint({}) == model.fingerprint);
  CHECK(fingerprint({{"depth", {"1"}}}) == model.fingerprint);
  CHECK(fingerprint({{"numeric", {"fast"}}}) != model.fingerprint);
  auto other = facts;
  other.model_path = "elsewhere";
  const auto moved = model_info_of(other, config.settings, 2048, 1);
  CHECK(moved.fingerprint == model.fingerprint);
  other.identity = "of other weights";
  const auto changed = model_info_of(other, config.settings, 2048, 1);
  CHECK(changed.fingerprint != model.fingerprint);
  CHECK(changed.identity == "of other weights");
  const auto named =
    model_info_of(facts, config_with({{"served-model-name", {"a", "b"}}}).settings, 2048, 1);
  CHECK(named.names == std::vector<std::string>{"a", "b"});
}

TEST_CASE("long texts are long work, everything else is not") {
  CHECK_FALSE(node_desk::is_long(verb::tokenize, 100));
  CHECK(node_desk::is_long(verb::tokenize, 1 << 20));
  CHECK(node_desk::is_long(verb::render, 1 << 20));
  CHECK_FALSE(node_desk::is_long(verb::config_get, 1 << 20));
}

TEST_CASE("a changed setting holds for who asks next; more depth than was loaded does not come") {
  live_config config(config_with({{"depth", {"2"}}}));
  const auto change = config.plan("engine.depth", "1");
  REQUIRE(change);
  CHECK(config.settings().engine.depth == 2);
  const auto other = config.plan("server.routing", "least_load");
  REQUIRE(other);
  REQUIRE(config.make(*change));
  REQUIRE(config.make(*other));  // planned before the first was made, and loses nothing of it
  CHECK(config.settings().engine.depth == 1);
  CHECK(config.settings().server.routing == routing_rule::least_load);
  CHECK(config.json().find("config set") != std::string::npos);
  CHECK(config.plan("engine.depth", "2"));  // as loaded
  const auto deeper = config.plan("engine.depth", "3");
  REQUIRE(!deeper);
  CHECK(deeper.error().message.starts_with("engine.depth: found 3, expected at most 2"));
}
