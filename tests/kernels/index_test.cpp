// The indexer: scores, the selected rows, the candidate blocks.
#include "attention_support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/common/formats.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const float inf = infinity;

struct scoring {
  std::int64_t heads = 5, dim = 20;
  std::int32_t ratio = 2;
  test_batch batch{3, 9, 8};
  floats query, weight, keys;
  named_twin<index_scores_args> scores;

  scoring(const named_twin<index_scores_args>& twin) : scores(twin) {
    batch.row(1, 0, 4).padding(2).row(2, 61, 3).row(0, 7, 1);
    query = noise(1, batch.tokens() * heads * dim);
    weight = noise(2, batch.tokens() * heads);
    keys = noise(3, batch.blocks() * 8 / ratio * dim);
  }

  const float* key(std::int64_t token, std::int64_t row) const {
    const auto block = batch.table[size(batch.slot[size(token)] * 9 + row / 4)];
    return keys.data() + (block * 4 + row % 4) * dim;
  }

  std::int64_t visible(std::int64_t token) const {
    if (batch.slot[size(token)] < 0 || batch.position[size(token)] < 0) return 0;
    return (batch.position[size(token)] + 1) / ratio;
  }

  floats run(const stream_ref& stream, std::int64_t first, std::int64_t count,
             std::int64_t row_limit, const ints& candidates = {}, bool bf16 = false) const {
    floats score(size(count * row_limit), 9);
    scores(stream, {.batch = batch.view(),
                    .ratio = ratio,
                    .first = first,
                    .count = count,
                    .query = query.data(),
                    .weight = weight.data(),
                    .weight_scale = .3F,
                    .keys = keys.data(),
                    .heads = heads,
                    .dim = dim,
                    .score = score.data(),
                    .row_limit = row_limit,
                    .candidates = candidates.empty() ? nullptr : candidates.data(),
                    .candidate_count = candidates.empty() ? 0 : 3,
                    .candidate_size = 4,
                    .bf16 = bf16});
    return score;
  }
};

}  // namespace

TEST_CASE("index_scores: visible rows get the weighted sum of positive products, others -inf") {
  for (const auto& twin : DI_TWINS(index_scores)) {
    CAPTURE(twin.name);
    const scoring s(twin);
    const auto tokens = s.batch.tokens();
    const auto score =
      on_every_team([&](const stream_ref& stream) { return s.run(stream, 0, tokens, 600); });
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t row = 0; row < 600; ++row) {
        const float got = score[size(t * 600 + row)];
        if (row >= s.visible(t)) {
          REQUIRE(got == -inf);
          continue;
        }
        double expected = 0;
        for (std::int64_t h = 0; h < s.heads; ++h) {
          double product = 0;
          for (std::int64_t d = 0; d < s.dim; ++d)
            product += double{s.query[size((t * s.heads + h) * s.dim + d)]} * s.key(t, row)[d];
          expected += .3 * s.weight[size(t * s.heads + h)] * std::max(product, 0.0);
        }
        CHECK(std::fabs(got - expected) < 2e-6);
      }
    // Made for any range of tokens, with any room, the bits are the same.
    const auto part = s.run({}, 6, 3, 40);
    for (std::int64_t t = 0; t < 3; ++t)
      CHECK(same_bits(rows_of(part, t, 1, 40),
                      floats(score.begin() + (6 + t) * 600, score.begin() + (6 + t) * 600 + 40)));
  }
}

TEST_CASE("index_scores: with candidates only rows inside the kept blocks are scored") {
  for (const auto& twin : DI_TWINS(index_scores)) {
    CAPTURE(twin.name);
    const scoring s(twin);
    ints candidates(size(s.batch.tokens() * 3), -1);
    const std::int64_t t = 7;  // sees 31 rows
    candidates[21] = 0;
    candidates[22] = 3;
    candidates[23] = 7;
    const auto all = s.run({}, t, 1, 33), masked = s.run({}, t, 1, 33, candidates);
    for (std::int64_t row = 0; row < 33; ++row) {
      const bool is_kept = row < 4 || (row >= 12 && row < 16) || row >= 28;
      CHECK(masked[size(row)] == (is_kept ? all[size(row)] : -inf));
    }
    CHECK(masked[30] > -inf);
    CHECK(masked[31] == -inf);
  }
}

TEST_CASE("index_scores: a candidate block across the border of two tiles is scored once, whole") {
  test_batch batch(1, 140, 8);
  batch.row(0, 1119, 1);
  const auto query = noise(1, 16), keys = noise(2, 1120 * 16);
  const floats weight{1};
  const ints candidates{0, 170, 341};  // rows 0..2, 510..512, 1023..1025: tiles hold 512 rows
  for (const auto& twin : DI_TWINS(index_scores)) {
    CAPTURE(twin.name);
    const auto run = [&](const stream_ref& stream, bool masked) {
      floats score(1120, 9);
      twin(stream, {.batch = batch.view(),
                    .first = 0,
                    .count = 1,
                    .query = query.data(),
                    .weight = weight.data(),
                    .keys = keys.data(),
                    .heads = 1,
                    .dim = 16,
                    .score = score.data(),
                    .row_limit = 1120,
                    .candidates = masked ? candidates.data() : nullptr,
                    .candidate_count = 3,
                    .candidate_size = 3});
      return score;
    };
    const auto all = run({}, false),
               masked = on_every_team([&](const stream_ref&s) { return run(s, true); });
    for (std::int32_t row = 0; row < 1120; ++row) {
      const auto block = row / 3;
      const bool is_kept = block == 0 || block == 170 || block == 341;
      REQUIRE(masked[size(row)] == (is_kept ? all[size(row)] : -inf));
    }
  }
}

TEST_CASE("index_scores, released: product, weighted product and sum are bf16 numbers") {
  for (const auto& twin : DI_TWINS(index_scores)) {
    CAPTURE(twin.name);
    const scoring s(twin);
    const auto exact = s.run({}, 8, 1, 32), rounded = s.run({}, 8, 1, 32, {}, true);
    const std::int64_t t = 8;
    for (std::int64_t row = 0; row < s.visible(t); ++row) {
      float sum = 0;
      for (std::int64_t h = 0; h < s.heads; ++h) {
        double product = 0;
        for (std::int64_t d = 0; d < s.dim; ++d)
          product += double{s.query[size((t * s.heads + h) * s.dim + d)]} * s.key(t, row)[d];
        const float kept = std::max(bf16_round(static_cast<float>(product)), 0.0F);
        sum += bf16_round(kept * bf16_round(s.weight[size(t * s.heads + h)] * .3F));
      }
      CHECK(rounded[size(row)] == bf16_round(sum));
    }
    CHECK(distance({rounded.begin(), rounded.begin() + 31},
                   floats(exact.begin(), exact.begin() + 31)) > 0);
  }
}

TEST_CASE("top_rows equals a stable sort for any k, with ties, -inf, both zeros and NaN") {
  const std::int64_t rows = 70;
  test_batch batch(2, 10, 8);
  batch.row(0, 0, 1).row(1, 69, 1).row(0, 40, 5).padding(2).row(1, 9, 8);
  const auto tokens = batch.tokens();
  auto score = noise(5, tokens * rows, 100);
  for (std::size_t i = 0; i < score.size(); ++i) {
    if (i % 3 == 0) score[i] = std::floor(score[i] / 30);
    if (i % 11 == 0) score[i] = -inf;
    if (i % 13 == 0) score[i] = i % 2 ? 0.0F : -0.0F;
    if (i % 17 == 0) score[i] = std::numeric_limits<float>::quiet_NaN();
    if (i % 19 == 0) score[i] = inf;
  }
  for (const auto& twin : DI_TWINS(top_rows)) {
    CAPTURE(twin.name);
    for (const std::int64_t k : {1, 2, 5, 16, 60, 100}) {
      CAPTURE(k);
      const auto selected = on_every_team([&](const stream_ref& stream) {
        ints out(size(tokens * k), 9);
        twin(stream, {.batch = batch.view(),
                      .first = 0,
                      .count = tokens,
                      .score = score.data(),
                      .row_limit = rows,
                      .k = k,
                      .selected = out.data()});
        return out;
      });
      for (std::int64_t t = 0; t < tokens; ++t) {
        const bool is_padding = batch.slot[size(t)] < 0 || batch.position[size(t)] < 0;
        ints order;
        for (std::int32_t row = 0; !is_padding && row <= batch.position[size(t)]; ++row)
          if (score[size(t * rows + row)] > -inf) order.push_back(row);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
          return score[size(t * rows + a)] > score[size(t * rows + b)];
        });
        order.resize(std::min(order.size(), size(k)));
        std::sort(order.begin(), order.end());
        order.resize(size(k), -1);
        CHECK(ints(selected.begin() + t * k, selected.begin() + (t + 1) * k) == order);
      }
    }
  }
}

TEST_CASE("top_rows: -0 and +0 tie, so the lower row wins") {
  test_batch batch(1, 8, 8);
  batch.row(0, 3, 1);
  const floats score{-1, -0.0F, 0.0F, -0.0F};
  for (const auto& twin : DI_TWINS(top_rows)) {
    CAPTURE(twin.name);
    ints selected(1);
    twin({}, {.batch = batch.view(),
              .first = 0,
              .count = 1,
              .score = score.data(),
              .row_limit = 4,
              .k = 1,
              .selected = selected.data()});
    CHECK(selected[0] == 1);
  }
}

TEST_CASE("candidate_blocks keeps the newest block and the best others, ties to the lower block") {
  test_batch batch(1, 8, 8);
  batch.row(0, 0, 40).padding(1);
  const auto tokens = batch.tokens(), limit = std::int64_t{20};
  auto score = noise(8, tokens * limit, 3);
  for (auto& v : score) v = std::floor(v);
  for (std::size_t i = 0; i < score.size(); i += 5) score[i] = -inf;
  for (const auto& twin : DI_TWINS(candidate_blocks)) {
    CAPTURE(twin.name);
    for (const std::int64_t block_size : {1, 3, 4})
      for (const std::int64_t k : {1, 2, 3, 30}) {
        CAPTURE(block_size);
        const auto kept = on_every_team([&](const stream_ref& stream) {
          ints out(size(tokens * k), 9);
          twin(stream, {.batch = batch.view(),
                        .ratio = 2,
                        .first = 0,
                        .count = tokens,
                        .score = score.data(),
                        .row_limit = limit,
                        .size = block_size,
                        .k = k,
                        .blocks = out.data()});
          return out;
        });
        for (std::int64_t t = 0; t < tokens; ++t) {
          const std::int64_t visible = t < 40 ? (t + 1) / 2 : 0;
          std::vector<std::pair<float, std::int32_t>> blocks;  // (-score, id) sorts as wanted
          for (std::int64_t first = 0; first < visible; first += block_size) {
            float best = -inf;
            for (auto row = first; row < std::min(first + block_size, visible); ++row)
              best = std::max(best, score[size(t * limit + row)]);
            if (first + block_size >= visible) best = inf;
            if (best > -inf)
              blocks.emplace_back(-best, static_cast<std::int32_t>(first / block_size));
          }
          std::sort(blocks.begin(), blocks.end());
          ints expected;
          for (const auto& block : blocks) expected.push_back(block.second);
          expected.resize(std::min(expected.size(), size(k)));
          std::sort(expected.begin(), expected.end());
          expected.resize(size(k), -1);
          CHECK(ints(kept.begin() + t * k, kept.begin() + (t + 1) * k) == expected);
        }
      }
  }
}

TEST_CASE("candidate_blocks: an infinite score does not beat the newest block") {
  test_batch batch(1, 8, 8);
  batch.row(0, 15, 1);
  floats score(16, inf);
  for (const auto& twin : DI_TWINS(candidate_blocks)) {
    CAPTURE(twin.name);
    ints kept(1);
    twin({}, {.batch = batch.view(),
              .first = 0,
              .count = 1,
              .score = score.data(),
              .row_limit = 16,
              .size = 4,
              .k = 1,
              .blocks = kept.data()});
    CHECK(kept[0] == 3);
  }
}
