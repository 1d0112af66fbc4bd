#include <doctest/doctest.h>

#include <vector>

#include "kernels/step/advance_slots.hpp"
#include "kernels/step/append_blocks.hpp"
#include "kernels/step/draft_tokens.hpp"
#include "kernels/step/fix_rows.hpp"
#include "kernels/step/list_queries.hpp"
#include "kernels/step/start_slots.hpp"
#include "kernels/step/store_tokens.hpp"
#include "step_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

inline_team team;
const stream_ref stream{&team, nullptr};

/// Six rows: a fresh chunk of three, one carried from a row with two drafts, one from its slot with
/// one of three, a fresh token, a carried row without drafts, one that has ended.
struct rows_case {
  ints source{row_from_fresh, 2, row_from_slot, row_from_fresh, row_from_slot, row_from_slot};
  ints slot{3, 0, 1, 2, 4, 5};
  ints planned{4, 99, 99, 0, 99, 99};  // bounds where the row is carried: must not be read
  ints row_begin{0, 3, 6, 8, 9, 10, 10};
  ints fresh_begin{0, 3, 3, 3, 4, 4};
  ints fresh{70, 71, 72, 73};
  places before{3, 3}, slots{6, 3};
  std::int32_t rows = 6, tokens = 12;
  ints first = ints(6, -7), id = ints(12, -7), token_slot = ints(12, -7), position = ints(12, -7),
       row_token = ints(12, -7), row_first = ints(12, -7);

  rows_case() {
    before.set(2, 9, 55, {31, 32}, {0.5f, 0.25f});
    slots.set(0, 9, 55, {31, 32}, {0.5f, 0.25f});  // slot 0 holds what row 2 left
    slots.set(1, 12, 56, {41, 42, 43}, {1, 1, 1});
    slots.set(4, 20, 57, {}, {});
    slots.set(5, 30, 58, {1}, {1}, 0);
  }
  void run() {
    fix_rows_args args;
    args.source = source.data();
    args.slot = slot.data();
    args.planned = planned.data();
    args.row_begin = row_begin.data();
    args.fresh_begin = fresh_begin.data();
    args.fresh = fresh.data();
    args.before = before.view();
    args.slots = slots.view();
    args.rows = rows;
    args.tokens = tokens;
    args.first_position = first.data();
    args.token_id = id.data();
    args.token_slot = token_slot.data();
    args.token_position = position.data();
    args.row_token = row_token.data();
    args.row_first = row_first.data();
    fix_rows_ref(stream, args);
  }
};

}  // namespace

TEST_CASE("fix_rows: a row is fresh, or from exactly one row or slot, drafts and all [I26][I29]") {
  rows_case rows;
  rows.run();
  CHECK(rows.id == ints{70, 71, 72, 55, 31, 32, 56, 41, 73, 57, -1, -1});
  CHECK(rows.token_slot == ints{3, 3, 3, 0, 0, 0, 1, 1, 2, 4, -1, -1});
  CHECK(rows.row_token == ints{0, 0, 0, 3, 3, 3, 6, 6, 8, 9, 10, 11});
}

TEST_CASE("fix_rows: a carried row stands at its true length, whatever the host planned [I31]") {
  rows_case rows;
  rows.run();
  CHECK(rows.position == ints{4, 5, 6, 9, 10, 11, 12, 13, 0, 20, -1, -1});
  CHECK(rows.row_first == ints{4, 4, 4, 9, 9, 9, 12, 12, 0, 20, -1, -1});
  CHECK(rows.first == ints{4, 9, 12, 0, 20, 30});
}

TEST_CASE("fix_rows: a row reads the row it names, a slot only where it says so") {
  rows_case rows;
  rows.source[2] = 0;
  rows.before.set(0, 12, 56, {41, 42, 43}, {1, 1, 1});
  rows.run();
  CHECK(rows.id == ints{70, 71, 72, 55, 31, 32, 56, 41, 73, 57, -1, -1});
}

TEST_CASE("list_queries: all tokens of a decode row, the last of a final chunk, none of others") {
  // Rows of a step: a decode row of 3, a chunk of 2, a final chunk of 2, an ended one, one of 1.
  const ints slot{5, 6, 7, 8, 9}, row_begin{0, 3, 5, 7, 7, 8}, first{10, 0, 20, 30, 40};
  const ints token_id{100, 101, 102, 103, 104, 105, 106, 107};
  const ints row{0, 1, 2, 3, 4};
  const std::vector<row_asks> asks{row_asks::all_tokens, row_asks::nothing, row_asks::last_token,
                                   row_asks::all_tokens, row_asks::all_tokens};
  ints begin(6, -7), token(7, -7), query_slot(7, -7), position(7, -7), draft(7, -7);
  list_queries_ref(stream, {row.data(), asks.data(), 5, 7, slot.data(), row_begin.data(),
                            first.data(), token_id.data(), begin.data(), token.data(),
                            query_slot.data(), position.data(), draft.data()});
  CHECK(begin == ints{0, 3, 3, 4, 4, 5});
  CHECK(token == ints{0, 1, 2, 6, 7, -1, -1});
  CHECK(query_slot == ints{5, 5, 5, 7, 9, -1, -1});
  CHECK(position == ints{11, 12, 13, 22, 41, 0, 0});
  CHECK(draft == ints{101, 102, -1, -1, -1, -1, -1});
}

TEST_CASE("list_queries: a group is some rows of the step; an ended final chunk asks for nothing") {
  const ints slot{5, 6, 7}, row_begin{0, 2, 2, 4}, first{10, 20, 30}, token_id{1, 2, 3, 4};
  const ints row{1, 2};
  const std::vector<row_asks> asks{row_asks::last_token, row_asks::all_tokens};
  ints begin(3, -7), token(2, -7), query_slot(2, -7), position(2, -7), draft(2, -7);
  list_queries_ref(stream, {row.data(), asks.data(), 2, 2, slot.data(), row_begin.data(),
                            first.data(), token_id.data(), begin.data(), token.data(),
                            query_slot.data(), position.data(), draft.data()});
  CHECK(begin == ints{0, 0, 2});
  CHECK(token == ints{2, 3});
  CHECK(query_slot == ints{7, 7});
  CHECK(position == ints{31, 32});
  CHECK(draft == ints{4, -1});
}

TEST_CASE("start_slots resets exactly the named slots, to the position they start at") {
  ints slot{2, 0}, position{64, 0}, tables(6, 8);
  places slots(3, 2);
  for (std::int32_t i = 0; i < 3; ++i) slots.set(i, 5 + i, 50 + i, {1, 2}, {1, 1}, i % 2);
  std::vector<slot_sampling> staged(2), params(3);
  staged[0].seed = 22;
  staged[1].seed = 11;
  params[1].seed = 99;
  start_slots_ref(stream, {.slot = slot.data(),
                           .position = position.data(),
                           .sampling = staged.data(),
                           .starts = 2,
                           .slots = slots.view(),
                           .slot_params = params.data(),
                           .tables = tables.data(),
                           .table_stride = 2});
  CHECK(slots.length == ints{0, 6, 64});
  CHECK(slots.newest == ints{-1, 51, -1});
  CHECK(slots.is_alive == ints{1, 1, 1});
  CHECK(slots.draft_count == ints{0, 2, 0});
  CHECK(tables == ints{-1, -1, 8, 8, -1, -1});
  CHECK(params[0].seed == 11);
  CHECK(params[1].seed == 99);
  CHECK(params[2].seed == 22);
}

TEST_CASE("append_blocks writes a row's blocks at its ordinals and nothing else") {
  ints slot{1, 0, 2}, table_begin{1, 2, 0}, block_begin{0, 2, 2, 3}, blocks{40, 41, 42};
  ints tables(9, -1);
  append_blocks_ref(stream, {.slot = slot.data(),
                             .table_begin = table_begin.data(),
                             .block_begin = block_begin.data(),
                             .blocks = blocks.data(),
                             .rows = 3,
                             .tables = tables.data(),
                             .table_stride = 3});
  CHECK(tables == ints{-1, -1, -1, -1, 40, 41, 42, -1, -1});
}

TEST_CASE("store_tokens puts ids where the block table says, and drops padding") {
  ints id{10, 11, 12, 13, 14}, slot{0, 0, 1, -1, 1}, position{1, 2, 5, 0, -1};
  ints tables{2, 0, -1, 1, -1, 3}, history(8, -1);
  store_tokens_ref(stream, {.id = id.data(),
                            .slot = slot.data(),
                            .position = position.data(),
                            .tokens = 5,
                            .tables = tables.data(),
                            .table_stride = 3,
                            .block_size = 2,
                            .history = history.data()});
  CHECK(history == ints{11, -1, -1, -1, -1, 10, -1, 12});
}

TEST_CASE("advance_slots: lengths end behind what stands, the last id given is the newest [I34]") {
  // A group of five of the step's six rows: a chunk of 2, a decode row of 3 that gave 2, a final
  // chunk of 4, a row that had ended, one that ended now; row 3 is not of the group.
  const ints row{0, 1, 2, 4, 5}, slot{3, 0, 2, 1, 4, 5}, row_begin{0, 2, 5, 9, 10, 10, 11};
  const ints first{5, 10, 20, 70, 30, 40};
  const ints query_begin{0, 0, 3, 4, 4, 5}, position{11, 12, 13, 24, 41}, id{60, 61, 62, -1, 63};
  const ints given{0, 2, 1, 0, 1}, is_alive{1, 1, 1, 1, 0};
  places after(6, 2), slots(6, 2);
  for (std::int32_t i = 0; i < 6; ++i) slots.set(i, 1, 50 + i, {7, 8}, {1, 1});
  slots.set(4, 30, 54, {7, 8}, {1, 1}, 0);
  ints draft_slot(5, -7), draft_position(5, -7), anchor(5, -7);
  advance_slots_ref(stream, {.row = row.data(),
                             .rows = 5,
                             .slot = slot.data(),
                             .row_begin = row_begin.data(),
                             .first_position = first.data(),
                             .query_begin = query_begin.data(),
                             .position = position.data(),
                             .id = id.data(),
                             .given = given.data(),
                             .is_alive = is_alive.data(),
                             .after = after.view(),
                             .slots = slots.view(),
                             .draft_slot = draft_slot.data(),
                             .draft_position = draft_position.data(),
                             .anchor = anchor.data()});
  CHECK(slots.length == ints{12, 1, 24, 7, 30, 41});
  CHECK(slots.newest == ints{61, 51, 0, 53, 54, 63});  // a failed row is carried as id 0
  CHECK(slots.is_alive == ints{1, 1, 1, 1, 0, 0});
  CHECK(slots.draft_count == ints{0, 2, 0, 0, 0, 0});
  CHECK(after.length == ints{7, 12, 24, -7, 30, 41});
  CHECK(after.newest == ints{53, 61, 0, -7, 54, 63});
  CHECK(after.is_alive == ints{1, 1, 1, -7, 0, 0});
  CHECK(after.draft_count == ints{0, 0, 0, -7, 0, 0});
  CHECK(draft_slot == ints{-1, 0, 2, -1, -1});
  CHECK(draft_position == ints{-1, 11, 23, -1, -1});
  CHECK(anchor == ints{-1, 61, 0, -1, -1});
}

TEST_CASE("draft_tokens: the anchor, then noise, at the positions after the last known one") {
  ints slot{4, -1, 2}, position{9, 3, 0}, anchor{70, 71, 72};
  ints id(9, -7), token_slot(9, -7), token_position(9, -7), row_token(9, -7), row_first(9, -7);
  draft_tokens_ref(stream, {.sequences = 3,
                            .drafts = 3,
                            .slot = slot.data(),
                            .position = position.data(),
                            .anchor = anchor.data(),
                            .noise = 5,
                            .token_id = id.data(),
                            .token_slot = token_slot.data(),
                            .token_position = token_position.data(),
                            .row_token = row_token.data(),
                            .row_first = row_first.data()});
  CHECK(id == ints{70, 5, 5, 5, 5, 5, 72, 5, 5});  // the sequence without a slot is padding
  CHECK(token_slot == ints{4, 4, 4, -1, -1, -1, 2, 2, 2});
  CHECK(token_position == ints{10, 11, 12, -1, -1, -1, 1, 2, 3});
  CHECK(row_token == ints{0, 0, 0, 3, 3, 3, 6, 6, 6});
  CHECK(row_first == ints{10, 10, 10, -1, -1, -1, 1, 1, 1});
}

TEST_CASE("step ops: zero rows touch nothing but padding") {
  start_slots_ref(stream, {});
  append_blocks_ref(stream, {});
  fix_rows_ref(stream, {});
  store_tokens_ref(stream, {});
  list_queries_ref(stream, {});
  advance_slots_ref(stream, {});
  draft_tokens_ref(stream, {});
  rows_case rows;
  rows.rows = 0;
  rows.tokens = 2;
  rows.run();
  CHECK(rows.id == ints{-1, -1, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7});
  CHECK(rows.token_slot[1] == -1);
}
