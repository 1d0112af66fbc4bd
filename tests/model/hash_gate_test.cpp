#include <doctest/doctest.h>

#include "hash_fixture.hpp"

using namespace deepinfer;

namespace {

hash_script with_grammar(std::string_view text, std::int32_t tokens, hash_grammar grammar) {
  auto script = prompt_of(text, tokens);
  script.grammar = grammar;
  return script;
}

driver_options with_gates(std::int32_t depth, std::int32_t drafts, std::uint32_t delayed) {
  driver_options options;
  options.depth = depth;
  options.sizes.num_drafts = drafts;
  options.sizes.prefix_cache = true;
  options.model.accept = {3, 1, 0};
  options.model.window = 5;
  options.model.ratio = 2;
  options.delayed_gates = delayed;
  return options;
}

// Outputs as far as the rules go.
void check_outputs(hash_driver& driver) {
  for (const auto& one : driver.sequences) {
    CAPTURE(one.id.value);
    hash_sequence truth(driver.model(), one.script, hash_sampling::of(*one.params));
    const auto expected = truth.outputs(one.most_outputs);
    REQUIRE(one.outputs.size() >= expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), one.outputs.begin()));
  }
  check_canary(driver);
}

}  // namespace

TEST_CASE("gated rows take what their masks allow, the rows beside them do not wait [I38]") {
  for (const std::int32_t depth : {1, 2, 3})
    for (const std::int32_t drafts : {0, 3})
      for (const std::uint32_t delayed : {0u, 60u}) {
        CAPTURE(depth);
        CAPTURE(drafts);
        CAPTURE(delayed);
        hash_driver driver(with_gates(depth, drafts, delayed));
        driver.add(with_grammar("a", 5, {14, 0}), greedy(), 15);
        driver.add(prompt_of("b", 9), seeded(3), 20);
        auto thinking = seeded(8);
        thinking.reasoning = true;
        auto reasoned = with_grammar("c", 4, {6, 0});
        reasoned.tokens = {{3, hash_end_of_reasoning_id}};
        driver.add(reasoned, thinking, 30);
        driver.add(with_grammar("d", 7, {0, 0}), greedy(), 11);
        driver.run();
        check_outputs(driver);
        CHECK(driver.sequences[0].outputs.back() == hash_stop_id);
        CHECK(driver.sequences[2].outputs.size() == 10);
      }
}

TEST_CASE("a mask that allows nothing leaves the hash token") {
  hash_driver driver(with_gates(2, 2, 0));
  driver.add(with_grammar("g", 5, {0, 4}), greedy(), 20);
  driver.run();
  const auto& one = driver.sequences[0];
  CHECK(one.outputs.size() >= 4);
  hash_sequence truth(driver.model(), one.script, {});
  CHECK(truth.outputs(20).size() == 3);
  CHECK(truth.dead_end() == 4);
  CHECK(one.outputs[3] == truth.output(4));
  check_canary(driver);
}

TEST_CASE("a mask of another row or state changes tokens") {
  hash_driver driver(with_gates(1, 0, 100));
  driver.add(with_grammar("a", 5, {0, 0}), greedy(), 9);
  driver.launch(driver.plan());
  driver.settle();
  driver.launch(driver.plan());
  driver.open_gate(0, [](sample_gate& gate) {
    const auto first = gate.masks[0];
    for (auto& word : gate.masks) word = word << 1 | first >> 31;
  });
  driver.settle();
  hash_sequence truth(driver.model(), driver.sequences[0].script, {});
  CHECK(driver.sequences[0].outputs[0] != truth.output(1));
}

TEST_CASE("masks that do not fit the gated rows are named, and those rows are stale") {
  void (*const spoils[])(sample_gate&) = {
    [](sample_gate& gate) { gate.step.value += 1; },
    [](sample_gate& gate) { gate.words -= 1; },
    [](sample_gate& gate) { gate.rows[0] += 1; },
    [](sample_gate& gate) { gate.rows.clear(), gate.mask_begin.resize(1); },
    [](sample_gate& gate) { gate.masks.pop_back(); },
    [](sample_gate& gate) {
      gate.mask_begin.back() -= 1;
      gate.masks.resize(gate.masks.size() - static_cast<std::size_t>(gate.words));
    },
  };
  for (const auto spoil : spoils) {
    hash_driver driver(with_gates(1, 2, 100));
    driver.add(with_grammar("a", 2, {0, 0}), greedy(), 9);
    driver.add(prompt_of("b", 2), greedy(), 9);
    driver.launch(driver.plan());
    driver.settle();
    driver.launch(driver.plan());
    driver.open_gate(0, spoil);
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == std::vector<std::string>{"row_map_broken"});
    driver.launch(driver.plan());
    driver.settle();
    CHECK(driver.sequences[1].outputs.size() > 3);
  }
}

TEST_CASE("a row that is planned before its gate has opened is named") {
  hash_driver driver(with_gates(2, 0, 100));
  driver.add(with_grammar("a", 2, {0, 0}), greedy(), 9);
  driver.launch(driver.plan());
  driver.sequences[0].rows = 0;  // as if it were open
  driver.sequences[0].outputs = {20};
  auto early = driver.plan();
  driver.runner().stage(early);
  CHECK(names_of(driver.runner().canary()) == std::vector<std::string>{"row_map_broken"});
}

TEST_CASE("a row may be planned as soon as its gate has opened, before its step has settled") {
  hash_driver driver(with_gates(2, 0, 0));
  driver.add(with_grammar("a", 2, {0, 0}), greedy(), 9);
  driver.launch(driver.plan());
  const auto outputs = driver.expected(driver.sequences[0]);
  auto next = driver.plan();
  CHECK(next->rows() == 0);
  driver.sequences[0].rows = 0;
  driver.sequences[0].outputs = {outputs[0]};
  next = driver.plan();
  next->sources[0] = 0;
  next->tokens.clear();
  next->token_begin = {0, 0};
  driver.runner().stage(next);
  check_canary(driver);
}

TEST_CASE("a gated step that fails at its gate leaves stale rows, and the others go on") {
  auto options = with_gates(2, 2, 0);
  options.timing.faults = {{2, step_phase::sample_gated, fault_kind::fail, 1}};
  hash_driver driver(options);
  driver.add(with_grammar("a", 3, {0, 0}), greedy(), 9);
  driver.add(prompt_of("b", 9), greedy(), 30);
  driver.run();
  CHECK(driver.sequences[0].has_failed);
  check_canary(driver);
}

TEST_CASE("a row behind a gate that opened and failed is stale, not wrong") {
  auto options = with_gates(3, 0, 0);
  options.timing.faults = {{1, step_phase::sample_gated, fault_kind::fail, 1}};
  hash_driver driver(options);
  driver.add(with_grammar("a", 2, {0, 0}), greedy(), 9);
  driver.launch(driver.plan());
  for (int step = 2; step <= 3; ++step) {  // launched before the failure is known
    driver.sequences[0].rows = 0;
    driver.sequences[0].outputs = {20};
    auto next = driver.plan();
    next->sources[0] = 0;
    next->gated[0] = 0;
    next->tokens.clear();
    next->token_begin = {0, 0};
    driver.launch(std::move(next));
  }
  while (driver.in_flight() > 0) driver.settle();
  check_canary(driver);
}

TEST_CASE("rows behind a stop or the last output compute nothing under a stop mask [I38]") {
  for (const bool has_mask : {false, true})
    for (const std::int32_t depth : {1, 2, 3})
      for (const std::int32_t drafts : {0, 3}) {
        CAPTURE(has_mask);
        CAPTURE(depth);
        CAPTURE(drafts);
        driver_options options;
        options.depth = depth;
        options.sizes.num_drafts = drafts;
        options.sizes.stop_mask = has_mask;
        options.split_percent = 50;
        options.model.accept = {3, 0};
        options.model.experts = {1, 4, 1, {{0}, {3}}};
        hash_driver driver(options);
        auto stopped = prompt_of("a", 5);
        stopped.stop_after = 6;
        driver.add(stopped, greedy(), 40);
        auto by_word = greedy();
        by_word.stop_token_ids = {700};
        auto scripted = prompt_of("b", 4);
        scripted.tokens = {{2, 700}, {5, 700}};
        by_word.min_tokens = 3;
        driver.add(scripted, by_word, 40);
        driver.add(prompt_of("c", 7), greedy(), 6);
        auto deaf = greedy();
        deaf.ignore_eos = true;
        driver.add(stopped, deaf, 9);
        driver.run_to_stops();
        const std::vector<std::size_t> ends = {6, 5, 6, 9};
        for (std::size_t i = 0; i < ends.size(); ++i) {
          const auto& one = driver.sequences[i];
          CAPTURE(i);
          const auto expected = driver.expected(one);
          REQUIRE(one.outputs.size() >= ends[i]);
          CHECK(std::equal(one.outputs.begin(), one.outputs.end(), expected.begin()));
          if (!has_mask) continue;
          CHECK(one.outputs.size() == ends[i]);
          const auto end = one.prompt_tokens() + static_cast<std::int32_t>(ends[i]) - 1;
          CHECK(driver.runner().written_end(one.id) <= end + drafts);
          if (drafts == 0) CHECK(driver.runner().written_end(one.id) == end);
        }
        if (has_mask && drafts == 0)
          CHECK(driver.runner().routed_rows() == 5 + 5 + 4 + 4 + 7 + 5 + 5 + 8);
        check_canary(driver);
      }
}

TEST_CASE("a row that the stop mask has killed takes nothing of a split either") {
  driver_options options{.depth = 3, .chunk = 64};
  options.sizes.stop_mask = true;
  options.sizes.num_drafts = 2;
  hash_driver driver(options);
  auto stopped = prompt_of("a", 5);
  stopped.stop_after = 2;
  driver.add(stopped, greedy(), 40);
  driver.add(prompt_of("b", 5), greedy(), 40);
  for (int step = 0; step < 3; ++step) {
    auto plan = driver.plan();
    if (step == 2) plan->total_width = 4;
    driver.launch(std::move(plan));
  }
  driver.settle();
  driver.settle();
  CHECK(driver.settle().widths == std::vector<std::int32_t>{0, 3});
  check_canary(driver);
}

TEST_CASE("a row that the stop mask has killed has width 0 and gives nothing") {
  driver_options options{.depth = 3, .chunk = 64};
  options.sizes.stop_mask = true;
  hash_driver driver(options);
  auto stopped = prompt_of("a", 5);
  stopped.stop_after = 2;
  driver.add(stopped, greedy(), 40);
  driver.add(prompt_of("b", 5), greedy(), 40);
  for (int step = 0; step < 3; ++step) driver.launch(driver.plan());
  driver.settle();
  CHECK(driver.settle().widths == std::vector<std::int32_t>{1, 1});
  const auto third = driver.settle();
  CHECK(third.widths == std::vector<std::int32_t>{0, 1});
  CHECK(third.token_begin == std::vector<std::int32_t>{0, 0, 1});
  check_canary(driver);
}
