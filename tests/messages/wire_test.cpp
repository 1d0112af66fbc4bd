#include <doctest/doctest.h>

#include <google/protobuf/unknown_field_set.h>

#include "messages/api.pb.h"
#include "messages/wire.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;

namespace {

/// Every field away from its default.
sampling_params all_set() {
  sampling_params p;
  p.temperature = 0.5f;
  p.top_p = 0.9f;
  p.top_k = 7;
  p.min_p = 0.1f;
  p.presence_penalty = -1.5f;
  p.frequency_penalty = 0.25f;
  p.repetition_penalty = 1.1f;
  p.seed = 18446744073709551615u;
  p.max_tokens = 0;
  p.min_tokens = 3;
  p.logprobs = 0;
  p.ignore_eos = true;
  p.include_stop = true;
  p.skip_special_tokens = false;
  p.reasoning = true;
  p.grammar = "json_object";
  p.stop_token_ids = {1, 128799};
  p.stop = {"\n\n", std::string("\xff\0z", 3), "", "终"};
  p.logit_bias = {{3, -100.0f}, {17, 2.5f}};
  return p;
}

sequence_finish stopped() {
  return {.reason = finish_reason::stop,
          .stop_detail = std::string("a\xe2\x80", 3),  // half a character
          .stop_bytes = 0,
          .usage = {.prompt_tokens = 5,
                    .completion_tokens = 2,
                    .cached_tokens = 4,
                    .reasoning_tokens = 1},
          .code = errc::rank_lost,
          .message = "rank 0 died",
          .seed = 18446744073709551615u};
}

}  // namespace

TEST_CASE("sampling parameters come back from the wire as they were, set or at their defaults") {
  for (const auto& params : {sampling_params{}, all_set()}) {
    const auto back = from_wire<sampling_params>(to_wire(params));
    REQUIRE(back);
    CHECK(*back == params);
  }
  // One field at a time: none may leak into another or hide behind a default.
  const auto full = all_set();
  std::size_t fields_seen = 0;
  for_each_field(full, [&](std::string_view name, const auto& value) {
    CAPTURE(name);
    sampling_params one;
    for_each_field(one, [&](std::string_view other, auto& target) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::decay_t<decltype(target)>>)
        if (other == name) target = value;
    });
    CHECK(!(one == sampling_params{}));
    const auto back = from_wire<sampling_params>(to_wire(one));
    REQUIRE(back);
    CHECK(*back == one);
    ++fields_seen;
  });
  CHECK(fields_seen == 19);
}

TEST_CASE("an empty message means the product's defaults, and 0 differs from absent") {
  const auto params = from_wire<sampling_params>("");
  REQUIRE(params);
  CHECK(params->temperature == 1.0f);
  CHECK(params->max_tokens == -1);
  CHECK(params->skip_special_tokens);
  v1::SamplingParams wire;
  wire.set_temperature(0);
  wire.set_max_tokens(0);
  wire.set_logprobs(0);
  const auto zero = from_wire<sampling_params>(wire.SerializeAsString());
  REQUIRE(zero);
  CHECK(zero->temperature == 0.0f);
  CHECK(zero->max_tokens == 0);
  CHECK(zero->logprobs == 0);
  v1::SamplingParams sent;
  REQUIRE(sent.ParseFromString(to_wire(sampling_params{})));
  CHECK(!sent.has_max_tokens());
  CHECK(!sent.has_logprobs());
  CHECK(sent.has_seed());
}

TEST_CASE("a finish comes back with reason, stop, usage, code and message") {
  for (const auto reason :
       {finish_reason::none, finish_reason::stop, finish_reason::length, finish_reason::abort,
        finish_reason::error, finish_reason::resource, finish_reason::tool_calls}) {
    auto finish = stopped();
    finish.reason = reason;
    const auto back = from_wire<sequence_finish>(to_wire(finish));
    REQUIRE(back);
    CHECK(*back == finish);
  }
  const auto plain = from_wire<sequence_finish>(to_wire(sequence_finish{}));
  REQUIRE(plain);
  CHECK(*plain == sequence_finish{});
  for (int i = 0; i <= static_cast<int>(errc::io_failed); ++i) {
    sequence_finish finish;
    finish.code = static_cast<errc>(i);
    CHECK(from_wire<sequence_finish>(to_wire(finish))->code == finish.code);
  }
}

TEST_CASE("a chunk comes back with tokens, logprobs and finish, and without what it lacks") {
  sequence_chunk chunk{
    .sequence = {9}, .first_output = 3, .tokens = {5, 0, 129279}, .logprobs = {}, .finish = {}};
  auto back = from_wire<sequence_chunk>(to_wire(chunk));
  REQUIRE(back);
  CHECK(*back == chunk);
  CHECK(!back->finish);
  chunk.logprobs = {{{5, 6}, {-0.5f, -1.0f}, {}}, {{0}, {0.0f}, {}}, {{}, {}, {}}};
  chunk.finish = stopped();
  back = from_wire<sequence_chunk>(to_wire(chunk));
  REQUIRE(back);
  CHECK(*back == chunk);
}

TEST_CASE("a request comes back with its sequence, prompt, parameters, priority and salt") {
  const sequence_request request{
    .sequence = {18446744073709551615u},
    .prompt = std::make_shared<const std::vector<token_id>>(std::vector<token_id>{0, 17, 4}),
    .params = std::make_shared<const sampling_params>(all_set()),
    .priority = -2,
    .cache_salt = 18446744073709551615u};
  const auto back = from_wire<sequence_request>(to_wire(request));
  REQUIRE(back);
  CHECK(back->sequence == request.sequence);
  CHECK(*back->prompt == *request.prompt);
  CHECK(*back->params == *request.params);
  CHECK(back->priority == -2);
  CHECK(back->cache_salt == request.cache_salt);
}

TEST_CASE("a request without ids or with a foreign id is invalid_argument and names the field") {
  v1::GenerateRequest m;
  m.set_request_id("7");
  auto back = from_wire<sequence_request>(m.SerializeAsString());
  REQUIRE(!back);
  CHECK(back.error().param == "token_ids");
  m.set_request_id("gen-7");
  m.mutable_token_ids()->add_ids(1);
  back = from_wire<sequence_request>(m.SerializeAsString());
  REQUIRE(!back);
  CHECK(back.error().param == "request_id");
  CHECK(back.error().message == "found 'gen-7', expected the number of a sequence");
  // A salt that can't be read is no reason to share with everyone.
  m.set_request_id("7");
  for (const char* salt : {"", "tenant", "7x", "18446744073709551616"}) {
    CAPTURE(std::string(salt));
    m.set_cache_salt(salt);
    back = from_wire<sequence_request>(m.SerializeAsString());
    REQUIRE(!back);
    CHECK(back.error().param == "cache_salt");
  }
}

TEST_CASE("text that is not UTF-8 is made so before it is sent, bytes stay as they are") {
  sequence_finish finish;
  finish.message = "quoted \xff\xfe here";
  finish.stop_detail = "\xff";
  const auto back = from_wire<sequence_finish>(to_wire(finish));
  REQUIRE(back);
  CHECK(back->message == "quoted ?? here");
  CHECK(back->stop_detail == "\xff");
}

TEST_CASE("a newer sender's fields, codes and reasons do no harm") {
  v1::Finish m;
  m.set_code("invented_later");
  m.GetReflection()->MutableUnknownFields(&m)->AddVarint(900, 7);
  const auto back = from_wire<sequence_finish>(m.SerializeAsString() + "\x08\x63");  // reason 99
  REQUIRE(back);
  CHECK(back->code == errc::internal);
  CHECK(back->reason == finish_reason::error);
}

TEST_CASE("mutants of wire bytes are read or refused") {
  mutator mutate(5);
  const auto finish = to_wire(sequence_chunk{.sequence = {9},
                                             .first_output = 3,
                                             .tokens = {5, 6},
                                             .logprobs = {{{5}, {-1.0f}, {}}, {{6}, {-2.0f}, {}}},
                                             .finish = stopped()});
  const auto params = to_wire(all_set());
  const int rounds = with_effort(10'000);
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    if (const auto back = from_wire<sequence_chunk>(mutate.bytes(finish)); !back) ++refused;
    if (const auto back = from_wire<sampling_params>(mutate.bytes(params)); !back) {
      REQUIRE(back.error().code == errc::invalid_argument);
      ++refused;
    }
  }
  CHECK(refused > rounds / 10);
  CHECK(refused < 2 * rounds - rounds / 10);
}
