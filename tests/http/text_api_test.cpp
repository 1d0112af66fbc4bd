// /tokenize, /detokenize and /render, over a scripted engine.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "tests/http/api_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

TEST_CASE("texts become tokens and tokens texts") {
  api_bench bench;
  bench.engine->answers["tokenize"] = to_wire(token_list{{5, 6}, {"a", "\xE2"}, {}});
  bench.engine->answers["render"] = to_wire(token_list{{7}, {"x"}, "<user>hi"});
  bench.engine->answers["detokenize"] = to_wire(text_reply{"ab"});
  CHECK(bench.ask("POST", "/tokenize", R"({"prompt":"a"})")->body ==
        R"({"count":2,"max_model_len":1024,"tokens":[5,6],"token_strs":null})");
  CHECK(bench.ask("POST", "/v1/tokenize", R"({"content":"a","with_pieces":true})")->body ==
        R"({"count":2,"max_model_len":1024,"tokens":[{"id":5,"piece":"a"},{"id":6,"piece":[226]}],)"
        R"("token_strs":null})");
  const auto call = from_wire<tokenize_call>(bench.engine->calls.back().second).value();
  CHECK(call.add_special);
  CHECK(call.text == "a");
  const auto chat = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
  CHECK(bench.ask("POST", "/tokenize", chat)->json().at("count") == 1);
  CHECK(bench.ask("POST", "/render", chat)->body ==
        R"({"count":1,"max_model_len":1024,"prompt":"<user>hi","tokens":[7]})");
  CHECK(from_wire<tokenize_call>(bench.engine->calls.back().second).value().chat_json ==
        R"({"messages":[{"role":"user","content":"hi"}]})");
  CHECK(bench.ask("POST", "/detokenize", R"({"tokens":[1,2]})")->body == R"({"prompt":"ab"})");
  for (const auto* body : {R"({})", R"({"prompt":"a","content":"b"})", R"({"prompt":5})"})
    CHECK(bench.ask("POST", "/tokenize", body)->status == 400);
  for (const auto* body :
       {R"({})", R"({"tokens":"a"})", R"({"tokens":[-1]})", R"({"tokens":[1000]})"})
    CHECK(bench.ask("POST", "/detokenize", body)->status == 400);
  CHECK(bench.ask("POST", "/render", R"({})")->json().at("error").at("param") == "messages");
}

TEST_CASE("what has no effect on tokens of a text is named, or refused where that is wanted") {
  http_api_options options;
  for (const bool is_strict : {false, true}) {
    options.limits.strict_fields = is_strict;
    api_bench bench(options);
    bench.engine->answers["tokenize"] = to_wire(token_list{{5}, {"a"}, {}});
    bench.engine->answers["render"] = to_wire(token_list{{5}, {"a"}, "a"});
    bench.engine->answers["detokenize"] = to_wire(text_reply{"a"});
    const std::string messages = R"("messages":[{"role":"user","content":"a"}])";
    for (const auto& [path, known] :
         {std::pair<std::string, std::string>{"/tokenize", R"("prompt":"a","with_pieces":true)"},
          {"/tokenize", messages + R"(,"tools":[],"add_generation_prompt":true)"},
          {"/detokenize", R"("tokens":[1],"model":"tiny")"},
          {"/render", messages + R"(,"thinking":null)"}}) {
      CAPTURE(path);
      const auto plain = bench.ask("POST", path, "{" + known + "}");
      CHECK(plain->status == 200);
      CHECK(plain->header("X-Ignored-Fields").empty());
      const auto odd = bench.ask("POST", path, "{" + known + R"(,"foo":1})");
      CHECK(odd->status == (is_strict ? 400 : 200));
      if (is_strict)
        CHECK(odd->json().at("error").at("param") == "foo");
      else
        CHECK(odd->header("X-Ignored-Fields") == "foo");
    }
    for (const auto* path : {"/tokenize", "/render"}) {
      const auto wrong =
        bench.ask("POST", path, "{" + messages + R"(,"add_generation_prompt":false})");
      CHECK(wrong->status == 400);
      CHECK(wrong->json().at("error").at("param") == "add_generation_prompt");
    }
  }
}
