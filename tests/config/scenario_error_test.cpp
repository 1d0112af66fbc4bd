#include <doctest/doctest.h>

#include <string>

#include <fmt/format.h>

#include "config/scenario_engine_check.hpp"
#include "config/scenario_load.hpp"

using namespace deepinfer;

namespace {

struct mistake {
  std::string body;     ///< behind the comment and the name
  std::string message;  ///< behind "f.yaml:"
};

std::string error_of(const std::string& text) {
  const auto out = parse_scenario(text, "f.yaml");
  if (out) return "no error";
  CHECK(out.error().code == errc::bad_config);
  return out.error().message;
}

const std::string two = "script:\n  - submit: { id: a, prompt_tokens: 5 }\n";

}  // namespace

TEST_CASE("the head of a scenario file is checked") {
  // clang-format off
  const mistake table[] = {
    {"name: f\n", "f.yaml:1: found 'name: f', expected a comment that tells the story in one sentence"},
    {"#\nname: f\n", "f.yaml:1: found '#', expected a comment that tells the story in one sentence"},
    {"# S.\nname: g\n", "f.yaml:2: name: found 'g', expected that of the file, 'f'"},
    {"# S.\nname: F_x\n", "f.yaml:2: name: found 'F_x', expected words of a-z and 0-9 joined by '-'"},
    {"# S.\nname: f-\n", "f.yaml:2: name: found 'f-', expected words of a-z and 0-9 joined by '-'"},
    {"# S.\n\nseed: 2\n", "f.yaml: name: found '', expected words of a-z and 0-9 joined by '-'"},
    {"# S.\nname: f\ncovers: [I01, X1]\n", "f.yaml:3: covers: found 'X1', expected one of I, B, G, K, D, E and a number of two or three digits"},
    {"# S.\nname: f\ncovers: I\n", "f.yaml:3: covers: found 'I', expected one of I, B, G, K, D, E and a number of two or three digits"},
    {"# S.\nname: f\ncovers: I1\n", "f.yaml:3: covers: found 'I1', expected one of I, B, G, K, D, E and a number of two or three digits"},
    {"# S.\nname: f\nmatrix: [1]\n", "f.yaml:3:9: matrix: found a list, expected a map of settings"},
    {"# S.\nname: f\nneeds: specs\n", "f.yaml:3:8: needs: found 'specs', expected one of chunked_prefill, mixed_steps, spec, confidence, prefix_cache, preempt, penalty, sampling, grammar, stop_strings, reasoning, logprobs, priority, graphs, groups, eplb, transfer, clients, window; did you mean 'spec'?"},
    {"# S.\nname: f\nengine: { dpeth: 2 }\n", "f.yaml:3:11: engine: unknown key 'dpeth'; did you mean 'depth'?"},
    {"# S.\nname: f\nengine: [1]\n", "f.yaml:3:9: engine: found a list, expected a map of settings"},
    {"# S.\nname: f\ndevice: { step_time: 2 }\n", "f.yaml:3:22: device.step_time: found '2', expected a duration in whole microseconds such as 500us, 2ms or 1s"},
    {"# S.\nname: f\ndevice: { step_time: 0.5us }\n", "f.yaml:3:22: device.step_time: found '0.5us', expected a duration in whole microseconds such as 500us, 2ms or 1s"},
    {"# S.\nname: f\nengine: { verify_curve: { 1: fast } }\n", "f.yaml:3:30: engine.verify_curve.1: found 'fast', expected a duration in whole microseconds such as 500us, 2ms or 1s"},
    {"# S.\nname: f\nengine: { verify_curve: { x: 1ms } }\n", "f.yaml:3:27: engine.verify_curve: found 'x', expected a whole number from -2147483648 to 2147483647"},
    {"# S.\nname: f\nengine: { verify_curve: { 1: 1ms, 1: 2ms } }\n", "f.yaml:3:35: engine.verify_curve.1: the key is there twice"},
    {"# S.\nname: f\nengine: { verify_curve: [1ms] }\n", "f.yaml:3:25: engine.verify_curve: found a list, expected a map"},
    {"# S.\nname: f\nmodel: { experts: { layers: 1, experts: 2 } }\n", "f.yaml:3: model.experts: expected layers, experts, top_k and picks"},
    {"# S.\nname: f\nmodel: { experts: { layers: 1, experts: 2, top_k: 1, picks: [[0], [2]] } }\n", "f.yaml:3: model.experts.picks: found expert 2, expected 0 to 1"},
    {"# S.\nname: f\nmodel: { experts: { layers: 1, experts: 2, top_k: 1, picks: [[0, 1]] } }\n", "f.yaml:3: model.experts.picks: found 2 experts, expected top_k = 1"},
    {"# S.\nname: f\nscript: 3\n", "f.yaml:3:9: script[0]: found a single value, expected a map of settings"},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.body);
    CHECK(error_of(row.body) == row.message);
  }
}

TEST_CASE("each entry of a script is one verb with what it needs") {
  // clang-format off
  const mistake table[] = {
    {"script:\n  - {}\n", "4: found no verb, expected exactly one"},
    {"script:\n  - { pause: {}, resume: {} }\n", "4: found the verbs pause and resume, expected exactly one"},
    {"script:\n  - submti: { id: a }\n", "4:5: script[0]: unknown key 'submti'; did you mean 'submit'?"},
    {"script:\n  - submit: { id: A, prompt_tokens: 1 }\n", "4: submit: found the id 'A', expected [a-z][a-z0-9_]*, optionally .N"},
    {"script:\n  - submit: { prompt_tokens: 1 }\n", "4: submit: found the id '', expected [a-z][a-z0-9_]*, optionally .N"},
    {"script:\n  - submit: { id: a.1, count: 2, prompt_tokens: 1 }\n", "4: submit: found the id 'a.1', expected [a-z][a-z0-9_]*"},
    {"script:\n  - submit: { id: step, prompt_tokens: 1 }\n", "4: submit: the id 'step' would be read as an event or a rank"},
    {"script:\n  - submit: { id: rank3, prompt_tokens: 1 }\n", "4: submit: the id 'rank3' would be read as an event or a rank"},
    {two + "  - submit: { id: a, prompt_tokens: 1 }\n", "5: submit: the id 'a' is there twice"},
    {"script:\n  - submit: { id: a }\n", "4: submit: 'a' has no prompt, expected prompt_tokens or prompt_ids"},
    {"script:\n  - submit: { id: a, prompt_ids: [20], prompt_tokens: 1 }\n", "4: submit: found prompt_ids and another prompt, expected one"},
    {"script:\n  - submit: { id: a, continues: a }\n", "4: continues: 'a' is not submitted before 'a'"},
    {two + "  - submit: { id: b, continues: c }\n", "5: continues: no request has the id 'c'; did you mean 'a'?"},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, max_tokens: 0 }\n", "4:52: script[0].submit.max_tokens: found '0', expected a whole number from 1 to 2147483647"},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, tokens: { 0: 20 } }\n", "4: tokens: found output 0 = 20, expected outputs from 1 and ids 1 to 999"},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, tokens: { 1: 1000 } }\n", "4: tokens: found output 1 = 1000, expected outputs from 1 and ids 1 to 999"},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, rank: 1 }\n", "4: rank: found 1, expected 0 to 0"},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, at: 1ms, after: paused }\n", "4: submit: found at and after, expected one of them"},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, after: b.finish }\n", "4: after: event 'b.finish': no request has the id 'b'; did you mean 'a'?"},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, after: a.ends }\n", "4: after: found 'a.ends', expected an event such as a.launched, a.chunk.2.launched, a.token.3, a.finish, step.4.settled, rank1.dead or paused"},
    {"script:\n  - pause: { after: rank1.dead }\n", "4: after: event 'rank1.dead': found rank 1, expected 0 to 0"},
    {"script:\n  - pause: { at: 5ms }\n  - resume: { at: 4ms }\n", "5: resume: found 4000us, expected no time before that of the last action, 5000us"},
    {"script:\n  - abort: {}\n", "4: abort: found no request"},
    {"script:\n  - abort: { request: a* }\n", "4: abort: no request matches 'a*', expected an id, x.* or *"},
    {"script:\n  - abort: { request: A }\n", "4: abort: found 'A', expected ids, x.* or *"},
    {"script:\n  - preempt: { request: b }\n", "4: preempt: no request has the id 'b'"},
    {"script:\n  - preempt: {}\n", "4: preempt: found no request"},
    {"script:\n  - kill: {}\n", "4: kill: expected exactly one of rank, worker, client"},
    {"script:\n  - kill: { rank: 0, worker: 0 }\n", "4: kill: expected exactly one of rank, worker, client"},
    {"script:\n  - kill: { rank: 1 }\n", "4: kill: found rank 1, expected 0 to 0"},
    {"script:\n  - kill: { client: one }\n", "4: kill: no request is of the client 'one'"},
    {two + "  - consume: { request: a }\n", "5: consume: expected request and chunks"},
    {"script:\n  - deliver: { copies: 2 }\n", "4: deliver: found no message"},
    {"script:\n  - deliver: { message: wake }\n", "4: deliver: expected exactly one of copies, delay, drop, swap"},
    {"script:\n  - deliver: { message: wake, drop: true, delay: 1ms }\n", "4: deliver: expected exactly one of copies, delay, drop, swap"},
    {"script:\n  - set: {}\n", "4: set: expected depth, vote or policy"},
    {"script:\n  - set: { depth: 4 }\n", "4: set: depth: found 4, expected 1 to 3"},
    {"engine: { num_drafts: 2 }\n" + two, "3: model.accept: found nothing, expected the drafts that are accepted, because engine.num_drafts is above 0 and 'a' has none of its own"},
    {"matrix: { num_drafts: [0, 2] }\n" + two, ": model.accept: found nothing, expected the drafts that are accepted, because engine.num_drafts is above 0 and 'a' has none of its own"},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.body);
    const auto message =
      row.message.starts_with(':') ? "f.yaml" + row.message : "f.yaml:" + row.message;
    CHECK(error_of("# S.\nname: f\n" + row.body) == message);
  }
}

TEST_CASE("each expectation is one form with fields of that form") {
  // clang-format off
  const mistake table[] = {
    {"{ value: 2 }", "expect: found no form, expected one of count, decisions, equal, metric, never, order, request, start, step"},
    {"{ count: steps, metric: ready, value: 1 }", "expect: found the forms metric and count, expected exactly one"},
    {"{ request: a, value: 1 }", "expect: 'value' says nothing about a request"},
    {"{ metric: ready, value: 1, of: a }", "expect: 'of' says nothing about a metric"},
    {"{ request: b }", "request: no request has the id 'b'; did you mean 'a'?"},
    {"{ request: b.* }", "request: no request matches 'b.*', expected an id, x.* or *"},
    {"{ request: a, tokens: 1, tokens_max: 2 }", "expect: expected either tokens, or tokens_min, tokens_max or both"},
    {"{ request: a, code: lost }", "unknown code 'lost'"},
    {"{ request: a, code: rank_losst }", "unknown code 'rank_losst'; did you mean 'rank_lost'?"},
    {"{ metric: kv_fre_blocks, value: 1 }", "unknown metric 'kv_fre_blocks'; did you mean 'kv_free_blocks'?"},
    {"{ metric: ready }", "expect: expected either value, or min, max or both"},
    {"{ metric: ready, value: 1, max: 2 }", "expect: expected either value, or min, max or both"},
    {"{ metric: ready, min: 3, max: 2 }", "expect: min 3 is above max 2"},
    {"{ metric: ready, value: 2ms }", "value: found '2ms', expected a whole number"},
    {"{ metric: device_idle_seconds_total, max: 2 }", "max: found '2', expected a duration in whole microseconds such as 500us, 2ms or 1s"},
    {"{ count: step, value: 1 }", "unknown count 'step'; did you mean 'steps'?"},
    {"{ count: steps, value: 1, of: x }", "of: no request has the id 'x'; did you mean 'a'?"},
    {"{ count: steps, value: 1, from: 5 }", "from: found '5', expected a duration in whole microseconds such as 500us, 2ms or 1s"},
    {"{ never: canary_mismtach }", "unknown property 'canary_mismtach'; did you mean 'canary_mismatch'?"},
    {"{ never: {} }", "never: found 0 properties, expected one"},
    {"{ never: { preempted: a, name: stuck } }", "never: found 2 properties, expected one"},
    {"{ never: { block_shared_by: a } }", "block_shared_by: expected two or more requests"},
    {"{ never: { token_after: { request: a, event: b.finish } } }", "token_after: event 'b.finish': no request has the id 'b'; did you mean 'a'?"},
    {"{ never: { token_after: { request: c, event: a.finish } } }", "token_after: no request has the id 'c'; did you mean 'a'?"},
    {"{ step: 1, rows: { b: 1 } }", "rows: no request has the id 'b'; did you mean 'a'?"},
    {"{ order: a.finish }", "order: expected two or more events"},
    {"{ order: [a.finish, b.finish] }", "order: event 'b.finish': no request has the id 'b'; did you mean 'a'?"},
    {"{ decisions: decode, from: 0 }", "from: found 0, expected a step from 1"},
    {"{ equal: a }", "equal: expected two or more of a kind"},
    {"{ equal: [a, rank0] }", "equal: no request has the id 'rank0'"},
    {"{ equal: [rank0, rank1], what: placement }", "equal: found 'rank1', expected rank0 to rank0"},
    {"{ equal: [rank0, a], what: collectives }", "equal: found 'a', expected rank0 to rank0"},
    {"{ start: refused }", "start: expected the field that is refused"},
    {"{ request: a, rank: 1 }", "rank: found 1, expected 0 to 0"},
    {"{ request: a, for: { depth: 3 } }", "for: the matrix has no case with this depth"},
    {"{ request: a, for: { depth: 2, block_size: 4 } }", "for: the matrix has no case with this block_size"},
    {"{ request: a, at: 1ms, after: a.finish }", "expect: found at and after, expected one of them"},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.body);
    CHECK(error_of("# S.\nname: f\nmatrix: { depth: [1, 2] }\n" + two + "  - expect: " + row.body +
                   "\n") == "f.yaml:6: " + row.message);
  }
}

TEST_CASE("settings that contradict each other are refused by the name of one") {
  struct refusal {
    void (*change)(scenario_engine&, scenario_model&);
    std::string field, message;
  };
  using e = scenario_engine&;
  using m = scenario_model&;
  // clang-format off
  const refusal table[] = {
    {[](e it, m) { it.depth = 0; }, "engine.depth", "found 0, expected 1 to 3"},
    {[](e it, m) { it.depth = 4; }, "engine.depth", "found 4, expected 1 to 3"},
    {[](e it, m) { it.ranks = 0; }, "engine.ranks", "found 0, expected 1 to 1024"},
    {[](e it, m) { it.groups = 2; }, "engine.groups", "found 2, expected 1 to 1"},
    {[](e it, m) { it.ranks = 3; it.groups = 2; }, "engine.groups", "3 ranks can't be split evenly into 2"},
    {[](e it, m) { it.rank_kv_blocks = {4, 4}; }, "engine.rank_kv_blocks", "found 2 sizes, expected one for each of 1 ranks"},
    {[](e it, m) { it.rank_kv_blocks = {0}; }, "engine.rank_kv_blocks", "found 0, expected at least 1"},
    {[](e it, m) { it.block_size = 0; }, "engine.block_size", "found 0, expected at least 1"},
    {[](e it, m) { it.max_model_len = 1; }, "engine.max_model_len", "found 1, expected at least 2"},
    {[](e it, m) { it.watchdog_us = 0; }, "engine.watchdog", "found 0, expected at least 1"},
    {[](e it, m) { it.vote.quorum = 0; }, "engine.vote.quorum", "found 0, expected more than 0, at most 1"},
    {[](e it, m) { it.vote.quorum = 1.5; }, "engine.vote.quorum", "found 1.5, expected more than 0, at most 1"},
    {[](e it, m) { it.vote.used_share_max = 0; }, "engine.vote.used_share_max", "found 0, expected more than 0, at most 1"},
    {[](e it, m) { it.eplb.min_gain = -1; }, "engine.eplb.min_gain", "found -1, expected at least 0"},
    {[](e it, m) { it.num_drafts = 7; it.max_num_batched_tokens = 7; }, "engine.max_num_batched_tokens", "found 7, but a decode row with num_drafts 7 is 8 wide"},
    {[](e it, m) { it.warm_up = true; }, "engine.warm_up", "there are no graph_buckets to run"},
    {[](e it, m) { it.graph_buckets = {4, 4, 8}; }, "engine.graph_buckets", "found 4, expected rising sizes from 1"},
    {[](e it, m) { it.graph_buckets = {1, 15}; it.num_drafts = 1; }, "engine.graph_buckets", "the last bucket is 15, but a decode step may be 16 wide"},
    {[](e it, m) { it.graph_buckets = {5}; it.max_num_batched_tokens = 6; }, "engine.graph_buckets", "the last bucket is 5, but a decode step may be 6 wide"},
    {[](e it, m) { it.verify = scenario_verify::confidence; it.num_drafts = 1; }, "engine.verify_curve", "verify: confidence needs the cost of some sizes"},
    {[](e it, m) { it.verify = scenario_verify::confidence; it.num_drafts = 1; it.verify_curve_us = {{1, 1}, {15, 2}}; }, "engine.verify_curve", "covers 1 to 15 tokens, but a decode step has 1 to 16"},
    {[](e it, m) { it.eplb.period = 9; }, "engine.eplb.period", "found 9, but the model has no experts"},
    {[](e it, m) { it.eplb.slots_per_rank = 9; }, "engine.eplb.slots_per_rank", "found 9, but the model has no experts"},
    {[](e it, m model) { it.ranks = 3; model.experts = {1, 8, 1, {{0}}}; }, "engine.eplb.slots_per_rank", "8 experts can't be split evenly over 3 ranks"},
    {[](e it, m model) { it.ranks = 2; it.eplb.slots_per_rank = 3; model.experts = {1, 8, 1, {{0}}}; }, "engine.eplb.slots_per_rank", "found 3 on 2 ranks, but there are 8 experts"},
  };
  // clang-format on
  for (const auto& row : table) {
    scenario_engine engine;
    scenario_model model;
    row.change(engine, model);
    const auto checked = check_engine(engine, model);
    CAPTURE(row.message);
    REQUIRE(!checked);
    CHECK(checked.error().param == row.field);
    CHECK(checked.error().message == row.field + ": " + row.message);
  }
  CHECK(check_engine({}));
  scenario_engine tight;
  tight.num_drafts = 1;
  tight.max_num_batched_tokens = 2;
  tight.graph_buckets = {2};
  CHECK(check_engine(tight));
}
