// Answers over a scripted engine: what is sent, when, and what becomes of the engine's requests.
#include <doctest/doctest.h>

#include <future>
#include <string>
#include <thread>

#include "tests/http/api_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

TEST_CASE("nothing is sent before the engine has taken the request") {
  api_bench bench;
  const auto reply = bench.chat(R"(,"stream":true)");
  CHECK_FALSE(reply->has_begun);
  bench.open().on_accepted();
  CHECK(reply->has_begun);
  CHECK(reply->status == 200);
  CHECK(reply->header("Content-Type") == "text/event-stream; charset=utf-8");
  CHECK(reply->header("Cache-Control") == "no-cache");
  CHECK(reply->header("X-Accel-Buffering") == "no");
  CHECK(reply->events().size() == 1);
}

TEST_CASE("what the engine refuses has its status, streamed or not") {
  for (const auto* stream : {"", R"(,"stream":true)"}) {
    api_bench bench;
    const auto reply = bench.chat(stream);
    bench.open().on_error({errc::context_length_exceeded, "too long: 9 of 8", "messages"});
    CHECK_FALSE(reply->has_begun);
    CHECK(reply->status == 400);
    CHECK(reply->code() == "context_length_exceeded");
    CHECK(reply->json().at("error").at("param") == "messages");
    CHECK(reply->answers == 1);
  }
}

TEST_CASE("a stream ends with [DONE], its ids and time the same throughout") {
  api_bench bench;
  const auto reply = bench.chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  bench.open().on_accepted();
  bench.open().on_chunk(text_chunk("a"));
  bench.open().on_chunk(final_chunk(finish_reason::stop));
  CHECK(reply->is_ended);
  const auto events = reply->events();
  REQUIRE(events.size() == 5);
  CHECK(events.back() == "[DONE]");
  const auto first = parse_json(events[0]).value();
  CHECK(std::string(first.at("id").as_string()) == reply->header("X-Request-Id"));
  CHECK(std::string(first.at("id").as_string()).starts_with("chatcmpl-"));
  for (std::size_t i = 0; i < 4; ++i) {
    const auto event = parse_json(events[i]).value();
    for (const auto* name : {"id", "created", "model", "object", "system_fingerprint"})
      CHECK(event.at(name) == first.at(name));
    CHECK(event.at("choices").as_array().size() == (i < 3 ? 1 : 0));
  }
  CHECK(first.at("model") == "tiny");
  CHECK(first.at("system_fingerprint") == "fp_1");
  CHECK(bench.engine->dropped.empty());
}

TEST_CASE("n answers interleave, each finishes once, under its index") {
  api_bench bench;
  const auto reply = bench.chat(R"(,"stream":true,"n":3)");
  CHECK(bench.engine->requests.at(0).asked.sampling.n == 3);
  bench.open().on_accepted();
  for (const std::int32_t i : {2, 0, 1}) bench.open().on_chunk(text_chunk("x", i));
  bench.open().on_chunk(final_chunk(finish_reason::stop, 1, false));
  bench.open().on_chunk(final_chunk(finish_reason::length, 2, false));
  CHECK_FALSE(reply->is_ended);
  bench.open().on_chunk(final_chunk(finish_reason::stop, 0, true));
  CHECK(reply->is_ended);
  std::map<std::int64_t, int> roles, finishes;
  for (const auto& text : reply->events()) {
    if (text == "[DONE]") continue;
    const auto event = parse_json(text).value();
    const auto& choice = event.at("choices").at(0);
    const auto index = choice.at("index").as_int64();
    if (choice.at("delta").as_object().contains("role")) ++roles[index];
    if (!choice.at("finish_reason").is_null()) ++finishes[index];
  }
  CHECK(roles == std::map<std::int64_t, int>{{0, 1}, {1, 1}, {2, 1}});
  CHECK(finishes == std::map<std::int64_t, int>{{0, 1}, {1, 1}, {2, 1}});
}

TEST_CASE("several prompts are several requests and one answer") {
  api_bench bench;
  const auto reply = bench.complete(R"("prompt":["a","b"],"n":2)");
  REQUIRE(bench.engine->requests.size() == 2);
  CHECK(bench.engine->requests[0].asked.request_id != bench.engine->requests[1].asked.request_id);
  for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
    bench.open(i).on_accepted();
    for (const std::int32_t index : {1, 0}) {
      bench.open(i).on_chunk(text_chunk(std::to_string(i * 2) + std::to_string(index), index));
      bench.open(i).on_chunk(final_chunk(finish_reason::stop, index, index == 0));
    }
  }
  CHECK(reply->status == 200);
  const auto choices = reply->json().at("choices").as_array();
  REQUIRE(choices.size() == 4);
  CHECK(choices[0].at("text") == "00");
  CHECK(choices[1].at("text") == "01");
  CHECK(choices[2].at("text") == "20");
  CHECK(choices[3].at("text") == "21");
}

TEST_CASE("a stream of several prompts waits until all are taken and loses nothing") {
  api_bench bench;
  const auto reply = bench.complete(R"("prompt":["a","b"],"stream":true)");
  bench.open(0).on_accepted();
  bench.open(0).on_chunk(text_chunk("early"));
  CHECK_FALSE(reply->has_begun);
  bench.open(1).on_accepted();
  CHECK(reply->has_begun);
  CHECK(reply->body.find("early") != std::string::npos);
  bench.open(1).on_chunk(final_chunk(finish_reason::stop));
  CHECK_FALSE(reply->is_ended);
  bench.open(0).on_chunk(final_chunk(finish_reason::stop));
  CHECK(reply->is_ended);
  CHECK(reply->events().back() == "[DONE]");
}

TEST_CASE("one refused prompt refuses all, and the others are cancelled") {
  api_bench bench;
  const auto reply = bench.complete(R"("prompt":["a","b","c"],"stream":true)");
  bench.open(0).on_accepted();
  bench.open(1).on_error({errc::queue_full, "full", {}});
  CHECK(reply->status == 429);
  CHECK(reply->header("Retry-After") == "1");
  CHECK(reply->header("x-should-retry") == "true");
  bench.open(2).on_accepted();
  CHECK(bench.engine->dropped.size() >= 2);
  CHECK(reply->answers == 1);
}

TEST_CASE("an error within a stream is its last event, without [DONE]") {
  api_bench bench;
  const auto reply = bench.chat(R"(,"stream":true,"n":2)");
  bench.open().on_accepted();
  bench.open().on_chunk(text_chunk("a"));
  auto failed = final_chunk(finish_reason::error, 0, false);
  failed.finish->code = errc::rank_lost;
  failed.finish->message = "rank 0 died";
  bench.open().on_chunk(failed);
  CHECK(reply->is_ended);
  const auto events = reply->events();
  CHECK(parse_json(events.back()).value().at("error").at("code") == "rank_lost");
  CHECK(reply->body.find("[DONE]") == std::string::npos);
  CHECK(bench.engine->dropped.size() == 1);  // the other answer
  bench.open().on_chunk(text_chunk("late", 1));
  CHECK(reply->events().size() == events.size());
}

TEST_CASE("an answer that failed before anything was sent has its status") {
  api_bench bench;
  const auto reply = bench.chat();
  bench.open().on_accepted();
  auto failed = final_chunk(finish_reason::error);
  failed.finish->code = errc::rank_lost;
  bench.open().on_chunk(failed);
  CHECK(reply->status == 503);
  CHECK(reply->code() == "rank_lost");
}

TEST_CASE("an answer cut for want of room says so where it has said something") {
  api_bench bench;
  const auto some = bench.chat();
  bench.open(0).on_accepted();
  bench.open(0).on_chunk(final_chunk(finish_reason::resource));
  CHECK(some->status == 200);
  CHECK(some->json().at("choices").at(0).at("finish_reason") == "insufficient_system_resource");
  const auto none = bench.chat();
  bench.open(1).on_accepted();
  bench.open(1).on_chunk(final_chunk(finish_reason::resource, 0, true, 0));
  CHECK(none->status == 400);
  CHECK(none->code() == "no_blocks");
}

TEST_CASE("a quiet stream gets comments, a busy one does not") {
  api_bench bench;
  const auto reply = bench.chat(R"(,"stream":true)");
  bench.open().on_accepted();
  bench.pass_time();
  bench.open().on_chunk(text_chunk("a"));
  bench.pass_time();
  CHECK(reply->body.find(": keep-alive\n\n") == std::string::npos);
  bench.pass_time();
  CHECK(reply->body.ends_with(": keep-alive\n\n"));
  bench.open().on_chunk(final_chunk(finish_reason::stop));
  const auto size = reply->body.size();
  for (int i = 0; i < 4; ++i) bench.pass_time();
  CHECK(reply->body.size() == size);
  CHECK(bench.timers.empty());
}

TEST_CASE("an answer that does not stream may be kept alive with blank lines") {
  http_api_options options;
  options.answers.nonstream_keep_alive = true;
  api_bench bench(options);
  const auto reply = bench.chat();
  bench.open().on_accepted();
  bench.pass_time();
  bench.pass_time();
  CHECK(reply->body == "\n");
  bench.open().on_chunk(text_chunk("a"));
  bench.open().on_chunk(final_chunk(finish_reason::stop));
  CHECK(reply->is_ended);
  CHECK(reply->json().at("choices").at(0).at("message").at("content") == "a");
}

TEST_CASE("credit is given back as chunks leave, and held while the client is behind") {
  http_api_options options;
  options.answers.window = 8;
  api_bench bench(options);
  const auto reply = bench.chat(R"(,"stream":true)");
  const auto& asked = bench.engine->requests.at(0).asked;
  CHECK(asked.window == 8);
  bench.open().on_accepted();
  for (int i = 0; i < 4; ++i) bench.open().on_chunk(text_chunk("a"));
  CHECK(bench.engine->taken[asked.request_id] == 4);
  reply->pending = 1 << 20;
  for (int i = 0; i < 4; ++i) bench.open().on_chunk(text_chunk("a"));
  CHECK(bench.engine->taken[asked.request_id] == 4);
  reply->pending = 0;
  reply->drained();
  CHECK(bench.engine->taken[asked.request_id] == 8);
}

TEST_CASE("a client that leaves takes its requests with it, in every phase") {
  for (const bool is_accepted : {false, true})
    for (const auto* stream : {"", R"(,"stream":true)"}) {
      api_bench bench;
      const auto reply =
        bench.ask("POST", "/v1/completions", std::string(R"({"prompt":["a","b"])") + stream + "}");
      if (is_accepted) {
        bench.open(0).on_accepted();
        bench.open(1).on_accepted();
      }
      reply->gone();
      CHECK(bench.engine->dropped.size() == 2);
      const auto sent = reply->body.size();
      bench.open(0).on_chunk(text_chunk("late"));
      bench.open(0).on_error({errc::cancelled, "cancelled", {}});
      CHECK(reply->body.size() == sent);
      CHECK(reply->answers == 0);
    }
}

TEST_CASE("a request carries who asks, from the header and the body") {
  api_bench bench({}, {"alice=secret"});
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  bench.ask(
    "POST", "/v1/completions", R"({"prompt":"a","user_id":"u","cache_salt":"s"})",
    {{"Authorization", "Bearer secret"}, {"X-Request-Id", "mine-1"}, {"traceparent", trace}});
  const auto& asked = bench.engine->requests.at(0).asked;
  CHECK(asked.tenant == "alice");
  CHECK(asked.session == "u");
  CHECK(asked.cache_salt == "s");
  CHECK(asked.client_request_id == "mine-1");
  CHECK(asked.traceparent == trace);
  CHECK(asked.request_id.starts_with("cmpl-"));
}

TEST_CASE("ids that a client sends never become ours") {
  api_bench bench;
  for (const auto& id : {std::string("same"), std::string("same"), std::string(60'000, 'x'),
                         std::string("line\nbreak"), std::string("nul\0", 4)})
    bench.ask("POST", "/v1/completions", R"({"prompt":"a"})", {{"X-Request-Id", id}});
  std::set<std::string> ids;
  for (const auto& it : bench.engine->requests) ids.insert(it.asked.request_id);
  CHECK(ids.size() == 5);
  CHECK(bench.engine->requests[1].asked.client_request_id == "same");
  for (std::size_t i = 2; i < 5; ++i)
    CHECK(bench.engine->requests[i].asked.client_request_id.empty());
}

TEST_CASE("large bodies are read by another thread, with the same answers") {
  http_api_options options;
  options.large_body = 24;
  api_bench bench(options);
  std::promise<std::thread::id> started;
  bench.engine->on_start = [&] { started.set_value(std::this_thread::get_id()); };
  const auto wrong = bench.complete(R"("prompt":"a","temperature":9)");
  const auto good = bench.complete(R"("prompt":"a","temperature":1)");
  auto reader = started.get_future();
  REQUIRE(reader.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  CHECK(reader.get() != std::this_thread::get_id());
  CHECK(wrong->status == 400);  // read before the other one
  CHECK(wrong->json().at("error").at("param") == "temperature");
  bench.api->close(std::chrono::milliseconds(0));
  CHECK(bench.engine->requests.size() == 1);
  CHECK(good->status == 503);
}

TEST_CASE("large answers of the engine are read by that thread, too") {
  http_api_options options;
  options.large_body = 1000;
  api_bench bench(options);
  bench.engine->answers["tokenize"] = to_wire(token_list{std::vector<token_id>(1000, 7), {}, {}});
  std::promise<void> entered, leave;
  bench.engine->on_start = [&] {
    entered.set_value();
    leave.get_future().wait();
  };
  bench.complete(fmt::format(R"("prompt":"{}")", std::string(1000, 'a')));
  entered.get_future().wait();
  const auto large = bench.ask("POST", "/tokenize", R"({"prompt":"a"})");
  CHECK(large->answers == 0);  // it waits for the thread, which is not this one
  bench.engine->answers["tokenize"] = to_wire(token_list{{7}, {}, {}});
  CHECK(bench.ask("POST", "/tokenize", R"({"prompt":"a"})")->json().at("count") == 1);
  leave.set_value();
  bench.api->close(std::chrono::milliseconds(0));
  CHECK(large->status == 200);
  CHECK(large->json().at("count") == 1000);
}

TEST_CASE("a thread for bodies refuses what it has no room for, or once it has stopped") {
  int done = 0;
  body_worker worker(1);
  std::promise<void> entered, leave;
  REQUIRE(worker.post([&] {
    entered.set_value();
    leave.get_future().wait();
  }));
  entered.get_future().wait();
  CHECK(worker.post([&] { ++done; }));
  CHECK_FALSE(worker.post([&] { ++done; }));
  leave.set_value();
  worker.stop();
  CHECK(done == 1);  // what was taken is owed an answer
  CHECK_FALSE(worker.post([&] { ++done; }));
}

TEST_CASE("answers open at the deadline of a stop end with server_shutdown") {
  api_bench bench;
  const auto stream = bench.chat(R"(,"stream":true)");
  const auto whole = bench.chat();
  bench.open(0).on_accepted();
  bench.open(1).on_accepted();
  bench.api->close(std::chrono::milliseconds(0));
  CHECK(parse_json(stream->events().back()).value().at("error").at("code") == "server_shutdown");
  CHECK(stream->is_ended);
  CHECK(whole->status == 503);
  const auto late = bench.chat();
  CHECK(late->status == 503);
  CHECK(late->code() == "draining");
}

TEST_CASE("fields without effect are listed in a header") {
  api_bench bench;
  const auto reply = bench.complete(R"("prompt":"a","foo":1,"b,ar\n":2)");
  bench.open().on_accepted();
  bench.open().on_chunk(final_chunk(finish_reason::stop));
  CHECK(reply->header("X-Ignored-Fields") == "foo, b?ar?");
}
