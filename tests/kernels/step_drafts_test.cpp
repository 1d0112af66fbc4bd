// Step kernels that split, store and make drafts.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/step/ngram_drafts.hpp"
#include "kernels/step/split_width.hpp"
#include "kernels/step/store_drafts.hpp"
#include "step_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

inline_team team;
const stream_ref stream{&team, nullptr};

/// Rows 0 .. n - 1 sit in slots 0 .. n - 1 unless a test says otherwise.
struct split_case {
  split_case(std::int32_t rows, std::int32_t drafts) : before(rows, drafts), slots(rows, drafts) {
    for (std::int32_t row = 0; row < rows; ++row) {
      source.push_back(row_from_slot);
      slot.push_back(row);
      width.push_back(1 + drafts);
    }
  }
  /// The widths of a step of `tokens`.
  ints run(std::int32_t tokens) {
    const auto rows = static_cast<std::int32_t>(source.size());
    std::vector<float> survival(source.size());
    ints heap(source.size()), begin(source.size() + 1, -7);
    split_width_ref(stream, {source.data(), slot.data(), width.data(), rows, tokens, before.view(),
                             slots.view(), survival.data(), heap.data(), begin.data()});
    ints widths;
    for (std::size_t row = 0; row < source.size(); ++row)
      widths.push_back(begin[row + 1] - begin[row]);
    return widths;
  }
  ints source, slot, width;
  places before, slots;
};

/// By the words of the contract: all drafts in one list, sorted, the first ones taken.
ints split_by_sorting(split_case& c, std::int32_t tokens) {
  struct entry {
    float survival;
    std::int32_t row, draft;
  };
  std::vector<entry> all;
  ints widths;
  for (std::size_t row = 0; row < c.source.size(); ++row) {
    const bool is_row = c.source[row] >= 0;
    auto& from = is_row ? c.before : c.slots;
    const auto place = static_cast<std::size_t>(is_row ? c.source[row] : c.slot[row]);
    const bool is_alive = from.is_alive[place] != 0;
    widths.push_back(is_alive ? 1 : 0);
    if (!is_alive) continue;
    auto most = c.width[row] - 1;
    if (c.source[row] != row_from_fresh) most = std::min(most, from.draft_count[place]);
    float survival = 1;
    for (std::int32_t j = 0; j < most; ++j) {
      if (j < from.draft_count[place])
        survival *= from.confidence[place * static_cast<std::size_t>(from.drafts_max) +
                                    static_cast<std::size_t>(j)];
      all.push_back({survival, static_cast<std::int32_t>(row), j});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const entry& left, const entry& right) {
    return left.survival != right.survival ? left.survival > right.survival : left.row < right.row;
  });
  const auto taken =
    std::min<std::size_t>(all.size(), static_cast<std::size_t>(tokens) - c.source.size());
  for (std::size_t i = 0; i < taken; ++i) ++widths[static_cast<std::size_t>(all[i].row)];
  return widths;
}

}  // namespace

TEST_CASE("split_width: without a shortage each row has what it can use, ended rows nothing") {
  split_case c(5, 3);
  c.slots.set(0, 1, 1, {1, 2, 3}, {0, 0, 0});
  c.slots.set(1, 1, 1, {1}, {0});
  c.slots.set(2, 1, 1, {}, {});
  c.slots.set(3, 1, 1, {1, 2, 3}, {1, 1, 1}, 0);
  c.slots.set(4, 1, 1, {}, {});
  c.source[4] = row_from_fresh;  // its ids are the host's
  c.width[4] = 17;
  CHECK(c.run(33) == ints{4, 2, 1, 0, 17});
  c.width[0] = 2;
  CHECK(c.run(31) == ints{2, 2, 1, 0, 17});
}

TEST_CASE("split_width: the likeliest prefixes get what a step has left, ties the lower row") {
  split_case c(3, 2);
  c.slots.set(0, 1, 1, {1, 2}, {0.5f, 1.0f});
  c.slots.set(1, 1, 1, {1, 2}, {0.9f, 0.1f});
  c.slots.set(2, 1, 1, {1, 2}, {0.5f, 0.99f});
  CHECK(c.run(3) == ints{1, 1, 1});
  CHECK(c.run(4) == ints{1, 2, 1});
  CHECK(c.run(5) == ints{2, 2, 1});
  CHECK(c.run(6) == ints{3, 2, 1});  // 0.5 * 1.0 ties with row 2's first draft
  CHECK(c.run(7) == ints{3, 2, 2});
  CHECK(c.run(8) == ints{3, 2, 3});  // 0.495 against 0.09
  CHECK(c.run(9) == ints{3, 3, 3});
}

TEST_CASE("split_width: confidences that are not there count 1; a row's come from its row") {
  split_case c(3, 3);
  for (std::int32_t slot = 0; slot < 3; ++slot) c.slots.set(slot, 1, 1, {1, 2, 3}, {0, 0, 0});
  c.before.set(2, 1, 1, {1, 2, 3}, {0.8f, 0.8f, 0.8f});
  c.source = {row_from_slot, 2, row_from_fresh};
  c.slots.set(2, 1, 1, {}, {});
  c.width[2] = 3;
  CHECK(c.run(5) == ints{1, 1, 3});
  CHECK(c.run(7) == ints{1, 3, 3});
}

TEST_CASE("split_width: equal to sorting all drafts, at random") {
  std::mt19937 random(7);
  const auto below = [&random](std::int32_t n) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(n));
  };
  for (std::int32_t round = 0; round < 500; ++round) {
    CAPTURE(round);
    const auto rows = 1 + below(9), drafts = below(6);
    split_case c(rows, drafts);
    std::int32_t planned = 0;
    for (std::int32_t row = 0; row < rows; ++row) {
      for (auto* columns : {&c.before, &c.slots}) {
        const ints known(static_cast<std::size_t>(below(drafts + 1)), 3);
        std::vector<float> chances;
        for (std::size_t j = 0; j < known.size(); ++j)
          chances.push_back(static_cast<float>(below(4)) / 3.0f);
        columns->set(row, 1, 1, known, chances, below(8) == 0 ? 0 : 1);
      }
      const auto i = static_cast<std::size_t>(row);
      c.source[i] = below(3) == 0 ? row_from_fresh : below(2) == 0 ? row_from_slot : below(rows);
      c.slot[i] = rows - 1 - row;
      c.width[i] = 1 + below(drafts + 1);
      planned += c.width[i];
    }
    const auto tokens = rows + below(planned - rows + 1);
    CHECK(c.run(tokens) == split_by_sorting(c, tokens));
  }
}

TEST_CASE("store_drafts: row and slot get the same, any id and confidence made legal [I27][I29]") {
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  const ints row{2, 0}, slot{1, -1}, id{5, 99, -1, 4, 4, 4};
  const std::vector<float> confidence{0.5f, nan, 1.5f, 1, 1, 1};
  places after(3, 3), slots(2, 3);
  store_drafts_ref(stream, {row.data(), slot.data(), 2, 99, id.data(), confidence.data(),
                            after.view(), slots.view()});
  CHECK(after.drafts == ints{-1, -1, -1, -7, -7, -7, 5, 0, 0});
  CHECK(after.confidence == std::vector<float>{0, 0, 0, -7, -7, -7, 0.5f, 0, 1});
  CHECK(slots.drafts == ints{-7, -7, -7, 5, 0, 0});
  CHECK(slots.confidence == std::vector<float>{-7, -7, -7, 0.5f, 0, 1});
  CHECK(after.draft_count == ints{-7, -7, 3});
  CHECK(slots.draft_count == ints{-7, 3});
  store_drafts_ref(
    stream, {row.data(), slot.data(), 1, 99, id.data(), nullptr, after.view(), slots.view()});
  CHECK(slots.confidence == std::vector<float>{-7, -7, -7, 1, 1, 1});
}

namespace {

/// Drafts of one sequence, its history in blocks of three that lie backwards.
ints drafts_of(ints sequence, std::int32_t drafts) {
  const auto anchor = sequence.back();
  sequence.pop_back();
  const auto blocks = static_cast<std::int32_t>(sequence.size()) / 3 + 1;
  ints history(static_cast<std::size_t>(blocks * 3), -7), table;
  for (std::int32_t i = 0; i < blocks; ++i) table.push_back(blocks - 1 - i);
  for (std::size_t p = 0; p < sequence.size(); ++p)
    history[static_cast<std::size_t>(table[p / 3]) * 3 + p % 3] = sequence[p];
  const std::int32_t slot = 0, position = static_cast<std::int32_t>(sequence.size()) - 1;
  ints out(static_cast<std::size_t>(drafts), -7);
  ngram_drafts_ref(stream, {1, drafts, &slot, &position, &anchor, history.data(), table.data(),
                            blocks, 3, out.data()});
  return out;
}

/// The definition: for n = 3, 2, 1 the latest place, found by comparing slices.
ints drafts_by_slices(const ints& sequence, std::int32_t drafts) {
  const auto size = std::ssize(sequence);
  for (std::ptrdiff_t n = 3; n >= 1; --n)
    for (auto end = size - 1; end >= n; --end) {  // the match is [end - n, end)
      if (size < n) break;
      if (!std::equal(sequence.end() - n, sequence.end(), sequence.begin() + end - n)) continue;
      ints out;
      for (std::ptrdiff_t j = 0; j < drafts; ++j)
        out.push_back(sequence[static_cast<std::size_t>(std::min(end + j, size - 1))]);
      return out;
    }
  return ints(static_cast<std::size_t>(drafts), sequence.back());
}

}  // namespace

TEST_CASE("ngram_drafts: what followed the latest of the longest matches, else the last id") {
  CHECK(drafts_of({1, 2, 3, 4, 9, 2, 3}, 2) == ints{4, 9});
  CHECK(drafts_of({1, 2, 3, 4, 9, 3, 7, 2, 3}, 2) == ints{4, 9});     // two ids beat the later one
  CHECK(drafts_of({2, 3, 4, 2, 3, 5, 2, 3}, 1) == ints{5});           // the later of two equal ones
  CHECK(drafts_of({1, 2, 3, 5, 7, 2, 3, 6, 1, 2, 3}, 1) == ints{5});  // three ids beat two
  CHECK(drafts_of({4, 4}, 3) == ints{4, 4, 4});                       // runs into its own end
  CHECK(drafts_of({1, 2, 1, 2}, 3) == ints{1, 2, 2});
  CHECK(drafts_of({1, 2, 3}, 2) == ints{3, 3});
}

TEST_CASE("ngram_drafts: equal to comparing slices, at random") {
  std::mt19937 random(11);
  for (std::int32_t round = 0; round < 500; ++round) {
    ints sequence(2 + random() % 40);
    for (auto& id : sequence) id = static_cast<std::int32_t>(random() % 4);
    CAPTURE(round);
    CHECK(drafts_of(sequence, 5) == drafts_by_slices(sequence, 5));
  }
}

TEST_CASE("draft kernels: zero rows touch nothing, a row without a slot gets no drafts") {
  split_width_ref(stream, {});
  store_drafts_ref(stream, {});
  ngram_drafts_ref(stream, {});
  const std::int32_t slot = -1, position = -1, anchor = -1;
  ints out(2, -7);
  ngram_drafts_ref(stream, {1, 2, &slot, &position, &anchor, nullptr, nullptr, 0, 1, out.data()});
  CHECK(out == ints{-1, -1});
}
