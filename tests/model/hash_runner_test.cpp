#include <doctest/doctest.h>

#include "hash_fixture.hpp"

using namespace deepinfer;

TEST_CASE("tokens are the oracle's at every depth, chunk size and device [I26][I38]") {
  for (const bool on_cpu : {false, true})
    for (const std::int32_t depth : {1, 2, 3})
      for (const std::int32_t chunk : {1, 3, 64}) {
        CAPTURE(on_cpu);
        CAPTURE(depth);
        CAPTURE(chunk);
        hash_driver driver({.depth = depth, .chunk = chunk, .on_cpu = on_cpu});
        add_mixed(driver);
        driver.run();
        check_all(driver);
      }
}

TEST_CASE("rows that skip steps take their token from the slot [I28]") {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    hash_driver driver({.depth = 3, .seed = seed, .skip_percent = 45, .on_cpu = seed % 2 == 0});
    add_mixed(driver);
    driver.run();
    check_all(driver);
  }
}

TEST_CASE("tokens do not depend on when phases end") {
  for (std::uint64_t jitter_seed = 1; jitter_seed <= 10; ++jitter_seed) {
    driver_options options{.depth = 3, .skip_percent = 20};
    options.timing.phase_ns = {1'000, 2'000, 500, 500, 1'500};
    options.timing.jitter_ns = 5'000;
    options.timing.jitter_seed = jitter_seed;
    hash_driver driver(options);
    add_mixed(driver);
    driver.run();
    check_all(driver);
  }
}

TEST_CASE(
  "every token comes with its logprob where asked for, and without an entry's ids where not") {
  hash_driver driver({});
  auto asked = greedy();
  asked.logprobs = 0;
  driver.add(prompt_of("a", 5), asked, 4);
  driver.add(prompt_of("b", 2), greedy(), 4);
  driver.run();
  check_all(driver);
  auto& one = driver.sequences[0];
  REQUIRE(one.logprobs.size() == one.outputs.size());
  hash_sequence truth({}, one.script, {});
  for (std::size_t k = 0; k < one.outputs.size(); ++k) {
    REQUIRE(one.logprobs[k].ids == std::vector<token_id>{one.outputs[k]});
    CHECK(one.logprobs[k].logprobs[0] ==
          hash_logprob(truth.chain(4 + static_cast<std::int32_t>(k))));
  }
  for (const auto& entry : driver.sequences[1].logprobs) CHECK(entry.ids.empty());
}

TEST_CASE("a step that asks for no logprobs has none at all") {
  hash_driver driver({});
  driver.add(prompt_of("a", 5), greedy(), 2);
  driver.launch(driver.plan());
  CHECK(driver.settle().token_begin == std::vector<std::int32_t>{0, 0});  // a chunk, no token
  driver.launch(driver.plan());
  const auto result = driver.settle();
  CHECK(result.tokens == std::vector<token_id>{905});
  CHECK(result.logprobs.empty());
  CHECK(result.step == step_id{2});
  CHECK(result.sequences == std::vector<seq_id>{driver.sequences[0].id});
}

TEST_CASE("a failed step fails its rows, rows launched behind it are stale, the others go on") {
  for (const auto phase : {step_phase::copy_in, step_phase::forward, step_phase::sample}) {
    for (const std::uint64_t failing : {std::uint64_t{1}, std::uint64_t{4}}) {
      CAPTURE(name_of(phase));
      CAPTURE(failing);
      driver_options options{.depth = 3, .chunk = 64, .seed = 4, .skip_percent = 50};
      options.timing.faults = {{failing, phase, fault_kind::fail, 2}};
      hash_driver driver(options);
      add_mixed(driver);
      driver.run();
      int whole = 0;
      int failed = 0;
      for (const auto& one : driver.sequences) {
        const auto expected = driver.expected(one);
        CHECK(std::equal(one.outputs.begin(), one.outputs.end(), expected.begin()));
        whole += one.outputs.size() == expected.size();
        failed += one.has_failed;
      }
      CHECK(whole > 0);
      CHECK(failed > 0);
      CHECK(whole + failed == static_cast<int>(driver.sequences.size()));
      for (const auto& error : driver.runner().canary().errors())
        FAIL_CHECK(error.name, ": ", error.text);
    }
  }
}

TEST_CASE("rows of several steps behind a failed one are all stale, and none is wrong") {
  for (const auto phase : {step_phase::copy_in, step_phase::forward, step_phase::sample})
    for (const std::uint64_t failing : {1u, 2u, 3u}) {
      driver_options options{.depth = 4, .chunk = 64};
      options.sizes.num_drafts = 2;
      options.timing.faults = {{failing, phase, fault_kind::fail, 1}};
      hash_driver driver(options);
      driver.add(prompt_of("a", 5), greedy(), 40);
      for (int step = 0; step < 6; ++step) {
        driver.launch(driver.plan());
        driver.sequences[0].has_failed = false;
      }
      while (driver.in_flight() > 0) driver.settle();
      CHECK(driver.sequences[0].has_failed);
      check_canary(driver);
    }
}

TEST_CASE("freed blocks and slots may hold anything: whoever gets them next sees none of it") {
  hash_driver driver({.depth = 2, .chunk = 64});
  add_mixed(driver);
  std::vector<block_id> blocks;
  std::vector<slot_id> slots;
  for (std::int32_t i = 0; i < 256; ++i) blocks.push_back(block_id{i});
  for (std::int32_t i = 0; i < 32; ++i) slots.push_back(slot_id{i});
  driver.runner().poison(blocks, slots);
  driver.run();
  check_all(driver);
}

TEST_CASE("the ring reuses collected slots, and replaces one whose step was given up") {
  hash_driver driver({.depth = 1, .chunk = 64});
  driver.add(prompt_of("a", 5), greedy(), 50);
  const device_work* first = nullptr;
  for (int step = 0; step < 10; ++step) {
    driver.launch(driver.plan());
    if (step == 0) first = &driver.newest_work();
    CHECK(&driver.newest_work() == first);
    CHECK(driver.runner().unfinished() == 1);
    driver.settle();
    CHECK(driver.runner().unfinished() == 0);
  }
  // Staged but never launched nor collected, and nobody holds it: the next step takes its place.
  auto abandoned = driver.plan();
  driver.runner().stage(abandoned);
  CHECK(driver.runner().unfinished() == 1);
  auto next = std::make_shared<step_plan>(*abandoned);
  next->step = step_id{abandoned->step.value + 1};
  const auto work = driver.runner().stage(next);
  CHECK(driver.runner().unfinished() == 1);
}

TEST_CASE("reset forgets every sequence, and a new life begins with clean blocks") {
  hash_driver driver({.depth = 2, .chunk = 64});
  driver.add(prompt_of("a", 6), greedy(), 5);
  driver.run();
  check_all(driver);
  driver.runner().reset();
  auto again = std::make_shared<step_plan>();
  again->clear();
  again->step = step_id{50};
  const auto& one = driver.sequences[0];
  again->sequences = {one.id};
  again->epochs = {0};
  again->slots = {one.slot};
  again->kinds = {row_kind::decode};
  again->sources = {from_slot};
  again->widths = {1};
  again->positions = {one.planned()};
  again->total_width = 1;
  again->yields_max = again->yields_min = {1};
  again->token_begin = {0, 0};
  again->table_begin = {0};
  again->block_begin = {0, 0};
  const auto work = driver.runner().stage(again);
  CHECK(work->run(step_phase::copy_in, {}).code == errc::ok);
  CHECK(work->run(step_phase::forward, {}).code == errc::ok);
  CHECK(has_error(driver, "row_map_broken"));  // the slot knows nobody any more
}
