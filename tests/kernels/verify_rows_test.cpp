// Acceptance: which ids stand, and the classical rule's distribution.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "kernels/sampling/verify_rows.hpp"
#include "step_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

inline_team team;
const stream_ref stream{&team, nullptr};

struct verified {
  ints given, is_alive;
};

struct verify_case {
  ints query_begin, slot, position, draft, id;
  std::vector<slot_sampling> sampling;

  verified run(bool stops) const {
    const auto rows = query_begin.size() - 1;
    verified out{ints(rows, -7), ints(rows, -7)};
    verify_rows_ref(stream, {query_begin.data(), slot.data(), position.data(), draft.data(),
                             id.data(), sampling.data(), static_cast<std::int32_t>(rows), stops,
                             out.given.data(), out.is_alive.data()});
    return out;
  }
};

/// One row: drafts, chosen ids, position of the first one produced.
verify_case one_row(ints drafts, ints ids, std::int32_t first, const slot_sampling& sampling) {
  verify_case c;
  c.query_begin = {0, static_cast<std::int32_t>(ids.size())};
  drafts.resize(ids.size(), -1);
  for (std::size_t j = 0; j < ids.size(); ++j) {
    c.slot.push_back(0);
    c.position.push_back(first + static_cast<std::int32_t>(j));
  }
  c.draft = std::move(drafts);
  c.id = std::move(ids);
  c.sampling = {sampling};
  return c;
}

}  // namespace

TEST_CASE("verify_rows: drafts are accepted while they are what was chosen; one id more stands") {
  const slot_sampling any;
  const auto given = [&](ints drafts, ints ids) {
    return one_row(std::move(drafts), std::move(ids), 10, any).run(false).given.front();
  };
  CHECK(given({5, 6, 7}, {5, 6, 7, 8}) == 4);
  CHECK(given({5, 6, 7}, {5, 6, 1, 8}) == 3);
  CHECK(given({5, 6, 7}, {5, 1, 7, 8}) == 2);  // a match behind a rejection means nothing
  CHECK(given({5, 6, 7}, {1, 6, 7, 8}) == 1);
  CHECK(given({}, {8}) == 1);
  CHECK(given({5}, {-1, 3}) == 1);   // a failed row
  CHECK(given({-1}, {-1, 3}) == 1);  // a failed id is no draft
  CHECK(given({}, {}) == 0);
}

TEST_CASE("verify_rows: the first id that ends the sequence is the last that stands [I36]") {
  slot_sampling s;
  s.prompt_tokens = 8;
  for (std::int32_t i = 0; i < s.inline_stop_ids; ++i) s.stop_ids[i] = 100 + i;
  const ints others{6, 7};
  s.more_stop_ids = others.data();
  s.stop_count = s.inline_stop_ids + 2;
  struct stop_case {
    std::int32_t first, min_tokens, output_limit, given, is_alive;
  };
  // Ids 5, 6, 7, 8 with all drafts right; 6 and 7 are stop ids. Outputs begin at position 8.
  const stop_case table[] = {
    {8, 0, 0, 2, 0},  // 6 ends it
    {8, 1, 0, 2, 0},  // output 1 may be a stop id from min_tokens 1 on
    {8, 2, 0, 3, 0},  // but not with 2: then 7 ends it
    {8, 9, 0, 4, 1},  // none does
    {8, 9, 4, 4, 0},  // the fourth output is the last
    {8, 9, 3, 3, 0},   {8, 9, 1, 1, 0},
    {8, 9, 5, 4, 1},   {18, 0, 11, 1, 0},  // the limit comes before the stop id
    {18, 0, 12, 2, 0},
  };
  for (const auto& row : table) {
    CAPTURE(row.first);
    CAPTURE(row.min_tokens);
    CAPTURE(row.output_limit);
    s.min_tokens = row.min_tokens;
    s.output_limit = row.output_limit;
    const auto c = one_row({5, 6, 7}, {5, 6, 7, 8}, row.first, s);
    const auto stops = c.run(true);
    CHECK(stops.given == ints{row.given});
    CHECK(stops.is_alive == ints{row.is_alive});
    const auto runs_on = c.run(false);
    CHECK(runs_on.given == ints{4});
    CHECK(runs_on.is_alive == ints{1});
  }
  CHECK(one_row({5}, {9, 6}, 8, {.stop_count = 0}).run(true).is_alive == ints{1});
  CHECK(one_row({5, 6}, {5, -1, 7}, 8, {.stop_count = 0}).run(true).given == ints{2});
  CHECK(one_row({5, 6}, {5, -1, 7}, 8, {.stop_count = 0}).run(true).is_alive == ints{0});
  CHECK(one_row({5, 6}, {5, -1, 7}, 8, {.stop_count = 0}).run(false).is_alive == ints{1});
}

TEST_CASE("verify_rows: equal to a plain loop over random rows of every length") {
  std::mt19937 random(3);
  const auto below = [&random](std::int32_t n) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(n));
  };
  for (std::int32_t round = 0; round < 300; ++round) {
    CAPTURE(round);
    verify_case c;
    c.query_begin = {0};
    ints expected;
    const auto rows = below(8);
    for (std::int32_t row = 0; row < rows; ++row) {
      const auto size = below(6);
      std::int32_t given = 0;
      bool runs = true;
      for (std::int32_t j = 0; j < size; ++j) {
        c.slot.push_back(row);
        c.position.push_back(20 + j);
        c.id.push_back(below(3));
        c.draft.push_back(j + 1 < size ? below(3) : -1);
        if (runs) ++given;
        runs = runs && c.id.back() == c.draft.back();
      }
      expected.push_back(given);
      c.query_begin.push_back(static_cast<std::int32_t>(c.id.size()));
      c.sampling.emplace_back();
    }
    CHECK(c.run(false).given == expected);
  }
}

TEST_CASE("verify_rows: zero rows is a legal call") {
  verify_rows_ref(stream, {});
}
