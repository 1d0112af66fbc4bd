#include <doctest/doctest.h>

#include <map>

#include "actors/open_request.hpp"
#include "runtime/base/random.hpp"

using namespace deepinfer;

namespace {

const tokenizer& words() {
  static const auto loaded =
    tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
  return loaded;
}

accepted_request accepted(std::uint64_t seed = 7) {
  accepted_request out;
  out.prompt = std::make_shared<const std::vector<token_id>>(std::vector<token_id>{5, 6, 7});
  auto params = std::make_shared<sampling_params>();
  params->seed = seed;
  out.params = std::move(params);
  return out;
}

generate_request asked(std::int32_t n, std::int32_t window = 0) {
  generate_request out;
  out.request_id = "x";
  out.sampling.n = n;
  out.window = window;
  return out;
}

sequence_chunk gained(const std::string& text, finish_reason reason = finish_reason::none) {
  sequence_chunk out;
  out.tokens = words().encode(text, specials::off);
  if (reason != finish_reason::none) {
    out.finish.emplace();
    out.finish->reason = reason;
  }
  return out;
}

struct fixture {
  explicit fixture(std::int32_t n, std::int32_t window = 0)
    : request("x", asked(n, window), accepted(), words(), seq_id{11}, counts, 1000) {}

  metrics told;
  request_counts counts{&told};
  open_request request;
  std::vector<token_chunk> out;
};

}  // namespace

TEST_CASE("answers share the prompt, have seeds of their own and follow each other's numbers") {
  fixture it(3);
  for (std::int32_t i = 0; i < 3; ++i) {
    const auto& sequence = it.request.sequence(i);
    CHECK(sequence.sequence.value == static_cast<std::uint64_t>(11 + i));
    CHECK(sequence.prompt == it.request.sequence(0).prompt);
    CHECK(sequence.params->seed == choice_seed(7, static_cast<std::uint32_t>(i)));
  }
  CHECK(it.request.sequence(0).params->seed == 7);
  CHECK(it.request.sequence(1).params->seed != it.request.sequence(2).params->seed);
}

TEST_CASE("chunks are numbered over the request, each answer finishes once, the last one ends it") {
  fixture it(2);
  it.request.push(1, gained("one"), 2000, it.out);
  it.request.push(0, gained("two"), 2000, it.out);
  it.request.push(1, gained(" more", finish_reason::length), 3000, it.out);
  CHECK_FALSE(it.request.is_over());
  CHECK(it.request.has_ended(1));
  CHECK_FALSE(it.request.has_ended(0));
  it.request.push(1, gained("late"), 3500, it.out);  // nothing follows an end
  it.request.push(0, gained("", finish_reason::stop), 4000, it.out);
  CHECK(it.request.is_over());
  REQUIRE(it.out.size() == 4);
  const std::int32_t indices[] = {1, 0, 1, 0};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(it.out[i].request_id == "x");
    CHECK(it.out[i].seq == i);
    CHECK(it.out[i].index == indices[i]);
    CHECK(it.out[i].finish.has_value() == (i >= 2));
    CHECK(it.out[i].timings.has_value() == (i >= 2));
    CHECK(it.out[i].is_last == (i == 3));
    CHECK(it.out[i].seed == (i == 0 ? std::optional<std::uint64_t>(7) : std::nullopt));
  }
  CHECK(it.out[0].text + it.out[2].text == "one more");
  CHECK(it.out[2].finish->usage.prompt_tokens == 3);
  CHECK(it.out[2].finish->seed == 7);  // the request's, not the one made of it for an answer
  CHECK(it.out[3].finish->seed == 7);
}

TEST_CASE("what may not be sent gathers in one chunk an answer, the longest wait first") {
  fixture it(2, 2);
  it.request.push(0, gained("a"), 2000, it.out);
  it.request.push(1, gained("b"), 2000, it.out);
  CHECK(it.out.size() == 2);
  CHECK(it.request.credit().hold_change() == true);
  it.request.push(1, gained(" c"), 3000, it.out);
  it.request.push(0, gained(" d"), 3000, it.out);
  it.request.push(1, gained(" e", finish_reason::length), 3000, it.out);
  CHECK(it.out.size() == 2);
  CHECK(it.request.info(3000).state == "paused");
  CHECK(it.request.info(3000).chunks_pending == 2);
  it.request.take(1, 4000, it.out);
  REQUIRE(it.out.size() == 3);
  CHECK(it.out[2].index == 1);
  CHECK(it.out[2].seq == 2);
  CHECK(it.out[2].text == " c e");
  CHECK(it.out[2].ids.size() == gained(" c").tokens.size() + gained(" e").tokens.size());
  CHECK(it.out[2].finish->reason == finish_reason::length);
  CHECK_FALSE(it.out[2].is_last);
  it.request.take(5, 4000, it.out);
  REQUIRE(it.out.size() == 4);
  CHECK(it.out[3].text == " d");
  CHECK(it.request.credit().hold_change() == false);
}

TEST_CASE("an error or an abort is told at once, with what had gathered, and only once") {
  for (const auto reason : {finish_reason::error, finish_reason::abort}) {
    fixture it(1, 1);
    it.request.push(0, gained("a"), 2000, it.out);
    it.request.push(0, gained(" b"), 3000, it.out);
    CHECK(it.out.size() == 1);
    it.request.end(0, {reason, errc::slow_consumer, "too slow"}, 5000, it.out);
    REQUIRE(it.out.size() == 2);
    CHECK(it.out[1].text == " b");
    CHECK(it.out[1].finish->reason == reason);
    CHECK(it.out[1].finish->code == errc::slow_consumer);
    CHECK(it.out[1].finish->message == "too slow");
    CHECK(it.out[1].finish->usage.completion_tokens ==
          static_cast<std::int32_t>(it.out[0].ids.size() + it.out[1].ids.size()));
    CHECK(it.out[1].is_last);
    it.request.end(0, {reason, errc::internal, "again"}, 6000, it.out);
    it.request.take(9, 6000, it.out);
    CHECK(it.out.size() == 2);
  }
}

TEST_CASE("an end that waits for its client can be replaced, or be let go as it is") {
  for (const bool is_replaced : {true, false}) {
    fixture it(1, 1);
    it.request.push(0, gained("a"), 2000, it.out);
    it.request.push(0, gained(" b", finish_reason::length), 3000, it.out);
    CHECK(it.out.size() == 1);
    CHECK(it.request.has_ended(0));
    CHECK_FALSE(it.request.is_over());
    if (is_replaced)
      it.request.end(0, {finish_reason::abort, errc::cancelled, "cancelled"}, 5000, it.out);
    else
      it.request.let_go(5000, it.out);
    REQUIRE(it.out.size() == 2);
    CHECK(it.out[1].finish->reason == (is_replaced ? finish_reason::abort : finish_reason::length));
    CHECK(it.request.is_over());
    CHECK(it.told.value(metric::request_success_total, {"abort"}) == (is_replaced ? 1 : 0));
    CHECK(it.told.value(metric::request_success_total, {"length"}) == (is_replaced ? 0 : 1));
  }
}

TEST_CASE("the time of an answer is split at its start, its first token and its last") {
  fixture it(1);
  CHECK(it.request.phase() == request_phase::queued);
  CHECK(it.request.start(0, 2, 1500));
  CHECK(it.request.phase() == request_phase::prefill);
  it.request.push(0, gained("a"), 4000, it.out);
  CHECK(it.request.phase() == request_phase::decode);
  CHECK_FALSE(it.request.start(0, 0, 5000));  // it was preempted and comes back
  it.request.push(0, gained(" b", finish_reason::stop), 9000, it.out);
  const auto& timings = it.out.back().timings.value();
  CHECK(timings.queued_us == 500);
  CHECK(timings.prefill_us == 2500);
  CHECK(timings.decode_us == 5000);
  CHECK(timings.preemptions == 1);

  fixture unstarted(1);
  unstarted.request.end(0, {finish_reason::error, errc::overloaded, "full"}, 3000, unstarted.out);
  CHECK(unstarted.out.back().timings->queued_us == 2000);
  CHECK(unstarted.out.back().timings->prefill_us == 0);
  CHECK(unstarted.out.back().timings->decode_us == 0);
}

TEST_CASE("a request is counted where it happens: starts, tokens, ends") {
  fixture it(2);
  it.request.start(0, 2, 1500);
  it.request.start(1, 1, 1600);
  it.request.start(1, 3, 1700);
  it.request.push(0, gained("a"), 4000, it.out);
  it.request.push(0, gained(" b", finish_reason::stop), 9000, it.out);
  CHECK(it.told.value(metric::e2e_request_latency_seconds) == 0);
  it.request.end(1, {finish_reason::error, errc::rank_lost, "lost"}, 9500, it.out);
  const auto& told = it.told;
  CHECK(told.value(metric::prompt_tokens_total) == 6);
  CHECK(told.value(metric::prefix_cache_queries_total) == 6);
  CHECK(told.value(metric::prefix_cache_hits_total) == 3);  // first starts only
  CHECK(told.value(metric::generation_tokens_total) ==
        static_cast<double>(gained("a").tokens.size() + gained(" b").tokens.size()));
  CHECK(told.value(metric::time_to_first_token_seconds) == 1);
  CHECK(told.value(metric::inter_token_latency_seconds) == 1);
  CHECK(told.value(metric::request_queue_time_seconds) == 2);
  CHECK(told.value(metric::request_prefill_time_seconds) == 1);
  CHECK(told.value(metric::request_decode_time_seconds) == 1);
  CHECK(told.value(metric::request_inference_time_seconds) == 2);
  CHECK(told.value(metric::request_generation_tokens) == 2);
  CHECK(told.value(metric::e2e_request_latency_seconds) == 1);
  CHECK(told.value(metric::request_success_total, {"stop"}) == 1);
  CHECK(told.value(metric::request_success_total, {"error"}) == 1);
}

TEST_CASE("a log line has numbers and names, texts only if asked for, and is always one line") {
  metrics told;
  const request_counts counts(&told);
  auto wanted = asked(1);
  wanted.client_request_id = "mine\n12:00:00 error forged";
  wanted.tenant = "team";
  for (const bool is_full : {false, true}) {
    open_request request("x", wanted, accepted(), words(), seq_id{1}, counts, 1000);
    if (is_full) request.keep_text("the secret\nprompt");
    std::vector<token_chunk> out;
    request.start(0, 2, 2500);
    request.push(0, gained("secret answer", finish_reason::length), 5000, out);
    const auto line = request.log_line({}, 6000);
    const auto tokens = gained("secret answer").tokens.size();
    const auto expected =
      R"(request x client_id="mine\n12:00:00 error forged" tenant="team" finish=length prompt=3 )"
      "cached=2 output=" +
      std::to_string(tokens) + " seed=7 queued_ms=1.5 prefill_ms=2.5 decode_ms=0.0 total_ms=5.0";
    CHECK(line ==
          expected + (is_full ? R"( asked="the secret\nprompt" answered="secret answer")" : ""));
  }
  open_request gone("y", asked(2), accepted(), words(), seq_id{1}, counts, 1000);
  CHECK(gone.log_line(request_phase::queued, 3000) ==
        "request y finish=gone,gone prompt=3 cached=0 output=0 seed=7 queued_ms=2.0 "
        "prefill_ms=0.0 "
        "decode_ms=0.0 total_ms=2.0 ended_in=queued");
}

TEST_CASE("a request that is over is told as fields and as a span, with the client's trace") {
  const request_counts counts;
  auto wanted = asked(1);
  wanted.client_request_id = "mine";
  wanted.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  open_request request("x", wanted, accepted(), words(), seq_id{1}, counts, 1000);
  std::vector<token_chunk> out;
  request.start(0, 2, 2500);
  request.push(0, gained("hello", finish_reason::length), 5000, out);
  std::map<std::string, std::string> fields;
  for (const auto& it : request.log_fields(6000)) fields[std::string(it.name)] = it.value;
  CHECK(fields["request_id"] == "x");
  CHECK(fields["client_request_id"] == "mine");
  CHECK(fields["trace_id"] == "0af7651916cd43dd8448eb211c80319c");
  CHECK(fields["finish_reason"] == "length");
  CHECK(fields["prompt_tokens"] == "3");
  CHECK(fields["queue_ms"] == "1.5");
  CHECK(fields["seed"] == "7");
  CHECK(request.info(6000).seed == 7);
  CHECK(!fields.contains("tenant"));
  CHECK(request.log_line({}, 6000).find(" trace=0af7651916cd43dd8448eb211c80319c ") !=
        std::string::npos);
  const auto span = request.span(6000);
  CHECK(span.id == "x");
  CHECK(span.queued_ns == 1'000'000);
  CHECK(span.prefill_ns == 2'500'000);
  CHECK(span.decode_ns == 5'000'000);
  CHECK(span.end_ns == 6'000'000);
  CHECK(span.finish == "length");
}
