#include <doctest/doctest.h>

#include <fmt/format.h>

#include "tests/actors/hand_made_log.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

TEST_CASE("a run without mistakes passes, whatever the case") {
  for (const auto* body : {"", "engine: { depth: 1 }\n", "engine: { block_size: 1 }\n",
                           "engine: { max_model_len: 11 }\n"}) {
    CAPTURE(body);
    const auto of = scenario_of(body + two);
    const auto it = first_case(of);
    const auto found = judge(of, it, played(of, it));
    CHECK(names_of(found) == names{});
  }
  const auto of = scenario_of("script:\n  - submit: { id: a, prompt_tokens: 5, logprobs: true,\n"
                              "      reasoning: true, tokens: { 3: 2 } }\n");
  const auto it = first_case(of);
  CHECK(names_of(judge(of, it, played(of, it))) == names{});
}

TEST_CASE("what a client is sent is held against the oracle") {
  SUBCASE("a token too few") {
    hand_made run(two);
    run.emit(0, 0, 0, 3);
    run.finish(0);
    CHECK(run.found() == names{"wrong_finish", "wrong_usage"});
  }
  SUBCASE("a token left out, and one sent twice") {
    hand_made run(two);
    run.emit(0, 0, 0, 1);
    run.emit(0, 0, 2, 1);
    run.emit(0, 0, 2, 2);
    CHECK(run.found() == names{"token_gap", "token_gap"});
  }
  SUBCASE("another token, and one past the end") {
    hand_made run(two);
    const token_id wrong[] = {905, 569};
    run.out.log.tokens(0, 0, 0, 0, 0, wrong);
    run.emit(0, 0, 2, 2);
    const token_id more[] = {20};
    run.out.log.tokens(0, 0, 0, 0, 4, more);
    const auto found = judge(run.of, run.it, run.out);
    REQUIRE(found.size() >= 2);
    CHECK(found[0].name == "wrong_token");
    CHECK(found[0].wanted == "output 2 = 568");
    CHECK(found[0].seen == "output 2 = 569");
    CHECK(found[0].request == 0);
    CHECK(found[1].wanted == "4 outputs");
    CHECK(found[1].seen == "output 5 = 20");
  }
  SUBCASE("anything behind the final record") {
    hand_made run(two);
    run.emit(0, 0, 0, 4);
    run.finish(0);
    run.finish(0);
    run.emit(0, 0, 4, 0);
    CHECK(run.found() == names{"second_final_record", "token_after_final"});
  }
  SUBCASE("no final record, and a request whose moment never came") {
    hand_made run(two);
    run.emit(0, 0, 0, 4);
    const auto found = judge(run.of, run.it, run.out);
    CHECK(names_of(found) == names{"no_final_record", "no_final_record"});
    run_outcome empty{audit_log(2, 1)};
    CHECK(judge(run.of, run.it, empty)[0].seen == "its moment never came");
  }
  SUBCASE("usage that is not what was sent") {
    for (const auto field : {&usage_counts::prompt_tokens, &usage_counts::completion_tokens}) {
      hand_made run(two);
      run.emit(0, 0, 0, 4);
      auto final = final_of(run.oracle[0]);
      ++(final.usage.*field);
      run.out.log.finished(0, 0, 0, 0, final);
      CHECK(run.found() == names{"wrong_usage"});
    }
    hand_made run("script:\n  - submit: { id: a, prompt_tokens: 5, reasoning: true }\n");
    run.emit(0, 0, 0, 16);
    auto final = final_of(run.oracle[0]);
    CHECK(final.usage.reasoning_tokens == 16);
    final.usage.reasoning_tokens = 15;
    run.out.log.finished(0, 0, 0, 0, final);
    CHECK(run.found() == names{"wrong_usage"});
  }
}

TEST_CASE("who is ended from outside has a part of what the oracle says") {
  const auto end = [](scenario_finish finish, std::int32_t tokens) {
    hand_made run(two);
    run.emit(0, 0, 0, tokens);
    auto final = final_of(run.oracle[0]);
    final.finish = finish;
    final.usage.completion_tokens = tokens;
    run.out.log.finished(0, 0, 0, 0, final);
    return run.found();
  };
  CHECK(end(scenario_finish::abort, 2) == names{});
  CHECK(end(scenario_finish::error, 4) == names{});
  CHECK(end(scenario_finish::resource, 0) == names{});
  CHECK(end(scenario_finish::rejected, 0) == names{});
  CHECK(end(scenario_finish::stop, 4) == names{"wrong_finish"});
  CHECK(end(scenario_finish::length, 2) == names{"wrong_finish"});
  hand_made refused("script:\n  - submit: { id: a, prompt_ids: [] }\n");
  refused.out.log.finished(0, 0, 0, 0, {scenario_finish::error, errc::internal, {}});
  CHECK(refused.found() == names{"wrong_finish"});
  hand_made rejected("script:\n  - submit: { id: a, prompt_ids: [] }\n");
  rejected.finish(0);
  CHECK(rejected.found() == names{});
}

TEST_CASE("there is one logprob for each token, its own, where they were asked for") {
  const std::string body = "script:\n  - submit: { id: a, prompt_tokens: 5, logprobs: true }\n";
  const auto send = [&](std::vector<float> logprobs, const std::string& script) {
    hand_made run(script);
    run.out.log.tokens(0, 0, 0, 0, 0, std::span(run.oracle[0].tokens).first(2), logprobs);
    return run.found();
  };
  const auto right = hand_made(body).oracle[0].logprobs;
  CHECK(send({right[0], right[1]}, body) == names{});
  CHECK(send({right[0]}, body) == names{"wrong_logprob"});
  CHECK(send({right[1], right[0]}, body) == names{"wrong_logprob"});
  CHECK(send({}, body) == names{"wrong_logprob"});
  CHECK(send({right[0], right[1]}, two) == names{"wrong_logprob"});
}

TEST_CASE("a row is fresh, from one row of the step before of its sequence, or from its slot") {
  const auto after_prefill = [](const std::vector<audit_row>& rows) {
    hand_made run(two);
    run.launch(1, {prompt_row(0, 5), prompt_row(1, 9)}, 0, step_kind::prefill);
    run.launch(2, rows);
    return run.found();
  };
  CHECK(after_prefill({decode_row(0, 5, 0), decode_row(1, 9, 1)}) == names{});
  CHECK(after_prefill({decode_row(1, 9, 1), decode_row(0, 5, 0)}) == names{});
  CHECK(after_prefill({decode_row(0, 5, 1)}) == names{"row_map_broken"});
  CHECK(after_prefill({decode_row(0, 5, 2)}) == names{"row_map_broken"});
  CHECK(after_prefill({decode_row(0, 5, -3)}) == names{"row_map_broken"});
  CHECK(after_prefill({decode_row(0, 5, 0), decode_row(0, 6, 0)}) == names{"row_map_broken"});
  CHECK(after_prefill({decode_row(0, 5, from_slot)}) == names{});
  CHECK(after_prefill({decode_row(0, 5, from_fresh)}) == names{"row_map_broken"});
  auto other_epoch = decode_row(0, 5, 0);
  other_epoch.epoch = 1;
  CHECK(after_prefill({other_epoch}) == names{"row_map_broken"});
  hand_made first(two);
  first.launch(1, {decode_row(0, 5, from_slot)});
  CHECK(first.found() == names{"row_map_broken"});
  hand_made settled(two);
  settled.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  settled.settle(1, {{5, 1}});
  settled.launch(2, {decode_row(0, 5, from_fresh)});
  CHECK(settled.found() == names{});
}

TEST_CASE("a step's widths stay within the token budget [I06]") {
  hand_made run("engine: { max_num_batched_tokens: 13 }\n" + two);
  run.launch(1, {prompt_row(0, 5), prompt_row(1, 9)}, 0, step_kind::prefill);
  CHECK(run.found() == names{"budget_exceeded"});
  hand_made exact("engine: { max_num_batched_tokens: 14 }\n" + two);
  exact.launch(1, {prompt_row(0, 5), prompt_row(1, 9)}, 0, step_kind::prefill);
  CHECK(exact.found() == names{});
}

TEST_CASE("a table has blocks for what its row may need, and not many more [I08]") {
  const auto with_blocks = [](std::int32_t blocks, std::int32_t overhang) {
    hand_made run(fmt::format("engine: {{ num_drafts: 1, draft_overhang: {} }}\n"
                              "model: {{ accept: 1 }}\n{}",
                              overhang, two));
    auto row = prompt_row(0, 5);
    row.table_blocks = blocks_for(5 + overhang, 4);
    run.launch(1, {row}, 0, step_kind::prefill);
    run.settle(1, {{5, 1}});
    run.launch(2, {row_of(0, row_kind::decode, 5, 2, from_fresh, blocks)});
    return run.found();
  };
  CHECK(with_blocks(1, 0) == names{"reserve_too_small"});
  CHECK(with_blocks(2, 0) == names{});  // 7 tokens
  CHECK(with_blocks(2, 2) == names{"reserve_too_small"});
  CHECK(with_blocks(3, 2) == names{});
  CHECK(with_blocks(3, 0) == names{});  // 5 + 2 * 2 + 0 + 3 = 12 tokens at most
  CHECK(with_blocks(4, 0) == names{"reserve_too_large"});
  CHECK(with_blocks(4, 4) == names{});
  // The overhang counts only behind rows that draft.
  hand_made chunk("engine: { num_drafts: 1, draft_overhang: 4 }\nmodel: { accept: 1 }\n" + two);
  auto row = prompt_row(1, 4);
  row.yields_min = row.yields_max = 0;
  chunk.launch(1, {row}, 0, step_kind::prefill);
  CHECK(chunk.found() == names{});
}

TEST_CASE("a sequence whose end is foreseen is not launched again [I40]") {
  hand_made run("engine: { depth: 3 }\nscript:\n"
                "  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n");
  run.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  run.launch(2, {decode_row(0, 5, 0)});
  CHECK(run.found() == names{});
  run.launch(3, {decode_row(0, 6, 0)});
  CHECK(run.found() == names{"launched_past_foreseen_end"});
  hand_made settled("script:\n  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n");
  settled.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  settled.settle(1, {{5, 1}});
  settled.launch(2, {decode_row(0, 5, from_fresh)});
  settled.settle(2, {{1, 1}});
  CHECK(settled.found() == names{});
  settled.launch(3, {decode_row(0, 6, from_fresh)});
  CHECK(settled.found() == names{"launched_past_foreseen_end"});
  hand_made limited("engine: { max_model_len: 6 }\nscript:\n"
                    "  - submit: { id: a, prompt_tokens: 5, max_tokens: 9 }\n");
  limited.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  limited.launch(2, {decode_row(0, 5, 0)});
  CHECK(limited.found() == names{"launched_past_foreseen_end"});
}

TEST_CASE("steps settle once, in launch order, and never more than depth are in flight [I01]") {
  hand_made run("engine: { depth: 2 }\n" + two);
  run.launch(1, {});
  run.launch(2, {});
  run.settle(2, {});
  CHECK(run.found() == names{"settle_out_of_order"});
  run.settle(2, {});
  CHECK(run.found() == names{"settle_out_of_order", "settled_twice"});
  run.settle(9, {});
  CHECK(run.found() == names{"settle_out_of_order", "settled_twice", "settle_out_of_order"});
  hand_made deep("engine: { depth: 2 }\n" + two);
  deep.launch(1, {});
  deep.launch(2, {});
  deep.launch(3, {});
  CHECK(deep.found() == names{"overlap_exceeds_depth"});
  hand_made set("engine: { depth: 2 }\n" + two);
  set.out.log.depth_set(0, 3);
  set.launch(1, {});
  set.launch(2, {});
  set.launch(3, {});
  CHECK(set.found() == names{});
  set.out.log.depth_set(0, 1);
  set.settle(1, {});
  set.settle(2, {});
  set.launch(4, {});
  CHECK(set.found() == names{"overlap_exceeds_depth"});
}

TEST_CASE("a failed or lost step gives nothing, and what is behind it may go on") {
  hand_made failed("script:\n  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n");
  failed.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  failed.launch(2, {decode_row(0, 5, 0)});
  failed.settle(1, {}, true);
  failed.settle(2, {{1, 1}});
  failed.launch(3, {prompt_row(0, 5)}, 0, step_kind::prefill);
  failed.settle(3, {{5, 1}});
  failed.launch(4, {decode_row(0, 5, from_fresh)});
  CHECK(failed.found() == names{});
  hand_made lost("engine: { depth: 1 }\n" + two);
  lost.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  lost.out.log.restarted(0, 0);
  lost.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  lost.settle(1, {{5, 1}});
  CHECK(lost.found() == names{});
}

TEST_CASE("a failed step takes nothing from a later life of its sequences") {
  hand_made run("engine: { depth: 3 }\nscript:\n"
                "  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n");
  const auto of_epoch = [](audit_row row, std::uint32_t epoch) {
    row.epoch = epoch;
    return row;
  };
  run.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  run.launch(2, {decode_row(0, 5, 0)});
  run.settle(1, {}, true);
  run.launch(3, {of_epoch(prompt_row(0, 5), 1)}, 0, step_kind::prefill);
  run.settle(2, {}, true);
  run.launch(4, {of_epoch(decode_row(0, 5, 0), 1)});
  CHECK(run.found() == names{});
  run.settle(3, {{5, 1}});
  run.launch(5, {of_epoch(decode_row(0, 6, 0), 1)});
  CHECK(run.found() == names{"launched_past_foreseen_end"});
}

TEST_CASE("who began behind blocks that a failed step was to write gives nothing") {
  const auto after = [](bool has_failed) {
    hand_made run("engine: { depth: 3, prefix_cache: true }\nscript:\n"
                  "  - submit: { id: a, prompt_tokens: 5, max_tokens: 9 }\n"
                  "  - submit: { id: b, prompt_tokens: 5, max_tokens: 2, prompt: a }\n");
    auto a = prompt_row(0, 5);
    a.added = {{7}, {8}};
    auto b = prompt_row(1, 1);
    b.position = 4;
    b.table_blocks = 2;
    b.added = {{7}, {9}};
    run.launch(1, {a}, 0, step_kind::prefill);
    run.launch(2, {b}, 0, step_kind::prefill);
    if (has_failed)
      run.settle(1, {}, true);
    else
      run.settle(1, {{5, 1}});
    run.settle(2, {{1, 1}});
    run.launch(3, {decode_row(1, 5, 0)});
    auto more = decode_row(1, 6, 0);
    run.launch(4, {more});
    return run.found();
  };
  CHECK(after(false) == names{"launched_past_foreseen_end"});
  CHECK(after(true) == names{});
}

TEST_CASE("a plan is held against what was known when it was made") {
  hand_made run("engine: { depth: 2 }\n" + two);
  run.launch(1, {});
  run.out.log.planned(0, 2);
  run.out.log.depth_set(0, 1);
  run.launch(2, {});
  CHECK(run.found() == names{});
  run.settle(1, {});
  run.out.log.planned(0, 3);
  run.launch(3, {});
  CHECK(run.found() == names{"overlap_exceeds_depth"});
  hand_made dropping("engine: { depth: 3, policy: { preempt_output: drop } }\nscript:\n"
                     "  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n");
  dropping.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  dropping.out.log.planned(0, 2);
  dropping.out.log.happened(0, scenario_event_kind::preempted, 0);
  dropping.launch(2, {decode_row(0, 5, 0)});
  dropping.settle(1, {{5, 1}});
  dropping.settle(2, {{1, 1}});
  auto again = prompt_row(0, 5);
  again.epoch = 1;
  dropping.launch(3, {again}, 0, step_kind::prefill);
  auto next = decode_row(0, 5, 0);
  next.epoch = 1;
  dropping.launch(4, {next});
  CHECK(dropping.found() == names{});
}

TEST_CASE("the host waits once for a step, twice only for one with gated rows") {
  hand_made run(two);
  run.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  run.out.log.waited(0, 0, 1);
  CHECK(run.found() == names{});
  run.out.log.waited(0, 0, 1);
  CHECK(run.found() == names{"second_host_wait"});
  hand_made gated(two);
  auto row = prompt_row(0, 5);
  row.is_gated = true;
  gated.launch(1, {row}, 0, step_kind::prefill);
  gated.out.log.waited(0, 0, 1);
  gated.out.log.waited(0, 0, 1);
  CHECK(gated.found() == names{});
}

TEST_CASE("ranks of a group that have rows do the same kind of step") {
  const auto kinds = [](const std::string& engine, step_kind second) {
    hand_made run("engine: { ranks: 2" + engine + " }\n" + two);
    run.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
    run.launch(1, {prompt_row(1, 9)}, 1, second);
    return run.found();
  };
  CHECK(kinds("", step_kind::prefill) == names{});
  CHECK(kinds("", step_kind::decode) == names{"kind_differs"});
  CHECK(kinds(", groups: 2", step_kind::decode) == names{});
  CHECK(kinds(", mixed_steps: true", step_kind::mixed) == names{});
  hand_made empty("engine: { ranks: 2 }\n" + two);
  empty.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  empty.launch(1, {}, 1);
  CHECK(empty.found() == names{});
}

TEST_CASE("ids that the device gave stay in the vocabulary, those of over-run rows too") {
  hand_made run(two);
  run.launch(1, {prompt_row(0, 5)}, 0, step_kind::prefill);
  const token_id ids[] = {1000};
  const audit_row_result results[] = {{5, 1}};
  run.out.log.settled(0, 0, 1, false, results, ids);
  CHECK(run.found() == names{"token_id_out_of_range"});
}

TEST_CASE("what the player saw is a violation, at the line of the never about it") {
  const auto of = scenario_of(two + "  - expect: { never: canary_mismatch }\n"
                                    "  - expect: { count: steps, value: 99 }\n");
  const auto it = first_case(of);
  run_outcome out{audit_log(2, 1)};  // cut short: nothing else is missing
  out.violations.push_back({.name = "stuck", .wanted = "progress", .seen = "none"});
  out.violations.push_back({.name = "canary_mismatch", .wanted = "1", .seen = "2"});
  const auto found = judge(of, it, out);
  REQUIRE(found.size() == 2);
  CHECK(found[0].place.empty());
  CHECK(found[1].place == "f.yaml:6");
}

TEST_CASE("a shadow has the same tokens, logprobs and ends; an abort cuts either short") {
  const auto of = scenario_of(two);
  const auto it = first_case(of);
  const auto whole = played(of, it);
  CHECK(compare_with_shadow(of, whole, whole).empty());
  const auto cut = [&](std::int32_t tokens, scenario_finish finish, token_id first = 0) {
    run_outcome out{audit_log(2, 1)};
    auto ids = ask_oracle(of, it)[0].tokens;
    ids.resize(static_cast<std::size_t>(tokens));
    if (first != 0) ids[0] = first;
    out.log.tokens(0, 0, 0, 0, 0, ids);
    out.log.finished(0, 0, 0, 0, {finish, errc::ok, {}});
    out.log.tokens(0, 1, 0, 0, 0, ask_oracle(of, it)[1].tokens);
    out.log.finished(0, 1, 0, 0, {scenario_finish::length, errc::ok, {}});
    return out;
  };
  const auto shorter = compare_with_shadow(of, cut(3, scenario_finish::length), whole);
  REQUIRE(shorter.size() == 1);
  CHECK(shorter[0].name == "same_tokens_as");
  CHECK(shorter[0].request == 0);
  CHECK(shorter[0].wanted == "length with 4 tokens: 905 568 774 19");
  CHECK(shorter[0].seen == "length with 3 tokens: 905 568 774");
  CHECK(compare_with_shadow(of, cut(3, scenario_finish::abort), whole).empty());
  CHECK(compare_with_shadow(of, whole, cut(3, scenario_finish::abort)).empty());
  CHECK(compare_with_shadow(of, whole, cut(3, scenario_finish::abort, 20)).size() == 1);
  CHECK(compare_with_shadow(of, cut(4, scenario_finish::stop), whole).size() == 1);
  run_outcome refused{audit_log(2, 1)};
  refused.refused = error{errc::bad_config, "no", "engine.depth"};
  CHECK(compare_with_shadow(of, whole, refused).size() == 1);
}

TEST_CASE("a start is refused for the field that is expected, and only then") {
  const auto expecting =
    scenario_of("script:\n  - expect: { start: refused, field: engine.depth }\n");
  const auto it = first_case(expecting);
  run_outcome out{audit_log(0, 0)};
  CHECK(names_of(judge(expecting, it, out)) == names{"start"});
  out.refused = error{errc::bad_config, "engine.depth: no", "engine.depth"};
  CHECK(judge(expecting, it, out).empty());
  out.refused->param = "engine.ranks";
  const auto other = judge(expecting, it, out);
  REQUIRE(other.size() == 1);
  CHECK(other[0].wanted == "refused because of engine.depth");
  const auto plain = scenario_of(two);
  CHECK(judge(plain, first_case(plain), out)[0].wanted == "an engine that starts");
}
