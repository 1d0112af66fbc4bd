#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "runtime/core/admission.hpp"
#include "runtime/core/batch_policy.hpp"
#include "runtime/core/remap.hpp"
#include "runtime/core/sequence_state.hpp"
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
    {nullptr, {7}, 1}, {nullptr, {5}, 2}, {nullptr, {6}, 3}, {nullptr, {5}, 4}};
  auto all = rows;
  choose_decodes(all, 4);
  CHECK(all[0].order == 1);
  CHECK(all[3].order == 4);
  auto three = rows;
  choose_decodes(three, 3);
  REQUIRE(three.size() == 3);
  CHECK(three[0].order == 2);
  CHECK(three[1].order == 4);
  CHECK(three[2].order == 3);
  choose_decodes(rows, 0);
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

TEST_CASE("what is promised or parked behind an unsettled fence cannot be promised again, and "
          "comes back at the fence [I07]") {
  promise_book book(10, 2);
  book.promise(6);
  CHECK(book.unpromised() == 4);
  CHECK(book.free_slots() == 1);
  book.promise(3);
  CHECK(book.free_slots() == 0);
  book.keep(6);  // the first has ended holding 5 blocks and its slot, named by step 4
  book.park({4}, 5, 1);
  CHECK(book.unpromised() == 2);
  CHECK(book.free_slots() == 0);
  CHECK_FALSE(book.settle({3}));
  CHECK(book.settle({4}));
  CHECK(book.unpromised() == 7);
  CHECK(book.free_slots() == 1);
  book.reset();
  CHECK(book.unpromised() == 10);
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
