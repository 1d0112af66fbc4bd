// What the canary sees of leases, fences and time: who may read and write what, and when.
#include <doctest/doctest.h>

#include <fmt/core.h>

#include "hash_fixture.hpp"

using namespace deepinfer;

namespace {

driver_options timed(std::int32_t depth) {
  driver_options options{.depth = depth, .chunk = 64};
  options.timing.phase_ns = {0, 10, 0, 0, 10};
  return options;
}

virtual_device& clock_of(hash_driver& driver) {
  return dynamic_cast<virtual_device&>(driver.dev());
}

// One sequence of 7 positions and a decode row in flight, its forward just begun.
void begin_a_row(hash_driver& driver) {
  driver.add(prompt_of("a", 7), greedy(), 9);
  driver.launch(driver.plan());
  driver.settle();
  driver.launch(driver.plan());
}

void run_phases(device_work& work, std::initializer_list<step_phase> phases) {
  for (const auto phase : phases) CHECK(work.run(phase, {}).code == errc::ok);
}

std::vector<std::string> repeated(const char* name, std::size_t times) {
  return std::vector<std::string>(times, name);
}

}  // namespace

TEST_CASE("a row reads its prefix when its forward begins and again when it ends") {
  SUBCASE("what is freed before it is seen twice") {
    hash_driver driver(timed(1));
    begin_a_row(driver);
    driver.runner().poison({driver.sequences[0].blocks.data(), 1}, {});
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == repeated("read_freed_block", 8));
  }
  SUBCASE("what is freed meanwhile is seen once") {
    hash_driver driver(timed(1));
    begin_a_row(driver);
    clock_of(driver).advance_to(clock_of(driver).now_ns() + 5);
    CHECK(driver.runner().canary().count() == 0);
    driver.runner().poison({driver.sequences[0].blocks.data(), 1}, {});
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == repeated("read_freed_block", 4));
    CHECK(driver.runner().canary().errors()[0].text ==
          "step 2, sequence 100, slot 3, position 0: written by step 1 and freed since");
  }
  SUBCASE("so is a slot that is taken away") {
    hash_driver driver(timed(1));
    begin_a_row(driver);
    clock_of(driver).advance_to(clock_of(driver).now_ns() + 5);
    driver.runner().poison({}, {&driver.sequences[0].slot, 1});
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == repeated("row_map_broken", 1));
  }
  SUBCASE("what is freed afterwards is not") {
    hash_driver driver(timed(1));
    begin_a_row(driver);
    clock_of(driver).advance_to(clock_of(driver).now_ns() + 15);
    driver.runner().poison({driver.sequences[0].blocks.data(), 1}, {});
    driver.settle();
    check_canary(driver);
  }
}

TEST_CASE("a row writes only into blocks that plans gave its sequence") {
  hash_driver driver({.depth = 1, .chunk = 64});
  driver.add(prompt_of("a", 9), greedy(), 9);
  driver.launch(driver.plan());
  driver.settle();
  const auto& a = driver.sequences[0];
  SUBCASE("not into one that is free") {
    driver.runner().poison({&a.blocks[2], 1}, {});
    driver.launch(driver.plan());
    driver.settle();
    CHECK(has_error(driver, "write_unleased_block"));
  }
  SUBCASE("not into one that has become another's") {
    driver.add(prompt_of("b", 2), greedy(), 9);
    auto plan = driver.plan();
    plan->blocks.back() = a.blocks[2];
    driver.launch(plan);
    driver.settle();
    const auto errors = driver.runner().canary().errors();
    REQUIRE(errors.size() >= 2);
    CHECK(errors[0].name == "reused_before_fence");  // by the plan that uses it itself
    CHECK(errors[1].name == "write_unleased_block");
    CHECK(errors[1].text == "step 2, sequence 100, slot 3, position 9: block " +
                              std::to_string(a.blocks[2].value) +
                              " belongs to sequence 101 epoch 0");
  }
  SUBCASE("not into one that is said to be shared") {
    driver.runner().note_shared(a.blocks[1], true);  // full: nobody writes there
    driver.launch(driver.plan());
    driver.settle();
    check_canary(driver);
    driver.runner().note_shared(a.blocks[2], true);
    driver.launch(driver.plan());
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == repeated("write_shared_block", 1));
    driver.runner().note_shared(a.blocks[2], false);
    driver.launch(driver.plan());
    driver.settle();
    CHECK(driver.runner().canary().count() == 1);
  }
  SUBCASE("a block that was shared and is given to somebody is his alone") {
    const auto block = driver.take_block();
    driver.runner().note_shared(block, true);
    driver.add(prompt_of("b", 2), greedy(), 9);
    auto plan = driver.plan();
    plan->blocks.back() = block;
    driver.launch(plan);
    driver.settle();
    check_canary(driver);
  }
  SUBCASE("not into one that another sequence was given as its prefix") {
    auto& b = driver.add(prompt_of("a", 13), greedy(), 9);
    b.hits = a.blocks;
    driver.launch(driver.plan());
    driver.settle();
    CHECK(has_error(driver, "write_shared_block"));
  }
  SUBCASE("not past the longest sequence") {
    driver_options options{.depth = 1};
    options.sizes.max_model_len = 10;
    hash_driver other(options);
    other.add(prompt_of("a", 9), greedy(), 2);
    other.run();
    check_all(other);
    other.add(prompt_of("b", 9), greedy(), 3);
    other.run();
    CHECK(names_of(other.runner().canary()) == repeated("write_beyond_limit", 1));
  }
}

TEST_CASE("blocks and slots that go to others before their step has settled are named") {
  hash_driver driver(timed(3));
  driver.add(prompt_of("a", 9), greedy(), 9);
  driver.launch(driver.plan());
  driver.launch(driver.plan());
  auto& b = driver.add(prompt_of("b", 3), greedy(), 9);
  const auto slot_of_a = driver.sequences[0].slot;
  const auto block_of_a = driver.sequences[0].blocks[1];
  const auto text_of = [&](const char* what) {
    return fmt::format("step 3: {} goes to sequence 101 epoch 0, but step 2 still uses it for "
                       "sequence 100 epoch 0",
                       what);
  };
  const auto only_b = [&] {
    driver.sequences[0].is_over = true;
    return driver.plan();
  };
  SUBCASE("a block, seen when the step goes on running") {
    auto plan = only_b();
    plan->blocks[0] = block_of_a;
    driver.launch(std::move(plan));
    CHECK(driver.runner().canary().count() == 0);
    driver.settle();
    const auto errors = driver.runner().canary().errors();
    REQUIRE(errors.size() >= 1);
    CHECK(errors[0].name == "reused_before_fence");
    CHECK(errors[0].text == text_of(fmt::format("block {}", block_of_a.value).c_str()));
  }
  SUBCASE("a block that a running step reads, seen when that ends") {
    clock_of(driver).advance_to(15);  // the forward of step 2 has begun at 10
    auto plan = only_b();
    plan->blocks[0] = block_of_a;
    driver.launch(std::move(plan));
    CHECK(driver.runner().canary().count() == 0);
    driver.settle();
    CHECK(driver.runner().canary().errors().at(0).name == "reused_before_fence");
  }
  SUBCASE("a slot, seen at once when the step has ended and nobody has taken its results") {
    clock_of(driver).run_until_idle();
    b.slot = slot_of_a;
    driver.launch(only_b());
    const auto errors = driver.runner().canary().errors();
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].name == "reused_before_fence");
    CHECK(errors[0].text == text_of("slot 3"));
  }
  SUBCASE("not when it has settled") {
    driver.settle();
    driver.settle();
    b.slot = slot_of_a;
    auto plan = only_b();
    plan->blocks[0] = block_of_a;
    driver.launch(std::move(plan));
    driver.settle();
    check_canary(driver);
  }
  SUBCASE("not for its own sequence") {
    auto plan = driver.plan();
    CHECK(plan->rows() == 2);
    driver.launch(std::move(plan));
    driver.run();
    check_all(driver);
  }
}

TEST_CASE("the returned tail of a table waits for the rows launched before, not for later ones "
          "[I13][I17]") {
  hash_driver driver(timed(3));
  driver.add(prompt_of("a", 9), greedy(), 9);
  auto first = driver.plan();
  const auto tail = driver.take_block();
  first->blocks.push_back(tail);
  ++first->block_begin.back();
  driver.launch(std::move(first));
  const auto go_on = [&] {
    driver.sequences[0].blocks.pop_back();
    driver.launch(driver.plan());  // its table is a block shorter
    driver.sequences[0].is_over = true;
    driver.add(prompt_of("b", 3), greedy(), 1);
    auto plan = driver.plan();
    plan->blocks[0] = tail;
    driver.launch(std::move(plan));
  };
  SUBCASE("before they have ended it is too early") {
    go_on();
    driver.settle();
    const auto errors = driver.runner().canary().errors();
    REQUIRE(errors.size() >= 1);
    CHECK(errors[0].name == "reused_before_fence");
    CHECK(errors[0].text == fmt::format("step 3: block {} goes to sequence 101 epoch 0, but step 1 "
                                        "still uses it for sequence 100 epoch 0",
                                        tail.value));
  }
  SUBCASE("behind them it may go to others") {
    driver.settle();
    go_on();
    driver.settle();
    driver.settle();
    check_canary(driver);
  }
}

TEST_CASE("a step that failed is not waited for: its blocks may be used again") {
  auto options = timed(2);
  options.timing.faults = {{2, step_phase::copy_in, fault_kind::fail, 1}};
  hash_driver driver(options);
  driver.add(prompt_of("a", 9), greedy(), 9);
  driver.launch(driver.plan());
  driver.settle();
  driver.launch(driver.plan());
  driver.sequences[0].has_failed = true;
  const auto block = driver.sequences[0].blocks[0];
  driver.add(prompt_of("b", 3), greedy(), 2);
  auto plan = driver.plan();
  plan->blocks[0] = block;
  driver.launch(std::move(plan));
  driver.run();
  CHECK(driver.sequences[1].outputs == driver.expected(driver.sequences[1]));
  check_canary(driver);
}

TEST_CASE("a step whose results nobody will take is not waited for either") {
  hash_driver driver({.depth = 2, .chunk = 64});
  driver.add(prompt_of("a", 3), greedy(), 9);
  auto lost = driver.plan();
  {
    const auto work = driver.runner().stage(lost);
    using enum step_phase;
    run_phases(*work, {copy_in, forward, sample, copy_out});
  }
  auto next = std::make_shared<step_plan>(*lost);
  next->step = step_id{2};
  next->sequences[0] = next->starts[0].sequence = seq_id{101};
  driver.runner().stage(next);
  check_canary(driver);
}

TEST_CASE("phases of another life of a ring slot, or of steps out of order, are named [I24]") {
  hash_driver driver({.depth = 3, .chunk = 64});
  driver.add(prompt_of("a", 5), greedy(), 9);
  using enum step_phase;
  const auto first = driver.plan();
  const auto work = driver.runner().stage(first);
  const auto count = [&] { return driver.runner().canary().count(); };
  SUBCASE("before what they need") {
    run_phases(*work, {forward});
    CHECK(count() == 1);
    run_phases(*work, {copy_in, sample});
    CHECK(count() == 2);
    run_phases(*work, {forward, copy_out});
    CHECK(count() == 3);
    run_phases(*work, {sample, sample_gated});
    CHECK(count() == 4);
    run_phases(*work, {copy_out});
    CHECK(count() == 4);
    CHECK(names_of(driver.runner().canary()) == repeated("event_generation_mixed", 4));
    step_result result;
    driver.runner().collect(*work, result);
    CHECK(result.row_tokens(0)[0] == 905);
  }
  SUBCASE("twice") {
    run_phases(*work, {copy_in, forward, forward});
    CHECK(names_of(driver.runner().canary()) == repeated("event_generation_mixed", 1));
  }
  SUBCASE("of a later step before those of an earlier one") {
    auto empty = std::make_shared<step_plan>();
    empty->clear();
    empty->step = step_id{2};
    const auto second = driver.runner().stage(empty);
    run_phases(*work, {copy_in});
    run_phases(*second, {copy_in, forward, sample, copy_out});
    CHECK(count() == 0);
    run_phases(*work, {forward});
    CHECK(driver.runner().canary().errors()[0].name == "event_generation_mixed");
  }
}

TEST_CASE("token, drafts and length that come by different maps are named [I29]") {
  for (const std::int32_t drafts : {0, 2}) {
    CAPTURE(drafts);
    driver_options options{.depth = 2, .chunk = 64, .fresh_percent = 0};
    options.sizes.num_drafts = drafts;
    hash_driver driver(options);
    driver.add(prompt_of("a", 5), greedy(), 19);
    driver.launch(driver.plan());
    driver.settle();
    driver.launch(driver.plan());
    driver.runner().overwrite(driver.newest_work(), step_phase::sample);
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == repeated("carry_split", 1));
    driver.launch(driver.plan());
    driver.runner().overwrite(driver.newest_work(), step_phase::forward);
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == repeated("carry_split", 2));
    driver.run();
    CHECK(driver.runner().canary().count() == 2);
  }
}

TEST_CASE("padding goes to a place of its own, and warm-up steps are steps without rows") {
  driver_options options{.depth = 2};
  options.model.experts = {1, 2, 1, {{0}, {1}}};
  hash_driver driver(options);
  driver.add(prompt_of("a", 5), greedy(), 4);
  auto warm = driver.plan();
  warm->clear();
  warm->step = step_id{1};
  warm->bucket = 4;
  driver.launch(std::move(warm));
  for (;;) {
    auto next = driver.plan();
    if (next->rows() == 0) break;
    next->bucket = next->step.value == 2 ? next->total_width : 8;  // the first chunk fits exactly
    driver.launch(std::move(next));
    driver.settle();
  }
  while (driver.in_flight() > 0) driver.settle();
  check_all(driver);
  CHECK(driver.runner().routed_rows() == 5 + 3);
  CHECK(driver.runner().padded_tokens() == 4 + 6 + 3 * 7);
}
