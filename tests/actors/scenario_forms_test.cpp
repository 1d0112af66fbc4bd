#include <doctest/doctest.h>

#include "tests/actors/scenario_support.hpp"

using namespace deepinfer;

namespace {

const std::string two = "script:\n"
                        "  - submit: { id: a, prompt_tokens: 5, max_tokens: 4 }\n"
                        "  - submit: { id: b, prompt_tokens: 9, max_tokens: 3 }\n";

using change = void (*)(run_outcome&);

/// "NAME: wanted X, seen Y" of what an expectation finds in a run of `two` on an engine with these
/// settings, to which `more` was added; "" where it holds.
std::string judged(const std::string& expectation, change more = nullptr,
                   const std::string& head = "") {
  const auto of = scenario_of(head + two + "  - expect: " + expectation + "\n");
  const auto it = first_case(of);
  auto out = played(of, it);
  if (more) more(out);
  std::string text;
  for (const auto& found : judge(of, it, out)) {
    if (found.place.empty()) continue;  // always checked
    CHECK(found.place.starts_with("f.yaml:"));
    text +=
      (text.empty() ? "" : "; ") + found.name + ": wanted " + found.wanted + ", seen " + found.seen;
  }
  return text;
}

}  // namespace

TEST_CASE("form request: every field holds or says what was seen") {
  struct row {
    std::string expectation, found;
  };
  // clang-format off
  const row table[] = {
    {"{ request: [a, b], finish: length }", ""},
    {"{ request: a, finish: [stop, length], tokens: 4, within: 8ms, first_token_within: 2ms }", ""},
    {"{ request: a, finish: stop }", "request: wanted finish stop, seen length"},
    {"{ request: a, finish: [stop, abort] }", "request: wanted finish stop or abort, seen length"},
    {"{ request: '*', tokens: 4 }", "request: wanted 4 tokens, seen 3"},
    {"{ request: '*', tokens_min: 3, tokens_max: 4 }", ""},
    {"{ request: a, tokens_max: 3 }", "request: wanted at most 3 tokens, seen 4"},
    {"{ request: a, tokens_min: 5 }", "request: wanted at least 5 tokens, seen 4"},
    {"{ request: a, ids: [905, 568, 774, 19] }", ""},
    {"{ request: a, ids: [905, 568] }", "request: wanted ids 905 568, seen 905 568 774 19"},
    {"{ request: a, within: 7999us }", "request: wanted finish within 7999us, seen after 8ms"},
    {"{ request: b, first_token_within: 1ms }", "request: wanted first token within 1ms, seen after 2ms"},
    {"{ request: a, cached_max: 0 }", ""},
    {"{ request: a, cached_min: 1 }", "request: wanted at least 1 cached tokens, seen 0"},
    {"{ request: a, reasoning_tokens: 0 }", ""},
    {"{ request: a, reasoning_tokens: 2 }", "request: wanted 2 reasoning tokens, seen 0"},
    {"{ request: a, code: rank_lost }", "request: wanted code rank_lost, seen ok"},
    {"{ request: a, finish: stop, for: { depth: 1 } }", "request: wanted finish stop, seen length"},
    {"{ request: a, finish: stop, for: { depth: 2 } }", ""},
  };
  // clang-format on
  for (const auto& it : table) {
    CAPTURE(it.expectation);
    CHECK(judged(it.expectation, nullptr, "matrix: { depth: [1, 2] }\n") == it.found);
  }
}

TEST_CASE("form metric: the sample of its moment is within the bounds, times with units") {
  CHECK(judged("{ metric: kv_free_blocks, value: 16 }",
               [](auto& out) { out.log.asked(9000, 0, 16); }) == "");
  CHECK(judged("{ metric: kv_free_blocks, value: 16 }", [](auto& out) {
          out.log.asked(9000, 0, 15);
        }) == "metric kv_free_blocks: wanted 16, seen 15");
  CHECK(judged("{ metric: kv_free_blocks, min: 2, max: 4 }", [](auto& out) {
          out.log.asked(9000, 0, 5);
        }) == "metric kv_free_blocks: wanted 2 to 4, seen 5");
  CHECK(judged("{ metric: device_idle_seconds_total, max: 2ms }", [](auto& out) {
          out.log.asked(9000, 0, 2001);
        }) == "metric device_idle_seconds_total: wanted at most 2ms, seen 2001us");
  CHECK(judged("{ metric: device_idle_seconds_total, min: 2ms }",
               [](auto& out) { out.log.asked(9000, 0, 2000); }) == "");
  CHECK(judged("{ metric: ready, value: 1 }") == "metric ready: wanted 1, seen it was not sampled");
  CHECK(judged("{ at: 5ms, metric: ready, value: 1 }") == "moment: wanted 5ms, seen it never came");
  CHECK(judged("{ after: a.preempted, metric: ready, value: 1 }") ==
        "moment: wanted a.preempted, seen it never came");
}

TEST_CASE("form count: at its moment it covers what has happened so far") {
  CHECK(judged("{ count: steps, value: 4 }") == "");
  CHECK(judged("{ count: steps, of: b, value: 3 }") == "");
  CHECK(judged("{ count: steps, max: 3 }") == "count steps: wanted at most 3, seen 4");
  const auto of = scenario_of(two + "  - expect: { at: 3ms, count: steps, value: 1 }\n");
  const auto it = first_case(of);
  run_outcome out{audit_log(2, 1)};
  out.log.launched(0, 0, 1, step_kind::empty, 0, 0, {});
  out.log.asked(3000, 0);
  out.log.launched(3000, 0, 2, step_kind::empty, 0, 0, {});
  for (const auto& found : judge(of, it, out)) CHECK(found.name != "count steps");
}

TEST_CASE("form never: properties with arguments are read from the log") {
  const auto preempt = [](run_outcome& out) {
    out.log.happened(9000, scenario_event_kind::preempted, 1);
  };
  CHECK(judged("{ never: { preempted: a } }", preempt) == "");
  CHECK(judged("{ never: { preempted: [a, b] } }", preempt) ==
        "preempted: wanted never, seen b was preempted");
  CHECK(judged("{ never: { token_after: { request: a, event: a.finish } } }") == "");
  CHECK(judged("{ never: { token_after: { request: a, event: b.finish } } }") ==
        "token_after: wanted never, seen 1 tokens after b.finish");
  CHECK(judged("{ never: { token_after: { request: a, event: a.token.4 } } }") == "");
  CHECK(judged("{ never: { launched_after: { request: a, event: a.finish } } }") == "");
  CHECK(judged("{ never: { launched_after: { request: a, event: step.4.launched } } }") == "");
  CHECK(judged("{ never: { launched_after: { request: a, event: b.finish } } }") ==
        "launched_after: wanted never, seen a row in step 4 after b.finish");
  CHECK(judged("{ never: { launched_after: { request: a, event: b.preempted } } }") == "");
  CHECK(judged("{ never: canary_mismatch }") == "");
}

TEST_CASE("form never: a block is shared while two of the named requests hold it on one rank") {
  const std::string line = "{ never: { block_shared_by: [a, b] } }";
  static const block_id first[] = {{3}, {4}};
  static const block_id second[] = {{4}, {5}};
  CHECK(judged(line, [](auto& out) {
          out.log.held(9000, 0, 0, first);
          out.log.let_go(9001, 0, 0, first);
          out.log.held(9001, 0, 1, second);
        }) == "");
  CHECK(judged(line, [](auto& out) {
          out.log.held(9000, 0, 0, first);
          out.log.held(9000, 0, 0, first);  // table and lease
          out.log.let_go(9001, 0, 0, first);
          out.log.held(9001, 0, 1, second);
        }) == "block_shared_by: wanted never, seen block 4 of b is also held by a");
  CHECK(judged(
          line,
          [](auto& out) {
            out.log.held(9000, 0, 0, first);
            out.log.held(9001, 1, 1, second);
          },
          "engine: { ranks: 2 }\n") == "");
}

TEST_CASE("form step: only what is written is compared") {
  CHECK(judged("{ step: 1, kind: prefill, rows: { a: 5, b: 9 }, row_count: 2, width: 14 }") == "");
  CHECK(judged("{ step: 4, kind: decode, rows: { a: 1 }, bucket: 0 }") == "");
  CHECK(judged("{ step: 2, kind: prefill }") == "step 2: wanted kind prefill, seen decode");
  CHECK(judged("{ step: 2, rows: { a: 1 } }") ==
        "step 2: wanted rows { a: 1 }, seen { a: 1, b: 1 }");
  CHECK(judged("{ step: 2, rows: { a: 1, b: 2 } }") ==
        "step 2: wanted rows { a: 1, b: 2 }, seen { a: 1, b: 1 }");
  CHECK(judged("{ step: 2, row_count: 3 }") == "step 2: wanted row_count 3, seen 2");
  CHECK(judged("{ step: 2, width: 3 }") == "step 2: wanted width 3, seen 2");
  CHECK(judged("{ step: 2, bucket: 4 }") == "step 2: wanted bucket 4, seen 0");
  CHECK(judged("{ step: 5 }") == "step 5: wanted launched, seen never launched");
  CHECK(judged("{ step: 1, rank: 1 }", nullptr, "engine: { ranks: 2 }\n") ==
        "step 1: wanted launched, seen never launched");
}

TEST_CASE("form step: where the device splits a total, the widths are those of the result") {
  const auto of = scenario_of("engine: { num_drafts: 5 }\nmodel: { accept: 2 }\n" + two +
                              "  - expect: { step: 1, rows: { a: 6, b: 2 }, width: 8 }\n");
  run_outcome out{audit_log(2, 1)};
  const audit_row rows[] = {
    {.request = 0, .width = 6, .position = 5, .table_blocks = 3},
    {.request = 1, .width = 6, .position = 9, .table_blocks = 4},
  };
  out.log.launched(0, 0, 1, step_kind::decode, 8, 8, rows);
  const audit_row_result results[] = {{6, 3}, {2, 1}};
  out.log.settled(0, 0, 1, false, results);
  for (const auto& found : judge(of, first_case(of), out)) CHECK(found.place.empty());
}

TEST_CASE("form order: events happened, each behind the one before") {
  CHECK(judged("{ order: [a.launched, a.token.1, a.token.2, b.finish, a.finish] }") == "");
  CHECK(judged("{ order: [a.finish, b.finish] }") ==
        "order: wanted a.finish before b.finish, seen a.finish at 8ms, b.finish at 6ms");
  CHECK(judged("{ order: [a.finish, a.finish] }") ==
        "order: wanted a.finish before a.finish, seen a.finish at 8ms, a.finish at 8ms");
  CHECK(judged("{ order: [a.finish, drained] }") ==
        "order: wanted drained, seen it never happened");
  CHECK(judged("{ order: [step.1.launched, a.chunk.1.launched] }") != "");  // at once
  CHECK(judged("{ order: [step.1.settled, step.2.launched, step.2.settled] }") == "");
}

TEST_CASE("form order: an end is sent when its step settles, however late it arrives") {
  const auto of = scenario_of("script:\n"
                              "  - submit: { id: a, prompt_tokens: 5, max_tokens: 1 }\n"
                              "  - submit: { id: b, prompt_tokens: 5, max_tokens: 1 }\n"
                              "  - expect: { order: [a.token.1, a.finish, b.launched] }\n");
  const auto it = first_case(of);
  const auto oracle = ask_oracle(of, it);
  const auto is_in_order = [&](bool settles_first) {
    run_outcome out{audit_log(2, 1)};
    const audit_row a[] = {next_row(it, oracle[0], 0, 0)};
    const audit_row b[] = {next_row(it, oracle[1], 1, 0)};
    const audit_row_result result[] = {{5, 1}};
    out.log.launched(0, 0, 1, step_kind::prefill, 5, 0, a);
    if (!settles_first) out.log.launched(2000, 0, 2, step_kind::prefill, 5, 0, b);
    out.log.settled(2000, 0, 1, false, result);
    if (settles_first) out.log.launched(2000, 0, 2, step_kind::prefill, 5, 0, b);
    out.log.tokens(2000, 0, 0, 1, 0, oracle[0].tokens);
    out.log.finished(2000, 0, 0, 1, final_of(oracle[0]));
    const auto found = names_of(judge(of, it, out));
    return std::find(found.begin(), found.end(), "order") == found.end();
  };
  CHECK(is_in_order(true));
  CHECK(!is_in_order(false));
}

TEST_CASE("form decisions: kinds of the group's steps, empty ranks apart") {
  CHECK(judged("{ decisions: [prefill, decode, decode, decode] }") == "");
  CHECK(judged("{ decisions: [decode, decode], from: 3 }") == "");
  CHECK(judged("{ decisions: [decode, prefill], from: 1 }") ==
        "decisions: wanted decode, prefill, seen prefill, decode");
  CHECK(judged("{ decisions: [decode, decode], from: 4 }") ==
        "decisions: wanted decode, decode, seen decode");
  CHECK(judged(
          "{ decisions: [prefill, decode] }",
          [](auto& out) { out.log.launched(9000, 1, 1, step_kind::empty, 0, 0, {}); },
          "engine: { ranks: 2 }\n") == "");
}

TEST_CASE("a rank that this case does not have launches nothing and is equal to nobody") {
  const std::string head = "matrix: { ranks: [1, 2] }\n";
  CHECK(judged("{ equal: [rank0, rank1], what: collectives }", nullptr, head) == "");
  CHECK(judged("{ count: steps, rank: 1, value: 0 }", nullptr, head) == "");
  CHECK(judged("{ order: [a.launched, rank1.dead] }", nullptr, head) ==
        "order: wanted rank1.dead, seen it never happened");
  CHECK(judged("{ step: 1, rank: 1 }", nullptr, head) ==
        "step 1: wanted launched, seen never launched");
}

TEST_CASE("form equal: tokens, logprobs, collectives, placements") {
  CHECK(judged("{ equal: [a, a] }") == "");
  CHECK(judged("{ equal: [a, b] }") == "equal: wanted those of a, seen others of b");
  CHECK(judged("{ equal: [a, b], what: logprobs }") == "");  // none were asked for
  const std::string ranks = "engine: { ranks: 2 }\n";
  CHECK(judged(
          "{ equal: [rank0, rank1], what: collectives }",
          [](auto& out) {
            out.log.collective(0, 7);
            out.log.collective(1, 7);
          },
          ranks) == "");
  CHECK(judged(
          "{ equal: [rank0, rank1], what: collectives }",
          [](auto& out) {
            out.log.collective(0, 7);
            out.log.collective(1, 7);
            out.log.collective(1, 8);
          },
          ranks) == "equal: wanted those of rank0, seen others of rank1");
  CHECK(judged(
          "{ equal: [rank0, rank1], what: placement }", [](auto& out) { out.log.placed(1, 9); },
          ranks) == "equal: wanted those of rank0, seen others of rank1");
}
