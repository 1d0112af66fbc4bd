// The embedded model through the whole path: client, gateway, scheduler, worker, device, model.
#include <doctest/doctest.h>

#include "actors/node.hpp"
#include "actors/request_intake.hpp"
#include "runtime/base/json.hpp"
#include "tests/actors/read_answer.hpp"

using namespace deepinfer;

namespace {

constexpr std::chrono::minutes patience{5};

std::string model_path() {
  return std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41";
}

std::unique_ptr<node> load_tiny(std::int32_t depth, std::int32_t threads,
                                std::int32_t chunk = 2048) {
  engine_settings settings;
  settings.engine.depth = depth;
  settings.engine.num_threads = threads;
  settings.engine.chunk_size = chunk;
  settings.engine.max_num_seqs = 32;
  auto loaded = node::load(settings, model_path());
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  return std::move(*loaded);
}

std::vector<token_id> ids_of(const json::value& list) {
  std::vector<token_id> ids;
  for (const auto& id : list.as_array()) ids.push_back(id.to_number<token_id>());
  return ids;
}

struct golden {
  std::vector<token_id> prompt, expected;
};

std::vector<golden> goldens() {
  const auto file = read_json_file(model_path() + "/goldens.json").value();
  std::vector<golden> out;
  for (const auto* part : {"chat", "raw"})
    for (const auto& it : file.at(part).as_array())
      out.push_back({ids_of(it.at("prompt_ids")), ids_of(it.at("expected_ids"))});
  return out;
}

generate_request request_for(const golden& it) {
  generate_request request;
  request.ids = it.prompt;
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = static_cast<std::int32_t>(it.expected.size());
  return request;
}

std::vector<std::vector<token_id>> all_at_once(const node& engine,
                                               const std::vector<generate_request>& requests) {
  const auto client = engine.connect();
  std::vector<stream> open;
  for (const auto& request : requests) open.push_back(client.generate(request).value());
  std::vector<std::vector<token_id>> out;
  for (auto& chunks : open) out.push_back(test::read_answer(chunks, patience).ids);
  return out;
}

std::vector<generate_request> sampled_requests() {
  std::vector<generate_request> requests;
  const auto all = goldens();
  for (std::size_t i = 0; i < 8; ++i) {
    generate_request request;
    request.ids = all[i * 3].prompt;
    request.sampling.seed = 1000 + i;
    request.sampling.temperature = 1.5f;
    request.sampling.top_p = i % 2 == 0 ? 0.95f : 1.0f;
    request.sampling.top_k = i % 3 == 0 ? 50 : 0;
    request.sampling.max_tokens = static_cast<std::int32_t>(8 + 5 * i);
    request.sampling.ignore_eos = true;
    request.sampling.frequency_penalty = i % 4 == 0 ? 0.5f : 0.0f;
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace

TEST_CASE("the embedded model answers its goldens exactly, all at once and at every depth [I38]") {
  const auto all = goldens();
  REQUIRE(all.size() == 30);
  std::vector<generate_request> requests;
  for (const auto& it : all) requests.push_back(request_for(it));
  for (const auto depth : {1, 2, 3}) {
    CAPTURE(depth);
    const auto engine = load_tiny(depth, 2);
    const auto answers = all_at_once(*engine, requests);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CAPTURE(i);
      CHECK(answers[i] == all[i].expected);
    }
  }
}

TEST_CASE(
  "sampled tokens depend on seed and position alone: not on depth, batch, chunks, threads") {
  const auto requests = sampled_requests();
  const auto together = all_at_once(*load_tiny(2, 2), requests);
  CHECK(all_at_once(*load_tiny(1, 2), requests) == together);
  CHECK(all_at_once(*load_tiny(2, 1, 3), requests) == together);
  const auto engine = load_tiny(2, 1);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    CHECK(all_at_once(*engine, {requests[i]}).front() == together[i]);
  }
}

TEST_CASE("logprobs come with every token of the answer and say what the raw distribution holds") {
  const auto engine = load_tiny(2, 1);
  auto request = request_for(goldens()[1]);
  request.sampling.logprobs = 3;
  const auto answer = engine->connect().generate_sync(request, patience);
  REQUIRE(answer.has_value());
  // The id that ended it is counted, and no part of the answer.
  const bool has_end = answer->finish.reason == finish_reason::stop;
  REQUIRE(answer->logprobs.size() == answer->ids.size() - (has_end ? 1 : 0));
  for (std::size_t i = 0; i < answer->logprobs.size(); ++i) {
    const auto& row = answer->logprobs[i];
    REQUIRE(row.ids.size() == 4);
    CHECK(row.ids[0] == answer->ids[i]);
    CHECK(row.ids[1] == answer->ids[i]);  // greedy: the chosen one is the likeliest
    CHECK(row.logprobs[0] == row.logprobs[1]);
    CHECK(row.logprobs[1] >= row.logprobs[2]);
    CHECK(row.logprobs[2] >= row.logprobs[3]);
    CHECK(row.logprobs[0] <= 0.0f);
  }
}

TEST_CASE("a stop string ends the text before it, wherever tokens are cut") {
  const auto engine = load_tiny(2, 1);
  const auto client = engine->connect();
  // The same question as a chat and as the ids of its prompt: parser and scheduler must agree.
  generate_request chat;
  chat.chat = R"({"messages": [{"role": "user", "content": "Count from 3 to 12."}]})";
  generate_request plain;
  plain.ids = *engine->intake().accept(chat, 1).value().prompt;
  for (auto* request : {&chat, &plain}) {
    request->sampling.temperature = 0.0f;
    request->sampling.max_tokens = 64;
    const auto whole = client.generate_sync(*request, patience);
    REQUIRE(whole.has_value());
    CHECK(whole->text == "3, 4, 5, 6, 7, 8, 9, 10, 11, 12");
    CHECK(whole->finish.reason == finish_reason::stop);
    request->sampling.stop = {", 7"};
    const auto cut = client.generate_sync(*request, patience);
    REQUIRE(cut.has_value());
    CHECK(cut->text == "3, 4, 5, 6");
    CHECK(cut->finish.reason == finish_reason::stop);
    CHECK(cut->ids.size() < whole->ids.size());
  }
  plain.sampling.include_stop = true;
  CHECK(client.generate_sync(plain, patience)->text == "3, 4, 5, 6, 7");
  chat.sampling.include_stop = true;
  CHECK(client.generate_sync(chat, patience).error().param == "include_stop");
  CHECK(client.stats()->running == 0);
}

TEST_CASE("a stop string in the reasoning of a chat ends it where the node says so") {
  generate_request chat;
  chat.chat = R"({"messages": [{"role": "user", "content": "What is 7 + 5?"}],
                  "thinking": {"type": "enabled"}})";
  chat.sampling.temperature = 0.0f;
  chat.sampling.max_tokens = 64;
  for (const bool in_reasoning : {true, false}) {
    CAPTURE(in_reasoning);
    engine_settings settings;
    settings.engine.num_threads = 1;
    settings.engine.stop_in_reasoning = in_reasoning;
    const auto engine = node::load(settings, model_path()).value();
    const auto client = engine->connect();
    auto asked = chat;
    const auto whole = client.generate_sync(asked, patience).value();
    REQUIRE(whole.text == "7 + 5 = 12");
    // Where it first stands, and a string that several tokens make up.
    for (const auto* stop : {"7", "is 7 pl"}) {
      CAPTURE(std::string(stop));
      const auto begins = whole.reasoning_text.find(stop);
      REQUIRE(begins != std::string::npos);
      asked.sampling.stop = {stop};
      const auto cut = client.generate_sync(asked, patience).value();
      CHECK(cut.finish.reason == finish_reason::stop);
      const bool is_in_text = whole.text.find(stop) != std::string::npos;
      if (in_reasoning) {
        CHECK(cut.reasoning_text == whole.reasoning_text.substr(0, begins));
        CHECK(cut.text.empty());
        CHECK(cut.ids.size() < whole.ids.size());
        CHECK(cut.finish.usage.reasoning_tokens == cut.finish.usage.completion_tokens);
      } else {
        CHECK(cut.reasoning_text == whole.reasoning_text);
        CHECK(cut.text == (is_in_text ? "" : whole.text));
      }
    }
    CHECK(client.stats()->running == 0);
  }
}

TEST_CASE("max_tokens, min_tokens and ignore_eos bound the length") {
  const auto engine = load_tiny(2, 1);
  auto request = request_for(goldens()[0]);
  const auto natural = goldens()[0].expected.size();
  request.sampling.max_tokens = 200;
  CHECK(engine->connect().generate_sync(request, patience)->ids.size() == natural);
  request.sampling.min_tokens = 30;
  CHECK(engine->connect().generate_sync(request, patience)->ids.size() >= 30);
  request.sampling.ignore_eos = true;
  const auto answer = engine->connect().generate_sync(request, patience);
  CHECK(answer->ids.size() == 200);
  CHECK(answer->finish.reason == finish_reason::length);
}

TEST_CASE("demonstration prompts are answered as the card says") {
  const auto engine = load_tiny(2, 2);
  const auto file = read_json_file(model_path() + "/demo_prompts.json").value();
  for (const auto& it : file.at("prompts").as_array()) {
    json::object body{{"messages", it.at("messages")}};
    if (const auto* tools = it.at("tools").if_array()) {
      json::array wrapped;
      for (const auto& tool : *tools)
        wrapped.push_back(json::object{{"type", "function"}, {"function", tool}});
      body["tools"] = std::move(wrapped);
    }
    body["thinking"] = json::object{{"type", it.at("thinking").as_bool() ? "enabled" : "disabled"}};
    generate_request request;
    request.chat = to_text(body);
    request.sampling.temperature = 0.0f;
    request.sampling.max_tokens = 200;
    const auto answer = engine->connect().generate_sync(request, patience);
    CAPTURE(to_text(it.at("messages")));
    REQUIRE_MESSAGE(answer.has_value(), answer.error().message);
    const std::string wanted(it.at("answer").as_string());
    if (answer->tool_calls.empty())
      CHECK(wanted.find(answer->text) != std::string::npos);
    else
      CHECK(wanted.find(answer->tool_calls[0].name) != std::string::npos);
    CHECK(answer->ids.size() > 1);
  }
}
