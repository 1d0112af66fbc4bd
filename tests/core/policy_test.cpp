#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/core/admission.hpp"
#include "runtime/core/batch_policy.hpp"
#include "runtime/core/block_book.hpp"
#include "runtime/core/remap.hpp"
#include "runtime/core/sequence_state.hpp"
#include "runtime/core/victim.hpp"
#include "tests/core/death.hpp"

using namespace deepinfer;

namespace {

std::unique_ptr<sequence_state> make_sequence(std::uint64_t id) {
  sequence_request request{{id},
                           std::make_shared<const std::vector<token_id>>(3, 5),
                           std::make_shared<const sampling_params>(),
                           0};
  return std::make_unique<sequence_state>(std::move(request), 0, admission_queue::key{},
                                          stop_rule({}, 1, {}, 9, nullptr));
}

/// One row of a plan, for check_remap.
void add_row(step_plan& plan, std::uint64_t sequence, row_kind kind, std::int32_t source,
             std::int32_t yields) {
  plan.sequences.push_back({sequence});
  plan.epochs.push_back(0);
  plan.kinds.push_back(kind);
  plan.sources.push_back(source);
  plan.yields_max.push_back(yields);
  if (source == from_fresh) plan.tokens.push_back(9);
  plan.token_begin.push_back(static_cast<std::int32_t>(plan.tokens.size()));
}

step_plan empty_plan(std::uint64_t step) {
  step_plan plan;
  plan.clear();
  plan.step = {step};
  return plan;
}

}  // namespace

TEST_CASE("a chunk is the least of what is left, the chunk size and the budget") {
  struct chunk_case {
    std::int64_t rest, size, budget, width;
  };
  const chunk_case table[] = {{10, 4, 100, 4}, {3, 4, 100, 3}, {10, 0, 100, 10}, {10, 0, 7, 7},
                              {10, 4, 2, 2},   {10, 4, 0, 0},  {0, 4, 5, 0},     {10, 4, -1, 0}};
  for (const auto& row : table) {
    CAPTURE(row.rest);
    CAPTURE(row.budget);
    CHECK(chunk_width(row.rest, row.size, row.budget) == row.width);
  }
}

TEST_CASE("decode rows keep their order while all fit, else those planned longest ago go first") {
  std::vector<decode_candidate> rows{
    {nullptr, {7}, 1, 3}, {nullptr, {5}, 2, 3}, {nullptr, {6}, 3, 3}, {nullptr, {5}, 4, 3}};
  auto all = rows;
  choose_decodes(all, 12);
  CHECK(all[0].order == 1);
  CHECK(all[3].order == 4);
  auto three = rows;
  choose_decodes(three, 11);
  REQUIRE(three.size() == 3);
  CHECK(three[0].order == 2);
  CHECK(three[1].order == 4);
  CHECK(three[2].order == 3);
  choose_decodes(rows, 2);
  CHECK(rows.empty());
}

TEST_CASE("the queue goes by priority, then by arrival") {
  std::vector<std::unique_ptr<sequence_state>> made;
  admission_queue queue;
  const std::int32_t priorities[] = {0, 5, 0, -3, 5};
  for (std::uint64_t i = 0; i < 5; ++i) {
    made.push_back(make_sequence(i));
    queue.push(admission_queue::key_of(priorities[i], i), *made.back());
  }
  queue.remove(admission_queue::key_of(0, 0));
  std::vector<std::uint64_t> order;
  for (const auto& [key, sequence] : queue) order.push_back(sequence->id().value);
  CHECK(order == std::vector<std::uint64_t>{1, 4, 2, 3});
  CHECK(queue.size() == 4);
}

TEST_CASE(
  "a shared block is counted once, and what waits behind a fence is promised until it settles "
  "[I07][I14]") {
  block_book book(10, 2);
  const std::vector<block_id> a{{1}, {2}, {3}}, b{{2}, {3}, {4}};
  for (const auto block : a) book.enter(block);
  for (const auto block : b) book.enter(block);
  book.hold_slot();
  book.hold_slot();
  CHECK(book.held() == 4);
  CHECK(book.free_slots() == 0);
  CHECK(book.exclusive(a) == 1);
  book.park({4}, a, 1, {2});
  CHECK(book.tabled() == 3);
  CHECK(book.promised() == 1);  // 2 and 3 are still in the table of b
  CHECK(book.parked_slots() == 1);
  CHECK(book.exclusive(b) == 3);
  book.park({5}, std::vector<block_id>{{2}}, 0, {2});
  CHECK(book.promised() == 2);
  CHECK_FALSE(book.settle({3}));
  CHECK(book.settle({4}));
  CHECK(book.promised() == 1);  // 2 waits for step 5
  CHECK(book.held_slots() == 1);
  CHECK(book.free_slots() == 1);
  book.enter({2});
  CHECK(book.promised() == 0);  // it is in a table again, also while the fence is out
  CHECK(book.held() == 3);
  CHECK(book.settle({5}));
  CHECK(book.held() == 3);
  book.park({5}, std::vector<block_id>{{4}}, 0, {5});  // a fence that has settled
  CHECK(book.held() == 2);
  book.reset();
  CHECK(book.held() == 0);
  CHECK(book.free_slots() == 2);
}

namespace {

/// Kinds of steps while rows decode and prompts wait all the time: p or d.
std::string steps_under(std::int32_t decode_gap, std::int32_t prefill_run) {
  std::string out;
  std::int64_t prefills = 0, decodes = decode_gap;
  while (out.size() < 12) {
    const bool is_prefill = may_prefill(prefills, decodes, decode_gap, prefill_run);
    out += is_prefill ? 'p' : 'd';
    prefills = is_prefill ? prefills + 1 : 0;
    decodes = is_prefill ? 0 : decodes + 1;
  }
  return out;
}

}  // namespace

TEST_CASE("prefill and decode steps are bounded both ways: neither starves the other [I63]") {
  CHECK(steps_under(0, 0) == "pppppppppppp");  // what the bounds are for
  CHECK(steps_under(1, 0) == "pdpdpdpdpdpd");
  CHECK(steps_under(3, 0) == "pdddpdddpddd");
  CHECK(steps_under(0, 1) == "pdpdpdpdpdpd");
  CHECK(steps_under(0, 3) == "pppdpppdpppd");
  CHECK(steps_under(2, 3) == "pppddpppddpp");
  CHECK_FALSE(may_prefill(0, 3, 4, 0));
  CHECK(may_prefill(0, 4, 4, 0));
  CHECK_FALSE(may_prefill(1, 0, 4, 0));
  CHECK_FALSE(may_prefill(7, 0, 4, 0));
}

TEST_CASE("the smallest bucket that fits is taken") {
  CHECK(bucket_for({1, 2, 4, 8}, 3) == 4);
  CHECK(bucket_for({1, 2, 4, 8}, 8) == 8);
  CHECK(bucket_for({1, 2, 4, 8}, 9) == 0);
  CHECK(bucket_for({}, 1) == 0);
}

TEST_CASE("who gives way: each rule has a strict order, equals go by arrival") {
  const victim_candidate old{
    .priority = 2, .arrival = 1, .outputs = 9, .recompute = 30, .blocks = 3};
  const victim_candidate young{
    .priority = 1, .arrival = 2, .outputs = 4, .recompute = 20, .blocks = 1};
  CHECK(goes_first(victim_rule::youngest, young, old));
  CHECK(goes_first(victim_rule::longest_output, old, young));
  CHECK(goes_first(victim_rule::lowest_priority, young, old));
  CHECK(goes_first(victim_rule::lowest_cost, old, young));  // 10 tokens a block, not 20
  auto nothing = old;
  nothing.blocks = 0;
  CHECK(goes_first(victim_rule::lowest_cost, young, nothing));
  auto busy = young;
  busy.references = 2;
  busy.arrival = 3;
  CHECK(goes_first(victim_rule::lowest_cost, young, busy));
  for (const auto rule : {victim_rule::youngest, victim_rule::longest_output,
                          victim_rule::lowest_cost, victim_rule::lowest_priority}) {
    auto twin = old;
    twin.arrival = 5;
    CHECK(goes_first(rule, twin, old));
    CHECK_FALSE(goes_first(rule, old, twin));
    CHECK_FALSE(goes_first(rule, old, old));
  }
}

TEST_CASE("a source is fresh for a chunk, the row of the newest launched step, or the slot [I26]") {
  struct source_case {
    const char* name;
    last_place place;
    row_kind kind;
    std::int32_t source;
  };
  const source_case table[] = {
    {"chunk", {{7}, 0, 2, true}, row_kind::prefill, from_fresh},
    {"sampled in the newest step", {{7}, 0, 2, true}, row_kind::decode, 2},
    {"skipped the newest step", {{6}, 0, 2, true}, row_kind::decode, from_slot},
    {"of an older epoch", {{7}, 3, 2, true}, row_kind::decode, from_slot},
    {"not sampled there", {{7}, 0, 2, false}, row_kind::decode, from_slot},
  };
  for (const auto& row : table) {
    CAPTURE(row.name);
    CHECK(source_of(row.place, row.kind, 0, {7}) == row.source);
  }
}

TEST_CASE("a remap that names a row twice, another sequence's row or one not sampled is refused "
          "[I26]") {
  auto newest = empty_plan(4);
  add_row(newest, 1, row_kind::decode, from_slot, 1);
  add_row(newest, 2, row_kind::prefill, from_fresh, 0);
  auto good = empty_plan(5);
  add_row(good, 3, row_kind::decode, from_slot, 1);
  add_row(good, 1, row_kind::decode, 0, 1);
  add_row(good, 4, row_kind::prefill, from_fresh, 1);
  CHECK(test::death_message([&] { check_remap(good, newest); }).empty());
  struct bad_case {
    std::uint64_t sequence;
    std::int32_t source;
    const char* said;
  };
  const bad_case table[] = {{1, 0, "row 0 of step 4 is named twice"},
                            {2, 1, "row 1 of step 4 was not sampled"},
                            {3, 1, "is sequence 3, its source 2"},
                            {3, 2, "names row 2 of 2"}};
  for (const auto& row : table) {
    auto bad = good;
    add_row(bad, row.sequence, row_kind::decode, row.source, 1);
    CAPTURE(row.said);
    CHECK(test::death_message([&] { check_remap(bad, newest); }).find(row.said) !=
          std::string::npos);
  }
}
