#include <doctest/doctest.h>

#include <array>
#include <string>

#include "tests/http/api_fixture.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::array<std::pair<const char*, const char*>, 5> seeds{
  {{"/v1/chat/completions",
    R"({"model":"tiny","messages":[{"role":"system","content":"s"},{"role":"user","content":)"
    R"([{"type":"text","text":"hi"}]}],"n":2,"stream":true,)"
    R"("stream_options":{"include_usage":true},)"
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],)"
    R"("tool_choice":"auto","thinking":{"type":"enabled"},"reasoning_effort":"high",)"
    R"("temperature":0.5,"top_p":0.9,"stop":["a","b"],"logprobs":true,"top_logprobs":3,)"
    R"("logit_bias":{"5":1.5},"user":"u","seed":7,"max_tokens":16})"},
   {"/v1/completions",
    R"({"model":"tiny","prompt":["a","b"],"max_tokens":4,"n":2,"best_of":2,"logprobs":5,)"
    R"("echo":false,)"
    R"("stop":"x","presence_penalty":0.5,"frequency_penalty":-0.5,"top_k":-1,"min_p":0.1,)"
    R"("stop_token_ids":[1,2],"ignore_eos":true,"response_format":{"type":"text"},"priority":1})"},
   {"/v1/completions", R"({"prompt":[[1,2,3],[4]],"stream":true,"timings":true,"cache_salt":"s"})"},
   {"/tokenize",
    R"({"model":"tiny","prompt":"abc","with_pieces":true,"add_special_tokens":false})"},
   {"/v1/internal/config", R"({"key":"engine.depth","value":2})"}}};

}  // namespace

TEST_CASE("damaged bodies are answered, never with a failure of ours") {
  api_bench bench;
  bench.engine->answers["tokenize"] = to_wire(token_list{{5}, {"a"}, {}});
  bench.engine->answers["render"] = to_wire(token_list{{5}, {"a"}, "a"});
  bench.engine->answers["config_set"] = to_wire(text_reply{"set"});
  mutator mutate(20'261'201);
  int started = 0, refused = 0;
  for (int i = 0; i < with_effort(10'000); ++i) {
    const auto& [path, valid] = seeds[static_cast<std::size_t>(i) % seeds.size()];
    const auto body = mutate.text(valid);
    const auto reply = bench.ask("POST", path, body);
    for (auto& it : bench.engine->requests) {
      ++started;
      CHECK(it.asked.sampling.n >= 1);
      CHECK(it.asked.sampling.n <= 16);
      if (it.asked.chat) CHECK(parse_json(*it.asked.chat, 128).has_value());
      it.listener->on_accepted();
      for (std::int32_t n = 0; n < it.asked.sampling.n; ++n)
        it.listener->on_chunk(final_chunk(finish_reason::stop, n, n + 1 == it.asked.sampling.n));
    }
    bench.engine->requests.clear();
    bench.engine->calls.clear();
    CAPTURE(body);
    REQUIRE(reply->answers == 1);
    if (reply->status == 200) continue;
    ++refused;
    CHECK(reply->status < 500);
    CHECK(reply->status >= 400);
    CHECK(reply->body.size() <= 4096);
    CHECK(reply->json().at("error").at("message").is_string());
  }
  CHECK(started > 500);
  CHECK(refused > 500);
}
