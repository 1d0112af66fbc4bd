#include <doctest/doctest.h>

#include "hash_fixture.hpp"

using namespace deepinfer;

TEST_CASE("a block table that names another sequence's block changes tokens and is named") {
  hash_driver driver({.depth = 1, .chunk = 64});
  driver.add(prompt_of("a", 8), greedy(), 4);
  driver.add(prompt_of("b", 8), greedy(), 4);
  driver.launch(driver.plan());
  driver.settle();
  auto plan = driver.plan();
  const auto first_block = driver.take_block();
  // Row 0 is told that its first block is now another one, which nobody wrote.
  plan->table_begin[0] = 0;
  plan->blocks[0] = first_block;
  driver.launch(plan);
  driver.settle();
  CHECK(has_error(driver, "read_beyond_length"));
  CHECK(has_error(driver, "write_trap_block"));  // and its new position has no block
}

TEST_CASE("the canary names what a wrong plan breaks") {
  struct wrong_plan {
    const char* error;
    void (*spoil)(hash_driver&, step_plan&);
  };
  // The step is the second decode step of two sequences, launched with the first one in flight.
  // clang-format off
  const wrong_plan table[] = {
    {"row_map_broken", [](hash_driver&, step_plan& p) { std::swap(p.sources[0], p.sources[1]); }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { p.sources[1] = p.sources[0]; }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { p.sources[1] = 17; }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { p.positions[0] += 1; }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { std::swap(p.slots[0], p.slots[1]); }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { p.slots[0] = slot_id{99}; }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { p.epochs[0] = 1; }},
    {"row_map_broken",
     [](hash_driver&, step_plan& p) { p.widths[0] = 2, p.sources[0] = from_fresh; }},
    {"row_map_broken", [](hash_driver&, step_plan& p) {
       p.kinds[0] = row_kind::prefill;
       p.widths[0] = 2, p.total_width = 3;
     }},
    {"write_trap_block",
     [](hash_driver&, step_plan& p) { p.blocks.assign(p.blocks.size(), block_id{-1}); }},
    {"write_trap_block",
     [](hash_driver&, step_plan& p) { p.blocks.assign(p.blocks.size(), block_id{256}); }},
    {"read_freed_block", [](hash_driver& d, step_plan&) {
       const block_id all[] = {block_id{0}, block_id{1}, block_id{2}, block_id{3}};
       for (std::int32_t first = 0; first < 256; first += 4) {
         block_id four[4];
         for (int i = 0; i < 4; ++i) four[i] = block_id{all[i].value + first};
         d.runner().poison(four, {});
       }
     }},
    {"row_map_broken",
     [](hash_driver& d, step_plan& p) { d.runner().poison({}, {p.slots.data(), 1}); }},
    {"token_id_out_of_range", [](hash_driver&, step_plan& p) {
       for (auto* column : {&p.sources}) (*column)[0] = from_fresh;
       p.tokens.push_back(1000);
       p.token_begin = {0, 1, 1};
     }},
    {"canary_mismatch", [](hash_driver&, step_plan& p) {
       p.sources[0] = from_fresh;
       p.tokens.push_back(20);  // not the id that was sampled
       p.token_begin = {0, 1, 1};
     }},
    {"budget_exceeded", [](hash_driver&, step_plan& p) { p.widths[0] = 300, p.total_width = 301; }},
    {"budget_exceeded", [](hash_driver&, step_plan& p) { p.bucket = 1; }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { p.total_width = 1; }},
    {"row_map_broken", [](hash_driver&, step_plan& p) { p.total_width = 3; }},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(&row - table);
    CAPTURE(row.error);
    hash_driver driver({.depth = 2, .chunk = 64});
    driver.add(prompt_of("a", 7), greedy(), 9);
    driver.add(prompt_of("b", 7), greedy(), 9);
    driver.launch(driver.plan());
    driver.launch(driver.plan());
    auto spoiled = driver.plan();
    driver.settle();
    driver.settle();  // so that poison and plans meet no running work
    CHECK(driver.runner().canary().count() == 0);
    row.spoil(driver, *spoiled);
    driver.launch(std::move(spoiled));
    driver.settle();
    driver.launch(driver.plan());  // what was written wrongly is read here
    driver.settle();
    CHECK(has_error(driver, row.error));
  }
}

TEST_CASE("a block in the wrong place of its own table is seen by its positions") {
  hash_driver driver({.depth = 1, .chunk = 64});
  driver.add(prompt_of("a", 8), greedy(), 4);
  const auto first = driver.plan();
  const auto first_block = first->blocks[0];
  driver.launch(first);
  driver.settle();
  auto second = driver.plan();
  second->table_begin[0] = 1;
  second->blocks[0] = first_block;
  driver.launch(second);
  driver.settle();
  const auto errors = driver.runner().canary().errors();
  REQUIRE(errors.size() >= 4);
  CHECK(errors[0].name == "canary_mismatch");
  CHECK(errors[0].text == "step 2, sequence 100, slot 3, position 4: holds position 0 of step 1");
}

TEST_CASE("a slot that starts again has an empty block table and carries no id") {
  hash_driver driver({.depth = 1, .chunk = 4});
  driver.add(prompt_of("a", 8), greedy(), 2);
  driver.run();
  driver.add(prompt_of("b", 8), greedy(), 2);
  driver.sequences[1].slot = driver.sequences[0].slot;
  auto start = driver.plan();
  SUBCASE("without its own blocks it writes into none") {
    start->blocks.clear();
    start->block_begin = {0, 0};
    driver.launch(start);
    driver.settle();
    CHECK(has_error(driver, "write_trap_block"));
  }
  SUBCASE("nor does it read what its predecessor's table named") {
    start->table_begin[0] = 1;
    driver.launch(start);
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == std::vector<std::string>(4, "write_trap_block"));
  }
  SUBCASE("a row that would carry before anything was sampled is none") {
    driver.launch(start);
    driver.settle();
    auto next = driver.plan();
    next->sources = {from_slot};
    next->tokens.clear();
    next->token_begin = {0, 0};
    driver.launch(next);
    driver.settle();
    CHECK(names_of(driver.runner().canary()) == std::vector<std::string>{"row_map_broken"});
  }
}

TEST_CASE("buffers that change under a copy are noticed on both ways [I22][I23]") {
  hash_driver driver({.depth = 1, .chunk = 64});
  driver.add(prompt_of("a", 5), greedy(), 9);
  driver.launch(driver.plan());
  driver.runner().overwrite(driver.newest_work(), step_phase::copy_in);
  driver.settle();
  CHECK(has_error(driver, "staging_overwritten"));

  driver_options options{.depth = 1, .chunk = 64};
  options.timing.phase_ns = {0, 10, 0, 0, 10};
  hash_driver other(options);
  other.add(prompt_of("a", 5), greedy(), 9);
  other.launch(other.plan());
  dynamic_cast<virtual_device&>(other.dev()).advance_to(15);  // sampled, not yet copied
  other.runner().overwrite(other.newest_work(), step_phase::copy_out);
  other.settle();
  CHECK(names_of(other.runner().canary()) == std::vector<std::string>{"output_overwritten"});
}
