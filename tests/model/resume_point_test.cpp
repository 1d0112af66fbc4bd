// Going on behind a cached block: the bits of a run that computed everything itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "model_fixture.hpp"
#include "runtime/model/resume_point.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t length = 33;
constexpr std::int32_t positions = 64;

/// Slot 0 computes everything, slot 1 goes on behind blocks of slot 0.
std::unique_ptr<model_session> session_of(const weights_ptr& weights, numeric_mode mode,
                                          std::int32_t block_size, std::int32_t stride) {
  return make_session(weights, {.numeric = mode,
                                .slots = 2,
                                .max_positions = positions,
                                .block_size = block_size,
                                .num_drafts = 3,
                                .draft_overhang = 3,
                                .with_draft = weights->config.has_draft(),
                                .prefix_cache = true,
                                .resume_stride = stride});
}

/// Feeds ids [from, to) of `all` to `slot` in chunks of `chunk`; logits of each.
std::vector<float> feed(model_session& session, std::int32_t slot, const ids& all,
                        std::int32_t from, std::int32_t to, std::int32_t chunk) {
  std::vector<float> made;
  for (; from < to; from += chunk) {
    const auto count = static_cast<std::size_t>(std::min(chunk, to - from));
    const session_row row{slot, from,
                          std::span(all).subspan(static_cast<std::size_t>(from), count)};
    REQUIRE(session.run(inline_stream(), {&row, 1}));
    const auto logits = session.logits(inline_stream());
    made.insert(made.end(), logits.begin(), logits.end());
  }
  return made;
}

/// Slot 1 is as if it had just been given to a sequence whose first blocks are those of slot 0:
/// whatever its rings held is poison.
void resume(model_session& session, std::int32_t position) {
  auto& state = session.state();
  const auto stride = state.layout.table_stride;
  const slot_id slot{1};
  const std::vector<std::int32_t> own(state.tables.data() + stride,
                                      state.tables.data() + 2 * stride);
  std::vector<block_id> blocks;
  for (const auto it : own) blocks.push_back(block_id{it});
  state.poison(blocks, {&slot, 1});
  std::copy(own.begin(), own.end(), state.tables.data() + stride);
  std::copy_n(state.tables.data(), position / state.layout.block_size,
              state.tables.data() + stride);
  load_resume_rows(inline_stream(), state, &slot.value, &position, 1);
}

/// Gives slot 1 its own blocks back.
void leave(model_session& session) {
  auto& state = session.state();
  const auto stride = state.layout.table_stride;
  for (std::int32_t i = 0; i < stride; ++i) state.tables[stride + i] = i * 2 + 1;
}

struct drafts_at {
  std::vector<token_id> ids;
  std::vector<float> confidence;
  bool operator==(const drafts_at&) const = default;
};

drafts_at draft(model_session& session, std::int32_t slot, std::int32_t position) {
  const token_id anchor = 17;
  auto made = *session.draft(inline_stream(), {&slot, 1}, {&position, 1}, {&anchor, 1}, 3);
  return {std::move(made.ids), std::move(made.confidence)};
}

std::span<const float> from_position(const std::vector<float>& logits, std::int32_t position,
                                     std::int32_t vocab) {
  return std::span(logits).subspan(static_cast<std::size_t>(position) *
                                   static_cast<std::size_t>(vocab));
}

/// Every resume point of a run in chunks of `cold` is resumed in chunks of `warm`.
void check_resumed(const weights_ptr& weights, numeric_mode mode, std::int32_t block_size,
                   std::int32_t stride, std::int32_t cold, std::int32_t warm) {
  CAPTURE(static_cast<int>(mode));
  CAPTURE(block_size);
  CAPTURE(stride);
  CAPTURE(cold);
  CAPTURE(warm);
  const auto vocab = weights->config.vocab_size;
  const auto all = random_ids(11, length, vocab);
  auto session = session_of(weights, mode, block_size, stride);
  const auto expected = feed(*session, 0, all, 0, length, cold);
  const bool has_draft = weights->config.has_draft();
  drafts_at expected_drafts;
  if (has_draft) expected_drafts = draft(*session, 0, length - 1);
  for (auto at = block_size * stride; at < length; at += block_size * stride) {
    CAPTURE(at);
    resume(*session, at);
    const auto found = feed(*session, 1, all, at, length, warm);
    const auto wanted = from_position(expected, at, vocab);
    CHECK(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()));
    if (has_draft) CHECK(draft(*session, 1, length - 1) == expected_drafts);
    leave(*session);
  }
}

}  // namespace

TEST_CASE("resumed = cold for every resume point, chunking and stride, drafts too, bit for bit") {
  for (const auto mode : all_modes) {
    const auto t1 = generated_t1({}, packing_of(mode));
    for (const std::int32_t block_size : {2, 4, 8, 16})
      for (const std::int32_t stride : {1, 2, 3})
        for (const auto& [cold, warm] : {std::pair{length, length}, {1, 1}, {7, 3}, {length, 1}})
          check_resumed(t1, mode, block_size, stride, cold, warm);
  }
}

TEST_CASE("resumed = cold on the trained model and on one without Engram or drafter") {
  for (const auto& [cold, warm] : {std::pair{length, length}, {1, 5}, {9, 1}}) {
    check_resumed(tiny_model(), numeric_mode::exact, 8, 1, cold, warm);
    check_resumed(tiny_model(), numeric_mode::exact, 4, 2, cold, warm);
    check_resumed(generated_t2(), numeric_mode::exact, 8, 1, cold, warm);
  }
}

TEST_CASE("resume points that rejected drafts have crossed are right once crossed for good") {
  const auto weights = generated_t1();
  const auto vocab = weights->config.vocab_size;
  const auto all = random_ids(12, length, vocab), wrong = random_ids(13, length, vocab);
  auto session = session_of(weights, numeric_mode::exact, 4, 1);
  const auto expected = feed(*session, 0, all, 0, length, length);
  const auto expected_drafts = draft(*session, 0, length - 1);
  for (std::int32_t i = 0; i < session->state().layout.table_stride; ++i) {
    const block_id block{i * 2};
    session->state().poison({&block, 1}, {});
  }
  // Decode rows of four, of which one to four ids stand; the others are garbage that is fed again.
  std::int32_t position = 0;
  for (std::int32_t row = 0; position < length; ++row) {
    const auto width = std::min(4, length - position), stands = std::min(1 + row * 7 % 4, width);
    ids rows(all.begin() + position, all.begin() + position + width);
    std::copy(wrong.begin() + position + stands, wrong.begin() + position + width,
              rows.begin() + stands);
    const session_row decode{0, position, rows};
    REQUIRE(session->run(inline_stream(), {&decode, 1}));
    position += stands;
  }
  for (std::int32_t at = 4; at < length; at += 4) {
    CAPTURE(at);
    resume(*session, at);
    const auto found = feed(*session, 1, all, at, length, 5);
    const auto wanted = from_position(expected, at, vocab);
    CHECK(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()));
    CHECK(draft(*session, 1, length - 1) == expected_drafts);
    leave(*session);
  }
}

TEST_CASE("a chunk that a cached prefix precedes keeps resume points of its own, for the next") {
  const auto weights = generated_t1();
  const auto vocab = weights->config.vocab_size;
  const auto all = random_ids(14, length, vocab);
  auto session = session_of(weights, numeric_mode::exact, 4, 1);
  const auto expected = feed(*session, 0, all, 0, length, length);
  // Slot 1 resumes at 12 and computes on to 24; its blocks then begin slot 0's next sequence.
  resume(*session, 12);
  feed(*session, 1, all, 12, 24, 12);
  auto& state = session->state();
  const auto stride = state.layout.table_stride;
  for (std::int32_t i = 0; i < stride; ++i) {
    const block_id block{i * 2};
    if (i >= 3) state.poison({&block, 1}, {});  // what slot 1 does not share
  }
  const slot_id slot{0};
  state.poison({}, {&slot, 1});
  for (std::int32_t i = 0; i < stride; ++i)
    state.tables[i] = i < 6 ? state.tables[stride + i] : i * 2;
  const std::int32_t first = 0, at = 24;
  load_resume_rows(inline_stream(), state, &first, &at, 1);
  const auto found = feed(*session, 0, all, at, length, 4);
  const auto wanted = from_position(expected, at, vocab);
  CHECK(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()));
}

TEST_CASE("a round trip through the host tier leaves every bit, poison in between") {
  const auto weights = generated_t1();
  runner_config sizes;
  sizes.depth = 1;
  sizes.num_drafts = sizes.draft_overhang = 3;
  sizes.max_num_seqs = sizes.state_slots = 2;
  sizes.max_num_batched_tokens = sizes.max_model_len = positions;
  sizes.num_kv_blocks = 3;
  sizes.block_size = 4;
  sizes.prefix_cache = true;
  sizes.host_blocks = 2;
  kv_state state(*make_kv_layout(weights->config, sizes, true));
  // Every byte of a block differs from its neighbours'.
  std::int64_t counter = 0;
  const auto fill = [&counter](auto& array) {
    for (auto& it : array.span())
      it = static_cast<std::remove_reference_t<decltype(it)>>(++counter);
  };
  for (auto& it : state.layers) fill(it.rows), fill(it.keys), fill(it.resume);
  fill(state.tokens);
  CHECK(counter * 4 == 3 * state.layout.block_bytes());
  const auto contents = [&state](std::int32_t block) {
    std::vector<float> made;
    const auto add = [&](const auto& array) {
      const auto each = array.size() / 3;
      for (auto i = each * block; i < each * (block + 1); ++i)
        made.push_back(static_cast<float>(array[i]));
    };
    for (const auto& it : state.layers) add(it.rows), add(it.keys), add(it.resume);
    add(state.tokens);
    return made;
  };
  const std::vector<float> before[] = {contents(0), contents(1), contents(2)};
  const kernels::block_copy out[] = {{0, 1, true}, {2, 0, true}};
  move_blocks(inline_stream(), state, out, 2);
  const block_id gone[] = {block_id{0}, block_id{2}};
  state.poison(gone, {});
  CHECK(contents(1) == before[1]);
  // Block 1 goes to the place that block 0 has come back from, in one step and this order.
  const kernels::block_copy back[] = {{2, 1, false}, {1, 1, true}, {1, 0, false}, {0, 1, false}};
  move_blocks(inline_stream(), state, back, 4);
  CHECK(contents(2) == before[0]);
  CHECK(contents(1) == before[2]);
  CHECK(contents(0) == before[1]);
}
