#include <doctest/doctest.h>

#include "tests/model/hash_driver.hpp"

using namespace deepinfer;

namespace {

sampling_params greedy() {
  sampling_params params;
  params.temperature = 0.0f;
  return params;
}

hash_script prompt_of(std::string_view text, std::int32_t tokens) {
  hash_script script;
  script.prompt = hash_prompt({}, text, tokens);
  return script;
}

// Sequences of mixed lengths and kinds.
void add_mixed(hash_driver& driver) {
  driver.add(prompt_of("a", 5), greedy(), 9);
  auto seeded = greedy();
  seeded.temperature = 1.0f;
  seeded.seed = 5;
  driver.add(prompt_of("b", 1), seeded, 12);
  auto penalized = seeded;
  penalized.frequency_penalty = 1.0f;
  penalized.seed = 77;
  driver.add(prompt_of("c", 23), penalized, 7);
  auto stopped = prompt_of("d", 8);
  stopped.stop_after = 4;
  stopped.tokens = {{2, 500}};
  auto patient = greedy();
  patient.min_tokens = 5;
  driver.add(stopped, greedy(), 8);
  driver.add(stopped, patient, 8);
  driver.add(prompt_of("e", 40), greedy(), 3);
}

void check_all(hash_driver& driver) {
  for (const auto& one : driver.sequences) {
    CAPTURE(one.id.value);
    CHECK(one.outputs == driver.expected(one));
  }
  for (const auto& error : driver.runner().canary().errors())
    FAIL_CHECK(error.name, ": ", error.text);
  CHECK(driver.runner().canary().count() == 0);
}

std::vector<std::string> names_of(const canary_log& log) {
  std::vector<std::string> out;
  for (const auto& error : log.errors()) out.push_back(error.name);
  return out;
}

bool has_error(hash_driver& driver, std::string_view name) {
  const auto names = names_of(driver.runner().canary());
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

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
    options.timing.phase_ns = {1'000, 2'000, 500, 1'500};
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
    {"write_trap_block",
     [](hash_driver&, step_plan& p) { p.blocks.assign(p.blocks.size(), block_id{-1}); }},
    {"write_trap_block",
     [](hash_driver&, step_plan& p) { p.blocks.assign(p.blocks.size(), block_id{128}); }},
    {"read_freed_block", [](hash_driver& d, step_plan&) {
       const block_id all[] = {block_id{0}, block_id{1}, block_id{2}, block_id{3}};
       for (std::int32_t first = 0; first < 128; first += 4) {
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
    {"budget_exceeded", [](hash_driver&, step_plan& p) { p.widths[0] = 300; }},
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
  options.timing.phase_ns = {0, 10, 0, 10};
  hash_driver other(options);
  other.add(prompt_of("a", 5), greedy(), 9);
  other.launch(other.plan());
  dynamic_cast<virtual_device&>(other.dev()).advance_to(15);  // sampled, not yet copied
  other.runner().overwrite(other.newest_work(), step_phase::copy_out);
  other.settle();
  CHECK(names_of(other.runner().canary()) == std::vector<std::string>{"output_overwritten"});
}

TEST_CASE("freed blocks and slots may hold anything: whoever gets them next sees none of it") {
  hash_driver driver({.depth = 2, .chunk = 64});
  add_mixed(driver);
  std::vector<block_id> blocks;
  std::vector<slot_id> slots;
  for (std::int32_t i = 0; i < 128; ++i) blocks.push_back(block_id{i});
  for (std::int32_t i = 0; i < 16; ++i) slots.push_back(slot_id{i});
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
  again->positions = {one.planned};
  again->yields_max = again->yields_min = {1};
  again->token_begin = {0, 0};
  again->table_begin = {0};
  again->block_begin = {0, 0};
  const auto work = driver.runner().stage(again);
  CHECK(work->run(step_phase::copy_in, {}).code == errc::ok);
  CHECK(work->run(step_phase::forward, {}).code == errc::ok);
  CHECK(has_error(driver, "row_map_broken"));  // the slot knows nobody any more
}
