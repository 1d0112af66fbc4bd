#include <doctest/doctest.h>

#include <filesystem>

#include <fmt/format.h>

#include "config/scenario_cases.hpp"
#include "config/scenario_engine_check.hpp"
#include "config/scenario_load.hpp"
#include "config/scenario_names.hpp"
#include "config/units.hpp"
#include "runtime/base/file.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;

namespace {

scenario parsed(const std::string& body, const std::string& name = "it-holds") {
  auto out = parse_scenario("# It holds.\nname: " + name + "\n" + body, name + ".yaml");
  REQUIRE_MESSAGE(out, out.error().message);
  return *std::move(out);
}

}  // namespace

TEST_CASE("every scenario of the tree loads, and only those that say so are refused at start") {
  const auto files = scenario_files(DI_SOURCE_DIR "/tests/scenarios");
  REQUIRE_MESSAGE(files, files.error().message);
  CHECK(files->size() >= 145);
  std::size_t cases = 0;
  for (const auto& path : *files) {
    CAPTURE(path);
    const auto loaded = load_scenario(path);
    REQUIRE_MESSAGE(loaded, loaded.error().message);
    CHECK(loaded->name == std::filesystem::path(path).stem().string());
    CHECK(loaded->story.ends_with('.'));
    CHECK(!loaded->covers.empty());
    CHECK(!loaded->expectations.empty());
    std::string refused_field;
    for (const auto& it : loaded->expectations)
      if (const auto* form = std::get_if<refused_form>(&it.form)) refused_field = form->field;
    for (const auto& it : cases_of(*loaded)) {
      ++cases;
      const auto checked = check_engine(it.engine, it.model);
      CHECK((checked ? "" : checked.error().param) == refused_field);
      for (const auto& shadow : shadows_of(*loaded, it))
        CHECK(check_engine(shadow.engine, shadow.model));
    }
  }
  CHECK(cases > 400);
}

TEST_CASE("what a scenario leaves out has the defaults of the language") {
  const auto it = parsed("");
  CHECK(it.engine == scenario_engine{});
  CHECK(it.model == scenario_model{});
  CHECK(it.device == scenario_device{});
  CHECK(it.engine.depth == 2);
  CHECK(it.engine.num_kv_blocks == 1024);
  CHECK(it.engine.block_size == 4);
  CHECK(it.engine.max_num_seqs == 8);
  CHECK(it.engine.slots() == 16);
  CHECK(it.engine.max_num_batched_tokens == 4096);
  CHECK(it.engine.watchdog_us == 1'000'000);
  CHECK(it.engine.client_credit == 64);
  CHECK(it.engine.vote.max_delay == 16);
  CHECK(it.engine.vote.any_period == 100);
  CHECK(it.engine.eplb.window == 1000);
  CHECK(it.model.vocab == 1000);
  CHECK(it.device.step_time_us == 2000);
  CHECK(it.seed == 1);
  CHECK(it.seeds == 1);
  CHECK(it.interleavings == 1);
  CHECK(it.limit_us == 60'000'000);
  CHECK(it.story == "It holds.");
  const auto submitted = parsed("script:\n  - submit: { id: a, prompt_tokens: 5 }\n");
  REQUIRE(submitted.requests.size() == 1);
  const auto& request = submitted.requests[0];
  CHECK(request.prompt == "a");
  CHECK(request.prompt_tokens == 5);
  CHECK(request.max_tokens == 16);
  CHECK(request.rank == -1);
  CHECK(!request.sample_seed);
  CHECK(!request.grammar);
  CHECK(!request.remote_kv_us);
  CHECK(submitted.actions[0].when.at_us == 0);
}

TEST_CASE("every setting of engine, model and device arrives where it belongs") {
  const auto it = parsed(
    "seed: 7\nlimit: 2s\n"
    "engine: { depth: 3, ranks: 4, groups: 2, num_kv_blocks: 9, block_size: 16, rank_kv_blocks: "
    "5,\n"
    "  state_slots: 6, max_num_seqs: 7, max_num_batched_tokens: 8, chunk_size: 10,\n"
    "  max_model_len: 11, prefix_cache: true, mixed_steps: true, num_drafts: 12,\n"
    "  draft_overhang: 13, stop_mask: true, draft_trim: max_tokens, verify: confidence,\n"
    "  verify_curve: { 1: 10ms, 2: 10100us }, graph_buckets: [1, 2], warm_up: true, watchdog: "
    "3ms,\n"
    "  client_credit: 14, policy: { victim: lowest_cost, preempt_output: drop,\n"
    "  on_step_failure: retry, priority_preempts: true, stop_in_reasoning: false },\n"
    "  vote: { rule: points, quorum: 0.5, max_delay: 15, min_decode_gap: 16, used_share_max: 0.9,\n"
    "  all_period: 17, any_period: 18, timeout: 19us }, eplb: { window: 20, period: 21,\n"
    "  slots_per_rank: 22, max_moves: 23, planner: incremental, min_gain: 0.25,\n"
    "  stage_timeout: 24us } }\n"
    "model: { vocab: 100, seed: 25, accept: [1, 0], confidence: 0.5, window: 26, ratio: 27,\n"
    "  experts: { layers: 1, experts: 4, top_k: 2, picks: [[0, 1], [2, 3]] } }\n"
    "device: { step_time: 1ms, copy_in: 2us, sample: 3us, copy_out: 4us, plan_time: 5us,\n"
    "  settle_time: 6us, exchange_time: 7us, jitter: 8us, start_delay: { 3: 9us },\n"
    "  delay: { step: 2, rank: 1, by: 5us }, fault: [{ phase: copy_out, kind: lose, times: 2 }] "
    "}\n");
  scenario_engine engine;
  engine.depth = 3;
  engine.ranks = 4;
  engine.groups = 2;
  engine.num_kv_blocks = 9;
  engine.block_size = 16;
  engine.rank_kv_blocks = {5};
  engine.state_slots = 6;
  engine.max_num_seqs = 7;
  engine.max_num_batched_tokens = 8;
  engine.chunk_size = 10;
  engine.max_model_len = 11;
  engine.prefix_cache = engine.mixed_steps = engine.stop_mask = engine.warm_up = true;
  engine.num_drafts = 12;
  engine.draft_overhang = 13;
  engine.draft_trim = scenario_draft_trim::max_tokens;
  engine.verify = scenario_verify::confidence;
  engine.verify_curve_us = {{1, 10'000}, {2, 10'100}};
  engine.graph_buckets = {1, 2};
  engine.watchdog_us = 3000;
  engine.client_credit = 14;
  engine.policy = {scenario_victim::lowest_cost, scenario_preempt_output::drop,
                   scenario_step_failure::retry, true, false};
  engine.vote = {scenario_vote_rule::points, 0.5, 15, 16, 0.9, 17, 18, 19};
  engine.eplb = {20, 21, 22, 23, scenario_planner::incremental, 0.25, 24};
  CHECK(it.engine == engine);
  const scenario_model model{100, 25, {1, 0}, {0.5}, scenario_experts{1, 4, 2, {{0, 1}, {2, 3}}},
                             26,  27};
  CHECK(it.model == model);
  scenario_device device{1000, 2, 3, 4, 5, 6, 7, 8, {{3, 9}}, {}, {}};
  device.delays = {{2, 1, scenario_phase::forward, 5}};
  device.faults = {{scenario_phase::copy_out, {}, {}, scenario_fault_kind::lose, 2}};
  CHECK(it.device == device);
  CHECK(it.seed == 7);
  CHECK(it.limit_us == 2'000'000);
  CHECK(it.engine.blocks_of(0) == 5);
  CHECK(it.engine.blocks_of(1) == 9);
}

TEST_CASE("a submit with a count is that many requests, and verbs act when they say") {
  const auto it = parsed(
    "script:\n"
    "  - submit: { id: a, count: 2, every: 3ms, prompt_tokens: 4, stop: x, tokens: { 2: 5 } }\n"
    "  - submit: { id: b, at: 5ms, prompt_ids: [], continues: '' }\n"
    "  - submit: { id: c, continues: a.2, after: step.2.settled }\n"
    "  - abort: { request: [a.*, nobody] }\n"
    "  - pause:\n"
    "  - resume: { at: 9ms }\n"
    "  - drain: { deadline: 1ms }\n"
    "  - flush: { running: true }\n"
    "  - kill: { worker: 0 }\n"
    "  - consume: { request: b, chunks: 1, every: 2ms }\n"
    "  - deliver: { message: step_done, step: 5, copies: 2 }\n"
    "  - set: { depth: 3, policy: { victim: longest_output } }\n"
    "  - rebalance: { rotate: 1 }\n"
    "  - preempt: { request: c }\n");
  REQUIRE(it.requests.size() == 4);
  CHECK(it.requests[1].id == "a.2");
  CHECK(it.requests[1].prompt == "a.2");
  CHECK(it.requests[1].stop == std::vector<std::string>{"x"});
  CHECK(it.requests[1].tokens.at(2) == 5);
  CHECK(it.requests[1].place == "it-holds.yaml:4");
  CHECK((it.requests[2].prompt_ids && it.requests[2].prompt_ids->empty()));
  CHECK(it.requests[3].continues == 1);
  REQUIRE(it.actions.size() == 14);
  CHECK(std::get<submit_verb>(it.actions[0].verb).every_us == 3000);
  CHECK(std::get<submit_verb>(it.actions[1].verb).first == 2);
  const auto& after = it.actions[2].when.after;
  CHECK((after && *after == scenario_event{scenario_event_kind::step_settled, -1, 0, 2}));
  CHECK(!it.actions[2].when.at_us);
  const auto& aborted = std::get<abort_verb>(it.actions[3].verb);
  CHECK(aborted.requests == std::vector<std::int32_t>{0, 1});
  CHECK(aborted.unknown == std::vector<std::string>{"nobody"});
  CHECK(it.actions[3].when.at_us == 5000);  // the last one before it in the file
  CHECK(it.actions[6].when.at_us == 9000);
  CHECK(std::get<drain_verb>(it.actions[6].verb).deadline_us == 1000);
  CHECK(std::get<flush_verb>(it.actions[7].verb).running);
  CHECK(std::get<kill_verb>(it.actions[8].verb).worker == 0);
  CHECK(std::get<consume_verb>(it.actions[9].verb).every_us == 2000);
  const auto& deliver = std::get<deliver_verb>(it.actions[10].verb);
  CHECK((deliver.message == scenario_message::step_done && deliver.copies == 2));
  const auto& set = std::get<set_verb>(it.actions[11].verb);
  CHECK((set.depth == 3 && set.policy->victim == scenario_victim::longest_output && !set.vote));
  CHECK(std::get<rebalance_verb>(it.actions[12].verb).rotate == 1);
  CHECK(std::get<preempt_verb>(it.actions[13].verb).requests == std::vector<std::int32_t>{3});
}

TEST_CASE("expectations of every form arrive with their modifiers") {
  const auto it = parsed(
    "engine: { ranks: 2 }\nmatrix: { depth: [1, 2] }\nscript:\n"
    "  - submit: { id: a, count: 2, prompt_tokens: 4 }\n"
    "  - expect: { request: '*', finish: [stop, abort], tokens_min: 1, cached_max: 2, code: "
    "internal }\n"
    "  - expect: { at: 3ms, metric: device_idle_seconds_total, max: 2ms, rank: 1 }\n"
    "  - expect: { count: steps, of: a.1, kind: empty, from: 1ms, value: 3, for: { depth: 2 } }\n"
    "  - expect: { never: canary_mismatch }\n"
    "  - expect: { never: { launched_after: { request: a.1, event: a.2.token.3 } } }\n"
    "  - expect: { never: { block_shared_by: [a.1, a.2] } }\n"
    "  - expect: { step: 4, kind: mixed, rows: { a.1: 8, a.2: 1 }, bucket: 16 }\n"
    "  - expect: { order: [a.1.launched, a.1.chunk.2.launched, rank1.dead] }\n"
    "  - expect: { decisions: [prefill, decode], from: 101 }\n"
    "  - expect: { equal: [rank0, rank1], what: collectives }\n"
    "  - expect: { start: refused, field: engine.depth }\n");
  REQUIRE(it.expectations.size() == 11);
  const auto& all = it.expectations;
  const auto& request = std::get<request_form>(all[0].form);
  CHECK(request.requests == std::vector<std::int32_t>{0, 1});
  CHECK(request.finish ==
        std::vector<scenario_finish>{scenario_finish::stop, scenario_finish::abort});
  CHECK((request.tokens.min == 1 && !request.tokens.max && request.cached.max == 2));
  CHECK(all[0].place == "it-holds.yaml:7");
  const auto& metric = std::get<metric_form>(all[1].form);
  CHECK((metric.bounds.is_time && metric.bounds.max == 2000 && all[1].rank == 1));
  CHECK(all[1].when.at_us == 3000);
  const auto& count = std::get<count_form>(all[2].form);
  CHECK((count.kind == step_kind::empty && count.from_us == 1000 && count.bounds.min == 3));
  CHECK(count.bounds.max == 3);
  CHECK(all[2].only_for.depth == 2);
  CHECK(std::get<never_form>(all[3].form).name == "canary_mismatch");
  const auto& never = std::get<never_form>(all[4].form);
  CHECK((never.name == "launched_after" && never.requests == std::vector<std::int32_t>{0}));
  CHECK(*never.event == scenario_event{scenario_event_kind::token, 1, 0, 3});
  CHECK(std::get<never_form>(all[5].form).requests.size() == 2);
  const auto& step = std::get<step_form>(all[6].form);
  CHECK((step.kind == step_kind::mixed && step.rows.at(0) == 8 && step.bucket == 16));
  const auto& order = std::get<order_form>(all[7].form);
  CHECK(order.events[1] == scenario_event{scenario_event_kind::chunk_launched, 0, 0, 2});
  CHECK(order.events[2] == scenario_event{scenario_event_kind::rank_dead, -1, 1, 0});
  const auto& decisions = std::get<decisions_form>(all[8].form);
  CHECK(decisions.kinds == std::vector<step_kind>{step_kind::prefill, step_kind::decode});
  CHECK(decisions.from == 101);
  CHECK(std::get<equal_form>(all[9].form).of == std::vector<std::int32_t>{0, 1});
  CHECK(std::get<refused_form>(all[10].form).field == "engine.depth");
}

TEST_CASE("times of the virtual clock are whole microseconds, read and written alike") {
  struct time_case {
    std::string text;
    std::int64_t value;
    std::string written;
  };
  const time_case table[] = {
    {"500us", 500, "500us"}, {"2ms", 2000, "2ms"}, {"10.3ms", 10'300, "10300us"},
    {"1s", 1'000'000, "1s"}, {"0us", 0, "0us"},    {"0", 0, "0us"}};
  for (const auto& row : table) {
    CAPTURE(row.text);
    REQUIRE(parse_microseconds(row.text));
    CHECK(*parse_microseconds(row.text) == row.value);
    CHECK(microseconds_text(row.value) == row.written);
  }
  for (const auto* text : {"", "5", "1m", "1h", "0.5us", "1.00001ms", "-1ms", "ms", "1 000us"}) {
    CAPTURE(text);
    CHECK(!parse_microseconds(text));
  }
}

TEST_CASE("an event is read and written alike") {
  const auto it = parsed("script:\n  - submit: { id: a, count: 2, prompt_tokens: 4 }\n"
                         "  - submit: { id: b_2, prompt_tokens: 4 }\n");
  for (const auto* text : {"a.1.launched", "b_2.launched", "a.2.chunk.3.launched", "b_2.token.12",
                           "a.1.preempted", "b_2.resumed", "a.2.finish", "step.4.launched",
                           "step.4.settled", "rank1.step.2.failed", "paused", "drained", "flushed",
                           "eplb.planned", "eplb.applied", "eplb.cancelled", "rank0.dead"}) {
    CAPTURE(text);
    const auto event = parse_event(text, it, 2);
    REQUIRE_MESSAGE(event, event.error().message);
    CHECK(text_of(*event, it) == text);
  }
  for (const auto* text :
       {"", "a.finish", "a.1", "a.1.token", "a.1.token.0", "a.1.token.x", "a.1.chunk.2", "step.4",
        "step.0.launched", "step.4.done", "rank2.dead", "rank.dead", "rank1.alive", "eplb",
        "b_2.token.+3", "nobody.finish", "b_2.finish.2"}) {
    CAPTURE(text);
    CHECK(!parse_event(text, it, 2));
  }
}

TEST_CASE("a mutated scenario is read or refused, never worse") {
  const auto seed_text =
    read_file(DI_SOURCE_DIR "/tests/scenarios/any-order-of-events-gives-the-same-tokens.yaml");
  REQUIRE(seed_text);
  mutator mutate(7);
  for (int i = 0; i < with_effort(1000); ++i) {
    CAPTURE(i);
    const auto mutant = mutate.text(*seed_text);
    const auto out = parse_scenario(mutant, "any-order-of-events-gives-the-same-tokens.yaml");
    if (!out) CHECK(out.error().message.starts_with("any-order"));
  }
}
