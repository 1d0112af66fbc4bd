#include <doctest/doctest.h>

#include <vector>

#include "kernels/step/advance_slots.hpp"
#include "kernels/step/append_blocks.hpp"
#include "kernels/step/draft_tokens.hpp"
#include "kernels/step/fix_rows.hpp"
#include "kernels/step/start_slots.hpp"
#include "kernels/step/store_tokens.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;
using ints = std::vector<std::int32_t>;

namespace {

inline_team team;
const stream_ref stream{&team, nullptr};

/// Four rows: a fresh chunk of three, one carried from a row, one from its slot, one fresh token.
struct rows_case {
  ints source{row_from_fresh, 2, row_from_slot, row_from_fresh};
  ints slot{3, 0, 1, 2};
  ints planned{4, 99, 99, 0};  // bounds where the row is carried: must not be read
  ints token_begin{0, 3, 4, 5, 6};
  ints fresh_begin{0, 3, 3, 3};
  ints fresh{70, 71, 72, 73};
  ints sampled{-1, -1, 55};
  ints length{9, 12, 0, 4};
  ints newest{55, 56, -1, -1};  // slot 0 holds what row 2 sampled
  ints yield_row{0, 2}, yield_position = ints(2, -7);
  ints next = ints(4, -7), id = ints(6, -7), token_slot = ints(6, -7), position = ints(6, -7),
       row_token = ints(6, -7), row_first = ints(6, -7);

  void run() {
    fix_rows_args args;
    args.source = source.data();
    args.slot = slot.data();
    args.planned = planned.data();
    args.token_begin = token_begin.data();
    args.fresh_begin = fresh_begin.data();
    args.fresh = fresh.data();
    args.sampled = sampled.data();
    args.length = length.data();
    args.newest = newest.data();
    args.rows = static_cast<std::int32_t>(source.size());
    args.yield_row = yield_row.data();
    args.yields = args.rows > 0 ? 2 : 0;
    args.yield_position = yield_position.data();
    args.next_position = next.data();
    args.token_id = id.data();
    args.token_slot = token_slot.data();
    args.token_position = position.data();
    args.row_token = row_token.data();
    args.row_first = row_first.data();
    fix_rows_ref(stream, args);
  }
};

}  // namespace

TEST_CASE("fix_rows: a row is fresh, or from exactly one row or slot [I26]") {
  rows_case rows;
  rows.run();
  CHECK(rows.id == ints{70, 71, 72, 55, 56, 73});
  CHECK(rows.token_slot == ints{3, 3, 3, 0, 1, 2});
  CHECK(rows.row_token == ints{0, 0, 0, 3, 4, 5});
}

TEST_CASE("fix_rows: a carried row stands at its slot's true length, whatever the host planned") {
  rows_case rows;
  rows.run();
  CHECK(rows.position == ints{4, 5, 6, 9, 12, 0});
  CHECK(rows.row_first == ints{4, 4, 4, 9, 12, 0});
  CHECK(rows.next == ints{7, 10, 13, 1});
  CHECK(rows.yield_position == ints{7, 13});
}

TEST_CASE("start_slots resets exactly the named slots") {
  ints slot{2, 0}, length{5, 6, 7}, newest{50, 60, 70}, tables(6, 8);
  std::vector<slot_sampling> staged(2), params(3);
  staged[0].seed = 22;
  staged[1].seed = 11;
  params[1].seed = 99;
  start_slots_ref(stream, {.slot = slot.data(),
                           .sampling = staged.data(),
                           .starts = 2,
                           .length = length.data(),
                           .newest = newest.data(),
                           .slot_params = params.data(),
                           .tables = tables.data(),
                           .table_stride = 2});
  CHECK(length == ints{0, 6, 0});
  CHECK(newest == ints{-1, 60, -1});
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

TEST_CASE("advance_slots moves every row's length, and the newest id of rows that yield") {
  ints slot{3, 0, 2}, next{7, 10, 5}, yield_row{1, 2}, id{42, -1}, sampled(3, -7);
  ints length{9, 1, 4, 4}, newest{50, 51, 52, 53};
  advance_slots_ref(stream, {.slot = slot.data(),
                             .next_position = next.data(),
                             .rows = 3,
                             .yield_row = yield_row.data(),
                             .id = id.data(),
                             .yields = 2,
                             .sampled = sampled.data(),
                             .length = length.data(),
                             .newest = newest.data()});
  CHECK(length == ints{10, 1, 5, 7});
  CHECK(newest == ints{42, 51, 0, 53});  // a failed row is carried as id 0
  CHECK(sampled == ints{-1, 42, 0});
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

TEST_CASE("step ops: zero rows touch nothing") {
  start_slots_ref(stream, {});
  append_blocks_ref(stream, {});
  fix_rows_ref(stream, {});
  store_tokens_ref(stream, {});
  advance_slots_ref(stream, {});
  draft_tokens_ref(stream, {});
  rows_case rows;
  rows.source.clear();
  rows.run();
  CHECK(rows.id == ints(6, -7));
}
