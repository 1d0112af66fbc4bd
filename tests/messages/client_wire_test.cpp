#include <doctest/doctest.h>

#include "messages/api.pb.h"
#include "messages/wire.hpp"
#include "tests/messages/round_trip.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// Every field away from its default.
sampling_request all_set() {
  sampling_request s;
  s.temperature = 0.5f;
  s.top_p = 0.9f;
  s.top_k = 7;
  s.min_p = 0.1f;
  s.presence_penalty = -1.5f;
  s.frequency_penalty = 0.25f;
  s.repetition_penalty = 1.1f;
  s.seed = 18446744073709551615u;
  s.max_tokens = 12;
  s.min_tokens = 3;
  s.n = 4;
  s.logprobs = 2;
  s.ignore_eos = true;
  s.include_stop = true;
  s.skip_special_tokens = false;
  s.grammar = "json_object";
  s.stop_token_ids = {1, 128799};
  s.stop = {"\n\n", std::string("\xff\0z", 3), "", "终"};
  s.logit_bias = {{3, -100.0f}, {17, 2.5f}};
  return s;
}

generate_request continuation(std::optional<std::string> text) {
  generate_request request;
  request.request_id = "r-1";
  request.text = std::move(text);
  request.sampling = all_set();
  request.priority = -2;
  request.cache_salt = std::string("ten\0\xff", 5);
  request.model = "tiny";
  request.tenant = "blue";
  request.session = "s-1";
  request.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  request.client_request_id = "mine";
  request.window = 64;
  request.is_forwarded = true;
  return request;
}

tool_call_delta call() {
  return {.index = 2, .id = "call_2", .name = "weather", .arguments = "{\"city\": \"北"};
}

token_chunk last_chunk() {
  token_chunk chunk;
  chunk.request_id = "r-1";
  chunk.seq = 18446744073709551615u;
  chunk.index = 3;
  chunk.text = "终 end";
  chunk.reasoning_text = "so";
  chunk.tool_calls = {call(), {.index = 3, .id = "", .name = "", .arguments = "}"}};
  chunk.ids = {5, 0, 129279};
  chunk.logprobs = {{{5, 6}, {-0.5f, -1.0f}, {"a", "\xe2"}}, {{0}, {0.0f}, {}}, {{}, {}, {}}};
  chunk.finish = sequence_finish{.reason = finish_reason::tool_calls,
                                 .stop_detail = std::string("a\xe2\x80", 3),  // half a character
                                 .stop_bytes = 0,
                                 .usage = {.prompt_tokens = 5,
                                           .completion_tokens = 3,
                                           .cached_tokens = 4,
                                           .reasoning_tokens = 1},
                                 .code = errc::rank_lost,
                                 .message = "rank 0 died",
                                 .seed = 9};
  chunk.timings =
    request_timings{.queued_us = 1, .prefill_us = 2, .decode_us = 3, .preemptions = 4};
  chunk.is_last = true;
  chunk.seed = 18446744073709551615u;
  return chunk;
}

node_stats busy() {
  return {.running = 1,
          .queued = 2,
          .inflight_steps = 3,
          .kv_blocks_total = std::int64_t{1} << 40,
          .kv_blocks_free = 5,
          .kv_blocks_cached = 15,
          .slots_total = 6,
          .slots_free = 7,
          .deferred_blocks = 8,
          .steps = 18446744073709551615u,
          .tokens_out = 10,
          .device_busy_ns = 11,
          .device_span_ns = 12,
          .idle_plan_ns = 16,
          .idle_settle_ns = 17,
          .idle_vote_ns = 18,
          .idle_transfer_ns = 19,
          .exposed_host_ns = 20,
          .host_waits = 21,
          .preemptions = 22,
          .cached_tokens = 23,
          .prefix_host_hits = 27,
          .draft_tokens = 24,
          .accepted_tokens = 25,
          .overrun_rows = 26,
          .rank_restarts = 13,
          .step_messages = 14};
}

}  // namespace

TEST_CASE("a client's sampling comes back as it was, together and one field at a time") {
  check_back(sampling_request{});
  check_back(all_set());
  CHECK(check_one_at_a_time(all_set()) == 19);
}

TEST_CASE("a generate request comes back with text, ids or chat, and only with that one") {
  check_back(continuation("Hi, 世界"));
  auto by_ids = continuation({});
  by_ids.ids = {{0, 17, 129279}};
  check_back(by_ids);
  auto by_chat = continuation({});
  by_chat.chat = R"({"messages":[{"role":"user","content":"你好"}]})";
  check_back(by_chat);
  // An input that is there but empty is not the same as none.
  check_back(continuation(""));
  by_ids.ids->clear();
  check_back(by_ids);
  by_chat.chat = "";
  check_back(by_chat);
  check_back(continuation({}));
}

TEST_CASE("a generate request comes back one field at a time") {
  generate_request full = continuation("Hi");
  full.ids = {{0, 17}};
  full.chat = "{}";
  CHECK(check_one_at_a_time(full) == 14);
}

TEST_CASE("salts come back byte for byte, so that no two of them become one") {
  auto request = continuation("Hi");
  for (const auto& salt :
       {std::string("\xff"), std::string("?"), std::string("\xfe"), std::string()}) {
    request.cache_salt = salt;
    check_back(request);
  }
  request.cache_salt.reset();
  check_back(request);
}

TEST_CASE("an input travels in the field of its kind, and what is not sent is not set") {
  v1::GenerateRequest m;
  REQUIRE(m.ParseFromString(to_wire(continuation("Hi"))));
  CHECK(m.input_case() == v1::GenerateRequest::kText);
  CHECK(m.request_id() == "r-1");
  CHECK(m.priority() == -2);
  m.Clear();
  m.mutable_token_ids();
  const auto bare = from_wire<generate_request>(m.SerializeAsString());
  REQUIRE(bare);
  CHECK(bare->ids == std::vector<token_id>{});
  CHECK(!bare->text);
  CHECK(!bare->chat);
  CHECK(bare->sampling == sampling_request{});
}

TEST_CASE(
  "a request with none or several inputs is sent with none, so that the gateway refuses it") {
  for (int mask = 0; mask < 8; ++mask) {
    CAPTURE(mask);
    generate_request request;
    if (mask & 1) request.text = "Hi";
    if (mask & 2) request.ids = {{0}};
    if (mask & 4) request.chat = "{}";
    v1::GenerateRequest m;
    REQUIRE(m.ParseFromString(to_wire(request)));
    const bool is_one = mask == 1 || mask == 2 || mask == 4;
    CHECK((m.input_case() != v1::GenerateRequest::INPUT_NOT_SET) == is_one);
  }
}

TEST_CASE("a sampling field that is 0 comes back as 0, and one that is absent as absent") {
  std::size_t optional_fields = 0;
  const sampling_request absent;
  for_each_field(absent, [&](std::string_view name, const auto& value) {
    if constexpr (requires { value.has_value(); }) {
      CAPTURE(name);
      sampling_request one;
      for_each_field(one, [&](std::string_view other, auto& target) {
        if constexpr (requires { target.has_value(); })
          if (other == name) target.emplace(0);
      });
      check_back(one);
      const auto back = from_wire<sampling_request>(to_wire(one));
      for_each_field(*back, [&](std::string_view other, const auto& got) {
        CAPTURE(other);
        if constexpr (requires { got.has_value(); }) CHECK(got.has_value() == (other == name));
      });
      ++optional_fields;
    }
  });
  CHECK(optional_fields == 10);
  // What a client states is for the gateway to judge: -1 is not taken for absent.
  sampling_request odd;
  odd.max_tokens = -1;
  odd.logprobs = -1;
  check_back(odd);
}

TEST_CASE("an empty sampling message sets nothing, and one with nothing set is nearly empty") {
  const auto empty = from_wire<sampling_request>("");
  REQUIRE(empty);
  CHECK(*empty == sampling_request{});
  v1::SamplingParams m;
  REQUIRE(m.ParseFromString(to_wire(sampling_request{})));
  CHECK(m.skip_special_tokens());
  m.clear_skip_special_tokens();  // the one field whose default is not 0 or absent
  CHECK(m.ByteSizeLong() == 0);
}

TEST_CASE("a number of answers is sent where it is not one") {
  sampling_request sampling;
  v1::SamplingParams m;
  REQUIRE(m.ParseFromString(to_wire(sampling)));
  CHECK(!m.has_n());
  for (const std::int32_t n : {0, -1, 2}) {
    sampling.n = n;
    check_back(sampling);
  }
  generate_request request;
  v1::GenerateRequest sent;
  REQUIRE(sent.ParseFromString(to_wire(request)));
  CHECK(!sent.sampling().has_n());
}

TEST_CASE("a tool call delta comes back together and one field at a time") {
  check_back(tool_call_delta{});
  check_back(call());
  CHECK(check_one_at_a_time(call()) == 4);
}

TEST_CASE("a token chunk comes back together and one field at a time") {
  check_back(token_chunk{});
  check_back(last_chunk());
  CHECK(check_one_at_a_time(last_chunk()) == 12);
  auto chunk = last_chunk();
  chunk.finish = sequence_finish{};  // a finish that says nothing is still a finish
  check_back(chunk);
  v1::TokenChunk m;
  REQUIRE(m.ParseFromString(to_wire(chunk)));
  CHECK(m.has_finish());
  CHECK(!m.finish().has_stop_bytes());
  CHECK(m.seq() == chunk.seq);
  CHECK(m.sequence() == 0);  // the engine's number of the sequence is not the client's business
}

TEST_CASE("node stats come back together and one field at a time") {
  check_back(node_stats{});
  check_back(busy());
  CHECK(check_one_at_a_time(busy()) == 27);
}

TEST_CASE("a prompt that is not UTF-8 arrives byte for byte, one that is travels as text") {
  for (const std::string& text :
       {std::string("\xff"), std::string("caf\xe9 \xe4\xbd"), std::string("\0\x80 世", 6)}) {
    CAPTURE(text);
    v1::GenerateRequest m;
    REQUIRE(m.ParseFromString(to_wire(continuation(text))));
    CHECK(m.input_case() == v1::GenerateRequest::kTextBytes);
    check_back(continuation(text));
  }
  const std::string with_zero("a\0世", 5);
  v1::GenerateRequest m;
  REQUIRE(m.ParseFromString(to_wire(continuation(with_zero))));
  CHECK(m.input_case() == v1::GenerateRequest::kText);
  check_back(continuation(with_zero));
}

TEST_CASE("a chat that is not UTF-8 is sent without an input rather than with another meaning") {
  generate_request request;
  request.chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"\xe4\xbd\"}]}";
  const auto back = from_wire<generate_request>(to_wire(request));
  REQUIRE(back);
  CHECK(!back->chat);
  CHECK(!back->text);
  CHECK(!back->ids);
}

TEST_CASE("names and text of a chunk that are not UTF-8 are made so, its stop detail is not") {
  token_chunk chunk;
  chunk.request_id = "r\xff";
  chunk.text = "a\xfe";
  chunk.tool_calls = {{.index = 0, .id = "\x80", .name = "n\xc3", .arguments = "{\xe4\xbd"}};
  chunk.finish = sequence_finish{};
  chunk.finish->stop_detail = "\xff";
  const auto back = from_wire<token_chunk>(to_wire(chunk));
  REQUIRE(back);
  CHECK(back->request_id == "r?");
  CHECK(back->text == "a?");
  CHECK(back->tool_calls ==
        std::vector<tool_call_delta>{{.index = 0, .id = "?", .name = "n?", .arguments = "{??"}});
  CHECK(back->finish->stop_detail == "\xff");
}

TEST_CASE("mutants of a client's wire bytes are read or refused") {
  mutator mutate(11);
  const auto request = to_wire(continuation("Hi, 世界"));
  const auto chunk = to_wire(last_chunk());
  const int rounds = with_effort(10'000);
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    if (const auto back = from_wire<generate_request>(mutate.bytes(request)); !back) {
      REQUIRE(back.error().code == errc::invalid_argument);
      ++refused;
    }
    if (const auto back = from_wire<token_chunk>(mutate.bytes(chunk)); !back) {
      REQUIRE(back.error().code == errc::invalid_argument);
      ++refused;
    }
  }
  CHECK(refused > rounds / 10);
  CHECK(refused < 2 * rounds - rounds / 10);
}
