#include <doctest/doctest.h>

#include "actors/scenario/counts.hpp"
#include "tests/actors/scenario_support.hpp"

using namespace deepinfer;

namespace {

/// Counts of a log, without expectations in between.
struct counted {
  scenario_case it;
  const audit_log& log;

  std::int64_t operator()(const char* name, std::optional<std::vector<std::int32_t>> of = {},
                          std::optional<step_kind> kind = {}, std::optional<std::int32_t> rank = {},
                          std::size_t until = no_index) const {
    count_form what;
    what.count = name;
    what.of = std::move(of);
    what.kind = kind;
    return count_of(log, it, what, rank, until);
  }
};

scenario_case case_of(const std::string& engine) {
  return first_case(scenario_of("engine: " + engine +
                                "\nmodel: { accept: [1, 3, 0] }\nscript:\n"
                                "  - submit: { id: a, prompt_tokens: 8, max_tokens: 100 }\n"
                                "  - submit: { id: b, prompt_tokens: 5 }\n"));
}

audit_row row_of(std::int32_t request, row_kind kind, std::int32_t position, std::int32_t width,
                 std::int32_t yields_max, std::int32_t source = 0) {
  return {.request = request,
          .kind = kind,
          .width = width,
          .position = position,
          .source = source,
          .yields_min = yields_max > 0 ? 1 : 0,
          .yields_max = yields_max,
          .table_blocks = blocks_for(position + width, 4)};
}

/// The run of "a stop inside an accepted run cuts the run" at depth two: rows of 1 + 3 accept
/// 1, 3 and 0 drafts, output 6 is the stop.
audit_log stop_inside_a_run() {
  audit_log log(2, 1);
  const auto launch = [&](std::int64_t us, std::int64_t step, const audit_row& row) {
    log.launched(us, 0, step, step == 1 ? step_kind::prefill : step_kind::decode, row.width, 0,
                 std::span(&row, 1));
  };
  const auto settle = [&](std::int64_t us, std::int64_t step, std::int32_t width,
                          std::int32_t tokens) {
    const audit_row_result result{width, tokens};
    log.waited(us, 0, step);
    log.settled(us, 0, step, false, std::span(&result, 1));
  };
  const token_id ids[] = {20, 21, 22, 23, 24, 1};
  const auto emit = [&](std::int64_t us, std::int64_t step, std::size_t first, std::size_t count) {
    log.tokens(us, 0, 0, step, static_cast<std::int32_t>(first),
               std::span(ids).subspan(first, count));
  };
  launch(0, 1, row_of(0, row_kind::prefill, 0, 8, 1, from_fresh));
  launch(0, 2, row_of(0, row_kind::decode, 8, 4, 4));
  settle(2000, 1, 8, 1);
  emit(2000, 1, 0, 1);
  launch(2000, 3, row_of(0, row_kind::decode, 12, 4, 4));
  settle(4000, 2, 4, 2);
  emit(4000, 2, 1, 2);
  launch(4000, 4, row_of(0, row_kind::decode, 14, 4, 4));
  settle(6000, 3, 4, 4);
  emit(6000, 3, 3, 3);
  log.finished(6000, 0, 0, 3, {scenario_finish::stop, errc::ok, {}});
  settle(8000, 4, 4, 1);
  return log;
}

}  // namespace

TEST_CASE("the worked example of a stop inside an accepted run counts as the language says [I37]") {
  const auto log = stop_inside_a_run();
  const counted count{case_of("{ depth: 2, num_drafts: 3 }"), log};
  CHECK(count("steps", {{0}}) == 4);
  CHECK(count("overrun_rows", {{0}}) == 1);
  CHECK(count("discarded_tokens", {{0}}) == 2);
  CHECK(count("reserved_peak", {{0}}) == 18);
  CHECK(count("blocks_peak", {{0}}) == 5);
  CHECK(count("tokens", {{0}}) == 6);
  CHECK(count("final_records", {{0}}) == 1);
  CHECK(count("host_waits") == 4);
  CHECK(count("rows") == 4);
  CHECK(count("chunks") == 1);
  CHECK(count("fresh_rows") == 1);
  CHECK(count("steps", {}, step_kind::decode) == 3);
  CHECK(count("group_steps", {}, step_kind::prefill) == 1);
  CHECK(count("failed_steps") == 0);
  CHECK(count("preemptions") == 0);
  for (const auto* name : {"steps", "overrun_rows", "discarded_tokens", "tokens", "reserved_peak",
                           "final_records", "rows", "chunks"}) {
    CAPTURE(name);
    CHECK(count(name, {{1}}) == 0);
  }
  // By the time the stop is known, the row behind it has not settled yet.
  const auto end = log.find({scenario_event_kind::finish, 0, 0, 0})->order + 1;
  CHECK(count("overrun_rows", {{0}}, {}, {}, end) == 0);
  CHECK(count("discarded_tokens", {{0}}, {}, {}, end) == 1);
}

TEST_CASE("an abort discards nothing, a drafter's overhang is reserved behind rows that draft") {
  audit_log log(2, 1);
  const auto chunk = row_of(0, row_kind::prefill, 0, 4, 0, from_fresh);
  const auto final_chunk = row_of(0, row_kind::prefill, 4, 4, 1, from_fresh);
  log.launched(0, 0, 1, step_kind::prefill, 4, 0, std::span(&chunk, 1));
  const counted first{case_of("{ num_drafts: 3, draft_overhang: 2 }"), log};
  CHECK(first("reserved_peak", {{0}}) == 4);
  log.launched(0, 0, 2, step_kind::prefill, 4, 0, std::span(&final_chunk, 1));
  const counted both{first.it, log};
  CHECK(both("reserved_peak", {{0}}) == 10);
  CHECK(both("chunks", {{0}}) == 2);
  const counted plain{case_of("{ draft_overhang: 2 }"), log};
  CHECK(plain("reserved_peak", {{0}}) == 8);  // nothing drafts
  log.finished(1000, 0, 0, 0, {scenario_finish::abort, errc::cancelled, {}});
  const audit_row_result none{4, 0}, one{4, 1};
  log.settled(2000, 0, 1, false, std::span(&none, 1));
  log.settled(2000, 0, 2, false, std::span(&one, 1));
  CHECK(both("overrun_rows") == 0);
  CHECK(both("discarded_tokens") == 0);
}

TEST_CASE(
  "failed steps, preemptions, routed rows and written ends are counted by rank or request") {
  audit_log log(2, 2);
  const auto row = row_of(1, row_kind::prefill, 0, 5, 1, from_fresh);
  log.launched(1000, 1, 1, step_kind::prefill, 5, 0, std::span(&row, 1));
  log.launched(1500, 0, 1, step_kind::empty, 0, 0, {});
  log.launched(2500, 0, 2, step_kind::empty, 0, 0, {});
  log.settled(3000, 1, 1, true, {});
  log.happened(3000, scenario_event_kind::preempted, 1);
  log.happened(3000, scenario_event_kind::resumed, 1);
  log.routed(1, 5);
  log.routed(1, 2);
  log.written(1, 5);
  log.written(1, 3);
  const counted count{case_of("{ ranks: 2 }"), log};
  CHECK(count("failed_steps") == 1);
  CHECK(count("failed_steps", {}, {}, 0) == 0);
  CHECK(count("preemptions", {{1}}) == 1);
  CHECK(count("preemptions", {{0}}) == 0);
  CHECK(count("routed_rows") == 7);
  CHECK(count("routed_rows", {}, {}, 0) == 0);
  CHECK(count("written_end", {{1}}) == 5);
  CHECK(count("steps", {}, {}, 0) == 2);
  CHECK(count("steps", {}, step_kind::empty) == 2);
  CHECK(count("rows", {}, {}, 1) == 1);
  CHECK(count("group_steps") == 2);
  CHECK(count("group_steps", {}, step_kind::prefill) == 1);
  count_form between;
  between.count = "steps";
  between.from_us = 1000;
  between.to_us = 1500;
  CHECK(count_of(log, count.it, between, {}, no_index) == 2);
}

TEST_CASE("ranks of a group share its steps, other groups have their own") {
  audit_log log(2, 4);
  const auto row = row_of(0, row_kind::decode, 5, 1, 1);
  for (const std::int32_t rank : {0, 1, 2, 3})
    log.launched(0, rank, 1, rank == 3 ? step_kind::decode : step_kind::empty, 0, 0,
                 std::span(&row, rank == 3 ? 1 : 0));
  log.launched(1, 2, 2, step_kind::empty, 0, 0, {});
  const auto engine = case_of("{ ranks: 4, groups: 2 }").engine;
  const auto second = group_steps(log, engine, 1, no_index);
  REQUIRE(second.size() == 2);
  CHECK(second[0].kind == step_kind::decode);
  CHECK(second[1].kind == step_kind::empty);
  CHECK(group_steps(log, engine, 0, no_index).size() == 1);
}

TEST_CASE("the log knows the first time of every event, and its own moments") {
  audit_log log(1, 1);
  const auto chunk = row_of(0, row_kind::prefill, 0, 4, 0, from_fresh);
  const token_id ids[] = {20, 21, 22};
  log.submitted(0, 0);
  log.launched(1, 0, 1, step_kind::prefill, 4, 0, std::span(&chunk, 1));
  log.launched(2, 0, 2, step_kind::prefill, 4, 0, std::span(&chunk, 1));
  log.settled(3, 0, 1, true, {});
  log.tokens(4, 0, 0, 2, 0, ids);
  log.happened(5, scenario_event_kind::paused);
  log.happened(6, scenario_event_kind::paused);
  log.happened(7, scenario_event_kind::rank_dead, 0);
  log.asked(8, 3, 12);
  log.asked(9, 4);
  const auto at = [&](scenario_event_kind kind, std::int32_t request, std::int64_t number) {
    const auto found = log.find({kind, request, 0, number});
    return found ? found->us : -1;
  };
  using kind = scenario_event_kind;
  CHECK(at(kind::launched, 0, 0) == 1);
  CHECK(at(kind::chunk_launched, 0, 2) == 2);
  CHECK(at(kind::chunk_launched, 0, 3) == -1);
  CHECK(at(kind::step_failed, -1, 1) == 3);
  CHECK(at(kind::step_settled, -1, 1) == 3);
  CHECK(at(kind::step_settled, -1, 2) == -1);
  CHECK(at(kind::token, 0, 3) == 4);
  CHECK(at(kind::token, 0, 4) == -1);
  CHECK(at(kind::paused, -1, 0) == 5);
  CHECK(at(kind::drained, -1, 0) == -1);
  CHECK(at(kind::rank_dead, -1, 0) == 7);
  CHECK(at(kind::finish, 0, 0) == -1);
  CHECK(*log.find({kind::token, 0, 0, 1}) < *log.find({kind::token, 0, 0, 2}));
  REQUIRE(log.asked_entry(3));
  CHECK(log.sample_of(*log.asked_entry(3)) == 12);
  CHECK(!log.sample_of(*log.asked_entry(4)));
  CHECK(!log.asked_entry(0));
}
