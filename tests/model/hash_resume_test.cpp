#include <doctest/doctest.h>

#include <numeric>

#include "hash_fixture.hpp"

using namespace deepinfer;

namespace {

driver_options with_state(std::int32_t drafts, std::int32_t window, std::int32_t ratio) {
  driver_options options;
  options.sizes.num_drafts = drafts;
  options.sizes.prefix_cache = true;
  options.model.accept = {1, 3, 0, 2};
  options.model.window = window;
  options.model.ratio = ratio;
  return options;
}

// Runs until the sequence has at least `outputs`, without settling what is in flight.
void run_to(hash_driver& driver, std::size_t outputs) {
  while (driver.sequences[0].outputs.size() < outputs) {
    while (driver.in_flight() < static_cast<std::size_t>(driver.runner().config().depth)) {
      auto next = driver.plan();
      if (next->rows() == 0) break;
      driver.launch(std::move(next));
    }
    driver.settle();
  }
}

// One hit of the blocks that `of` holds, by a sequence with the same beginning.
driven_sequence& add_hit(hash_driver& driver, const driven_sequence& of, std::int32_t hits,
                         std::int32_t prompt, std::int32_t outputs) {
  auto& one = driver.add(prompt_of("a", prompt), greedy(), outputs);
  one.hits.assign(of.blocks.begin(), of.blocks.begin() + hits);
  return one;
}

}  // namespace

TEST_CASE("window and compressed entries are those of the true length, whatever was drafted") {
  for (const std::int32_t drafts : {0, 1, 3})
    for (const std::int32_t depth : {1, 2, 3})
      for (const std::int32_t window : {0, 1, 5, 8}) {
        CAPTURE(drafts);
        CAPTURE(depth);
        CAPTURE(window);
        auto options = with_state(drafts, window, window == 1 ? 0 : 4);
        options.depth = depth;
        options.chunk = 1 + window * 4;
        options.truncate_percent = 30;
        options.split_percent = 30;
        options.skip_percent = 20;
        options.fresh_percent = 50;
        options.sizes.draft_overhang = drafts == 3 ? 2 : 0;
        hash_driver driver(options);
        add_mixed(driver);
        driver.run();
        check_all(driver);
      }
}

TEST_CASE("who begins behind a chunk that has failed computes nothing, and who behind that one: no "
          "alarm, but tokens that are wrong") {
  for (const auto phase : {step_phase::copy_in, step_phase::forward, step_phase::sample}) {
    CAPTURE(name_of(phase));
    auto options = with_state(0, 6, 2);
    options.depth = 3;
    options.chunk = 64;
    options.timing.faults = {{1, phase, fault_kind::fail, 1}};
    hash_driver driver(options);
    const auto& a = driver.add(prompt_of("a", 9), greedy(), 8);
    driver.launch(driver.plan());
    const auto& b = add_hit(driver, a, 2, 13, 8);
    driver.launch(driver.plan());
    const auto& c = add_hit(driver, b, 3, 14, 8);
    driver.launch(driver.plan());
    while (driver.in_flight() > 0) driver.settle();
    CHECK(a.has_failed);
    for (const auto* one : {&b, &c}) {
      REQUIRE(one->outputs.size() >= 1);
      CHECK(one->outputs[0] != driver.expected(*one)[0]);
    }
    check_canary(driver);
  }
}

TEST_CASE("a preempted sequence goes on with the same tokens, in a new slot and other blocks") {
  for (const std::int32_t depth : {1, 2, 3})
    for (const std::size_t after : {1u, 2u, 5u})
      for (const std::int32_t drafts : {0, 2}) {
        CAPTURE(depth);
        CAPTURE(after);
        CAPTURE(drafts);
        auto options = with_state(drafts, 6, 2);
        options.depth = depth;
        hash_driver driver(options);
        auto penalized = seeded(9);
        penalized.presence_penalty = 1.0f;
        driver.add(prompt_of("a", 9), penalized, 16);
        driver.add(prompt_of("b", 4), greedy(), 16);
        for (const auto outputs : {after, after + 3}) {
          run_to(driver, outputs);
          driver.preempt(driver.sequences[0]);
        }
        driver.run();
        check_all(driver);
        CHECK(driver.sequences[0].epoch == 2);
        // The pattern of accepted drafts begins again with each epoch.
        if (drafts > 0 && !driver.sequences[0].accepted.empty())
          CHECK(driver.sequences[0].accepted[0] == 1);
      }
}

TEST_CASE("a sequence that begins with cached blocks has the tokens of one that computes them") {
  for (const std::int32_t hits : {1, 2, 4})
    for (const std::int32_t depth : {1, 2})
      for (const std::int32_t window : {0, 3, 7}) {
        CAPTURE(hits);
        CAPTURE(depth);
        CAPTURE(window);
        auto options = with_state(3, window, 4);
        options.depth = depth;
        hash_driver driver(options);
        const auto& first = driver.add(prompt_of("a", 18), greedy(), 5);
        run_to(driver, 1);
        add_hit(driver, first, hits, 18, 9);
        add_hit(driver, first, hits, 17, 9);
        driver.run();
        check_all(driver);
      }
}

TEST_CASE("after preemption cached blocks may hold outputs, which count for penalty and position") {
  for (const std::int32_t hits : {1, 2, 3}) {
    CAPTURE(hits);
    auto options = with_state(2, 5, 2);
    options.depth = 1;
    hash_driver driver(options);
    auto penalized = seeded(4);
    penalized.repetition_penalty = 1.5f;
    driver.add(prompt_of("a", 5), penalized, 20);
    run_to(driver, 9);
    driver.preempt(driver.sequences[0], hits);
    driver.run();
    check_all(driver);
  }
}

TEST_CASE("an epoch's first output has the number that follows those known") {
  hash_driver driver(with_state(0, 0, 0));
  driver.add(prompt_of("a", 5), greedy(), 20);
  run_to(driver, 4);
  driver.preempt(driver.sequences[0]);
  auto plan = driver.plan();
  plan->starts[0].outputs -= 1;
  driver.launch(std::move(plan));
  driver.run();
  CHECK(names_of(driver.runner().canary()) == std::vector<std::string>{"row_map_broken"});
}

TEST_CASE("a prefix is resumed only where a block keeps what that needs") {
  auto options = with_state(0, 3, 0);
  options.chunk = 64;
  options.depth = 1;
  SUBCASE("without a prefix cache no block does") {
    options.sizes.prefix_cache = false;
  }
  SUBCASE("with a stride of two the first does not") {
    options.sizes.resume_stride = 2;
  }
  hash_driver driver(options);
  const auto& first = driver.add(prompt_of("a", 18), greedy(), 1);
  driver.run();
  check_all(driver);
  add_hit(driver, first, 1, 18, 1);
  driver.launch(driver.plan());
  driver.settle();
  CHECK(has_error(driver, "state_mismatch"));
  if (!options.sizes.prefix_cache) return;
  hash_driver strided(options);
  const auto& whole = strided.add(prompt_of("a", 18), greedy(), 1);
  strided.run();
  add_hit(strided, whole, 2, 18, 4);
  strided.run();
  check_all(strided);
}

TEST_CASE("a block that was given away keeps nothing of what it could be resumed with") {
  auto options = with_state(0, 1, 0);
  options.depth = 1;
  hash_driver driver(options);
  driver.add(prompt_of("a", 4), greedy(), 1);
  driver.run();
  const auto given = driver.sequences[0].blocks[0];
  driver.add(prompt_of("b", 2), greedy(), 1);
  auto second = driver.plan();
  second->blocks[0] = given;
  driver.launch(std::move(second));
  driver.settle();
  check_canary(driver);
  driver.add(prompt_of("b", 9), greedy(), 1).hits = {given};
  driver.launch(driver.plan());
  driver.settle();
  CHECK(has_error(driver, "state_mismatch"));
}

TEST_CASE("every chain of the window is compared, the oldest too") {
  for (const std::int32_t window : {1, 3}) {
    runner_config sizes = driver_options::small_sizes();
    hash_model_config model;
    model.window = window;
    canary_log log;
    hash_state state(sizes, model, &log);
    const slot_id first{0}, second{1};
    state.start({first, seq_id{1}, 0, 4, 0, 0, 9, {}, nullptr});
    state.append_blocks(step_id{1}, first, 0, std::vector{block_id{5}}, 0);
    auto cursor = state.read_prefix(step_id{1}, first);
    for (std::int32_t p = 0; p < 4; ++p) state.write(step_id{1}, first, p, 20 + p, cursor);
    state.start({second, seq_id{2}, 0, 4, 0, 4, 9, {}, nullptr});
    state.append_blocks(step_id{2}, second, 0, std::vector{block_id{5}}, 1);
    state.read_prefix(step_id{2}, second);  // nothing was resumed
    CHECK(log.count() == static_cast<std::uint64_t>(window));
    CHECK(log.errors()[0].name == "state_mismatch");
  }
}

TEST_CASE("compressed entries and the partial sum are compared with the chains they sum") {
  runner_config sizes = driver_options::small_sizes();
  hash_model_config model;
  model.ratio = 2;
  canary_log log;
  hash_state state(sizes, model, &log);
  const slot_id slot{0};
  state.start({slot, seq_id{1}, 0, 4, 0, 0, 9, {}, nullptr});
  state.append_blocks(step_id{1}, slot, 0, std::vector{block_id{5}}, 0);
  auto cursor = state.read_prefix(step_id{1}, slot);
  std::vector<std::uint64_t> chains;
  for (std::int32_t p = 0; p < 3; ++p) {
    state.write(step_id{1}, slot, p, 20 + p, cursor);
    chains.push_back(cursor.chain);
  }
  state.accept(slot, 3, chains);
  CHECK(state.slot(slot).partial == hash_mix(chains[2]));
  state.read_prefix(step_id{2}, slot);
  CHECK(log.count() == 0);
  SUBCASE("an entry") {
    ++state.kv().entries(block_id{5})[1].compressed;
  }
  SUBCASE("the sum") {
    ++state.slot(slot).partial;
  }
  state.read_prefix(step_id{3}, slot);
  REQUIRE(log.count() == 1);
  CHECK(log.errors()[0].name == "state_mismatch");
}

TEST_CASE("blocks come back from the host with all that was in them, in the order of the moves") {
  auto options = with_state(2, 5, 4);
  options.sizes.host_blocks = 3;
  options.depth = 2;
  options.chunk = 64;
  hash_driver driver(options);
  const auto& first = driver.add(prompt_of("a", 18), greedy(), 3);
  driver.run();
  const auto kept = first.blocks[0], moved = first.blocks[1];
  auto& hit = add_hit(driver, first, 2, 18, 7);
  const auto other = driver.take_block(), free_one = driver.take_block();
  hit.hits = {free_one, other};
  auto plan = driver.plan();
  SUBCASE("both") {
    // Place 0 is used twice: what it held first has left it by then.
    plan->moves = {
      {kept, 0, true}, {free_one, 0, false}, {moved, 0, true}, {moved, 2, true}, {other, 2, false}};
    driver.launch(std::move(plan));
    driver.settle();
    driver.runner().poison(std::vector{kept, moved}, {});  // nobody needs them any more
    driver.run();
    CHECK(hit.outputs == driver.expected(hit));
    CHECK(driver.runner().canary().count() == 0);
  }
  SUBCASE("one that is not there") {
    plan->moves = {{kept, 0, true}, {free_one, 0, false}, {other, 1, false}};
    driver.launch(std::move(plan));
    driver.settle();
    CHECK(has_error(driver, "read_beyond_length"));
  }
  SUBCASE("one that was freed before it was moved") {
    driver.runner().poison(std::vector{moved}, {});
    plan->moves = {{kept, 0, true}, {free_one, 0, false}, {moved, 1, true}, {other, 1, false}};
    driver.launch(std::move(plan));
    driver.settle();
    CHECK(names_of(driver.runner().canary()).front() == "read_freed_block");
  }
  SUBCASE("places and blocks that there are none of") {
    plan->moves = {{kept, 3, true}, {block_id{256}, 0, true}, {kept, -1, false}};
    driver.launch(std::move(plan));
    driver.settle();
    const auto names = names_of(driver.runner().canary());
    REQUIRE(names.size() >= 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(names[i] == "write_trap_block");
  }
}

TEST_CASE("every token row goes through the experts of its position, and only once") {
  driver_options options = with_state(0, 0, 0);
  options.model.experts = {2, 8, 2, {{0, 1}, {2, 3}, {0, 4}}};
  options.depth = 1;
  hash_driver driver(options);
  driver.add(prompt_of("a", 5), greedy(), 4);
  driver.add(prompt_of("b", 7), greedy(), 3);
  driver.run();
  check_all(driver);
  CHECK(driver.runner().routed_rows() == 34);
  hash_sequence without({}, driver.sequences[0].script, {});
  CHECK(driver.sequences[0].outputs[0] != without.output(1));
}

TEST_CASE("a slot that is not the sequence's own shows in window, sum or entries") {
  auto options = with_state(0, 4, 4);
  options.depth = 1;
  options.chunk = 64;
  hash_driver driver(options);
  const auto& first = driver.add(prompt_of("a", 18), greedy(), 4);
  driver.launch(driver.plan());
  driver.settle();
  auto& hit = add_hit(driver, first, 3, 18, 4);
  // Its third block is a copy of the second: entries alone would show that, its state does too.
  hit.hits[2] = first.blocks[1];
  driver.launch(driver.plan());
  driver.settle();
  CHECK(has_error(driver, "state_mismatch"));
  CHECK(has_error(driver, "canary_mismatch"));
}

TEST_CASE("a row that reads only its last blocks finds the same tokens, and errors in its turn") {
  auto options = with_state(3, 5, 4);
  options.model.check = hash_check::last_block;
  hash_driver driver(options);
  add_mixed(driver);
  driver.run();
  check_all(driver);
  hash_driver other(options);
  const auto& one = other.add(prompt_of("a", 26), greedy(), 60);
  run_to(other, 1);
  other.runner().poison(std::vector{one.blocks[2]}, {});
  run_to(other, 30);
  CHECK(has_error(other, "read_freed_block"));
}
