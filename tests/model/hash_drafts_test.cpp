#include <doctest/doctest.h>

#include "hash_fixture.hpp"
#include "runtime/model/hash_drafts.hpp"

using namespace deepinfer;

namespace {

driver_options with_drafts(std::int32_t drafts, std::vector<std::int32_t> accept) {
  driver_options options;
  options.sizes.num_drafts = drafts;
  options.model.accept = std::move(accept);
  return options;
}

std::vector<std::int32_t> split(std::int32_t total, std::vector<std::int32_t> most,
                                std::vector<float> confidences,
                                std::vector<std::uint8_t> is_alive = {}) {
  if (is_alive.empty()) is_alive.assign(most.size(), 1);
  std::vector<std::int32_t> out(most.size(), -1);
  hash_split_widths(total, most, is_alive, confidences, out);
  return out;
}

}  // namespace

TEST_CASE("a drafter gives true tokens as often as the pattern says, then their successors") {
  hash_model_config model;
  model.accept = {2, 0};
  const auto script = prompt_of("a", 5);
  hash_sequence truth(model, script, {});
  hash_draft_start from{&script, truth.chain(4), 5, 5, truth.output(1), {}, 0};
  std::vector<token_id> drafts(3);
  hash_make_drafts(model, {}, {}, from, drafts);
  CHECK(drafts == std::vector<token_id>{568, 774, 20});  // output 4 is 19
  from.decode_row = 1;
  hash_make_drafts(model, {}, {}, from, drafts);
  CHECK(drafts == std::vector<token_id>{569, 775, 20});
  from.decode_row = 2;
  hash_make_drafts(model, {}, {}, from, drafts);
  CHECK(drafts[1] == 774);
  SUBCASE("a request's own pattern comes before the model's") {
    auto own = script;
    own.accept = {1};
    from.script = &own;
    hash_make_drafts(model, {}, {}, from, drafts);
    CHECK(drafts == std::vector<token_id>{568, 775, 20});
  }
  SUBCASE("without a pattern all are true") {
    model.accept.clear();
    hash_make_drafts(model, {}, {}, from, drafts);
    CHECK(drafts == std::vector<token_id>{568, 774, 19});
  }
  SUBCASE("wrong ones stay words") {
    auto last = script;
    last.tokens = {{2, 999}, {3, hash_stop_id}};
    model.accept = {0};
    from.script = &last;
    hash_make_drafts(model, {}, {}, from, drafts);
    CHECK(drafts[0] == hash_first_word);
    CHECK(drafts[1] == hash_first_word);
  }
}

TEST_CASE("the rest of a step's total goes to the largest cumulative confidences") {
  const std::vector<float> confidences = {0.9f,  0.8f, 0.1f,   // 0.9, 0.72, 0.072
                                          0.95f, 0.5f, 1.0f,   // 0.95, 0.475, 0.475
                                          0.9f,  0.9f, 0.9f};  // 0.9, 0.81, 0.729
  const std::vector<std::int32_t> four = {4, 4, 4};
  CHECK(split(3, four, confidences) == std::vector<std::int32_t>{1, 1, 1});
  CHECK(split(4, four, confidences) == std::vector<std::int32_t>{1, 2, 1});
  CHECK(split(5, four, confidences) == std::vector<std::int32_t>{2, 2, 1});  // a tie: lower row
  CHECK(split(8, four, confidences) == std::vector<std::int32_t>{2, 2, 4});
  CHECK(split(9, four, confidences) == std::vector<std::int32_t>{3, 2, 4});
  CHECK(split(11, four, confidences) == std::vector<std::int32_t>{3, 4, 4});
  CHECK(split(12, four, confidences) == std::vector<std::int32_t>{4, 4, 4});
  CHECK(split(7, {2, 1, 4}, confidences) == std::vector<std::int32_t>{2, 1, 4});
  CHECK(split(9, {2, 1, 4}, confidences) == std::vector<std::int32_t>{2, 1, 4});  // no more fit
  CHECK(split(6, four, std::vector<float>(9, 1.0f)) == std::vector<std::int32_t>{4, 1, 1});
  // A row that has ended leaves its place and takes none of the rest.
  CHECK(split(5, four, confidences, {1, 0, 1}) == std::vector<std::int32_t>{2, 0, 2});
  CHECK(split(2, {1, 1}, {}) == std::vector<std::int32_t>{1, 1});
  CHECK(split(0, {}, {}).empty());
}

TEST_CASE("confidences are the request's, else the model's, and 1 where they end") {
  hash_model_config model;
  std::vector<float> out(3, -1.0f);
  CHECK_FALSE(hash_fill_confidences(model, nullptr, out));
  CHECK(out == std::vector<float>{1.0f, 1.0f, 1.0f});
  model.confidence = {0.5f, 0.25f};
  CHECK(hash_fill_confidences(model, nullptr, out));
  CHECK(out == std::vector<float>{0.5f, 0.25f, 1.0f});
  hash_script script;
  script.confidence = {0.1f, 0.2f, 0.3f, 0.4f};
  CHECK(hash_fill_confidences(model, &script, out));
  CHECK(out == std::vector<float>{0.1f, 0.2f, 0.3f});
}

TEST_CASE("tokens with drafts are those without, whatever is accepted, at every depth [I26][I38]") {
  const std::vector<std::vector<std::int32_t>> patterns = {{0}, {3}, {1}, {2, 0}, {0, 2, 3}, {9}};
  for (const auto& pattern : patterns)
    for (const std::int32_t drafts : {1, 3})
      for (const std::int32_t depth : {1, 2, 3})
        for (const bool on_cpu : {false, true}) {
          CAPTURE(pattern.front());
          CAPTURE(pattern.size());
          CAPTURE(drafts);
          CAPTURE(depth);
          auto options = with_drafts(drafts, pattern);
          options.depth = depth;
          options.on_cpu = on_cpu;
          hash_driver driver(options);
          add_mixed(driver);
          driver.run();
          check_all(driver);
        }
}

TEST_CASE("decode row j accepts min(accept[j], its drafts) and yields one more") {
  for (const std::int32_t depth : {1, 2, 3}) {
    auto options = with_drafts(3, {2, 0, 5, 1});
    options.depth = depth;
    hash_driver driver(options);
    driver.add(prompt_of("a", 5), greedy(), 20);
    auto own = prompt_of("b", 7);
    own.accept = {3};
    driver.add(own, seeded(3), 20);
    driver.run();
    check_all(driver);
    const auto& rows = driver.sequences[0].accepted;
    REQUIRE(rows.size() >= 5);
    CHECK(std::equal(rows.begin(), rows.begin() + 5, std::begin({2, 0, 3, 1, 2})));
    for (const auto accepted : driver.sequences[1].accepted) CHECK(accepted == 3);
  }
}

TEST_CASE("rows of any width, split, skipped, fresh or carried give the same tokens [I28][I33]") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    auto options = with_drafts(1 + static_cast<std::int32_t>(seed % 4), {1, 3, 0, 2});
    options.depth = 1 + static_cast<std::int32_t>(seed % 3);
    options.seed = seed;
    options.skip_percent = seed % 2 == 0 ? 40 : 0;
    options.fresh_percent = 50;
    options.truncate_percent = 50;
    options.split_percent = 60;
    options.sizes.draft_overhang = static_cast<std::int32_t>(seed % 3);
    options.model.confidence = {0.9f, 0.3f};
    options.on_cpu = seed % 5 == 0;
    hash_driver driver(options);
    add_mixed(driver);
    driver.run();
    check_all(driver);
  }
}

TEST_CASE("a result says what each row had and what was drafted behind it") {
  auto options = with_drafts(2, {2, 0});
  options.chunk = 64;
  options.depth = 1;
  hash_driver driver(options);
  driver.add(prompt_of("a", 5), greedy(), 9);
  auto sure = prompt_of("b", 2);
  sure.confidence = {0.5f};
  driver.add(sure, greedy(), 9);
  driver.add(prompt_of("c", 70), greedy(), 9);
  driver.launch(driver.plan());
  const auto first = driver.settle();
  CHECK(first.widths == std::vector<std::int32_t>{5, 2, 64});
  CHECK(first.drafts_per_row == 2);
  REQUIRE(first.drafts.size() == 6);
  CHECK(first.drafts[0] == 568);
  CHECK(first.drafts[1] == 774);
  CHECK(first.drafts[4] == -1);  // a chunk that is not the last yields nothing
  CHECK(first.confidences == std::vector<float>{1.0f, 1.0f, 0.5f, 1.0f, 0.0f, 0.0f});
  driver.launch(driver.plan());
  CHECK(driver.settle().row_tokens(0).size() == 3);
  auto narrow = driver.plan();
  REQUIRE(narrow->kind == step_kind::decode);
  narrow->total_width = 5;  // 1 + 1 + 1 and two for the lowest row of confidence 1
  driver.launch(narrow);
  CHECK(driver.settle().widths == std::vector<std::int32_t>{3, 1, 1});
  check_canary(driver);
  hash_driver unsure(with_drafts(2, {}));
  unsure.add(prompt_of("a", 5), greedy(), 9);
  unsure.run();
  unsure.add(prompt_of("b", 2), greedy(), 1);
  unsure.launch(unsure.plan());
  CHECK(unsure.settle().confidences.empty());  // the drafter gives none
}

TEST_CASE("a drafter writes so many positions past its row, and nobody reads them") {
  auto options = with_drafts(3, {3});
  options.sizes.draft_overhang = 3;
  options.chunk = 64;
  hash_driver driver(options);
  const auto id = driver.add(prompt_of("a", 8), greedy(), 9).id;
  CHECK(driver.runner().written_end(id) == 0);
  driver.launch(driver.plan());
  driver.settle();
  CHECK(driver.runner().written_end(id) == 11);
  driver.run();
  check_all(driver);
  // The row that was launched before the last tokens were known began at 16.
  CHECK(driver.runner().written_end(id) == 16 + 4 + 3);
  SUBCASE("also where all drafts of the row are wrong") {
    auto wrong = options;
    wrong.model.accept = {0};
    hash_driver other(wrong);
    other.add(prompt_of("a", 8), greedy(), 2);
    other.run();
    check_all(other);
    CHECK(other.runner().written_end(id) == 8 + 4 + 3);
  }
  SUBCASE("they need room in the table like any other") {
    hash_driver tight(options);
    tight.add(prompt_of("a", 8), greedy(), 9);
    auto plan = tight.plan();
    plan->blocks.pop_back();  // positions 8 to 10 are in the third block
    plan->block_begin.back() = 2;
    tight.launch(plan);
    tight.settle();
    CHECK(names_of(tight.runner().canary()) == std::vector<std::string>(3, "write_trap_block"));
  }
  SUBCASE("what only a drafter wrote is beyond every length") {
    hash_driver early(options);
    early.add(prompt_of("a", 8), greedy(), 9);
    early.launch(early.plan());
    early.settle();
    auto next = early.plan();
    // The device is told that position 8 has been computed: a hit of blocks 0 to 2.
    next->starts = {{slot_id{30}, next->sequences[0], 1, 8, 1, 12, 9, greedy_pointer()}};
    next->epochs[0] = 1;
    next->slots[0] = slot_id{30};
    next->positions[0] = 12;
    next->table_begin[0] = 0;
    const auto& table = early.sequences[0].blocks;
    next->blocks.assign(table.begin(), table.end());
    next->block_begin = {0, static_cast<std::int32_t>(next->blocks.size())};
    next->sources = {from_fresh};
    early.launch(next);
    early.settle();
    const auto errors = early.runner().canary().errors();
    REQUIRE(errors.size() >= 4);
    CHECK(errors[1].name == "read_beyond_length");
    CHECK(errors[1].text == "step 2, sequence 100, slot 30, position 8: written by the drafter of "
                            "step 1, past its row");
  }
}

TEST_CASE(
  "a planned position may be above the device's by what rows fell short of, no more [I33]") {
  struct bound_case {
    std::int32_t shift;
    bool is_right;
  };
  // Row 1 of 4 queries gave 1 token, row 2 of 4 as well: at depth 2 only the newer may be unknown.
  const bound_case table[] = {{-4, false}, {-1, false}, {0, true}, {3, true}, {4, false}};
  for (const auto& row : table) {
    CAPTURE(row.shift);
    auto options = with_drafts(3, {0});
    options.chunk = 64;
    options.fresh_percent = 0;
    hash_driver driver(options);
    driver.add(prompt_of("a", 5), greedy(), 20);
    for (int step = 0; step < 3; ++step) {
      driver.launch(driver.plan());
      driver.settle();
    }
    auto plan = driver.plan();
    CHECK(plan->positions[0] == 7);
    plan->positions[0] += row.shift;
    driver.launch(plan);
    driver.settle();
    CHECK((driver.runner().canary().count() == 0) == row.is_right);
    CHECK(has_error(driver, "row_map_broken") == !row.is_right);
  }
}
