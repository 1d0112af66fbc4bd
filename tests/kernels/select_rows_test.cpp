// The indexer over ragged shapes and long lists: twins against the reference, the fused op against
// its parts.
#include "attention_support.hpp"

#include <algorithm>

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

/// Tokens at the ends of three sequences, keys for all of them, and scratch.
struct indexer_world {
  std::int64_t heads, dim;
  std::int32_t ratio;
  test_batch batch{3, 50, 8};
  floats query, weight, keys;

  indexer_world(std::int64_t head_count, std::int64_t width, std::int32_t pool_ratio)
    : heads(head_count),
      dim(width),
      ratio(pool_ratio) {
    batch.row(1, 330, 3).padding(2).row(2, 37, 2).row(0, 0, 3).row(1, 130, 1);
    query = noise(1, batch.tokens() * heads * dim);
    weight = noise(2, batch.tokens() * heads);
    keys = noise(3, batch.blocks() * 8 / ratio * dim);
  }

  std::int64_t visible(std::int64_t t) const {
    const auto view = batch.view();
    return view.is_padding(t) ? 0 : view.visible(t, ratio);
  }

  index_scores_args args(std::int64_t row_limit, float* score, bool bf16 = false) const {
    return {.batch = batch.view(),
            .ratio = ratio,
            .first = 0,
            .count = batch.tokens(),
            .query = query.data(),
            .weight = weight.data(),
            .weight_scale = .3F,
            .keys = keys.data(),
            .heads = heads,
            .dim = dim,
            .score = score,
            .row_limit = row_limit,
            .bf16 = bf16};
  }

  /// The score of one row, as a plain loop in numbers of type T.
  template <class T>
  T plain_score(std::int64_t t, std::int64_t row) const {
    const float* key = keys.data() + batch.view().paged_index(t, row, ratio) * dim;
    T sum = 0;
    for (std::int64_t h = 0; h < heads; ++h) {
      T product = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        product += static_cast<T>(query[size((t * heads + h) * dim + d)]) * static_cast<T>(key[d]);
      sum += static_cast<T>(weight[size(t * heads + h)] * .3F) * std::max(product, T(0));
    }
    return sum;
  }
};

struct lists {
  ints selected, blocks;
  bool operator==(const lists&) const = default;
};

struct selection {
  std::int64_t k = 0, block_size = 8, block_k = 0;  ///< block_k 0: no candidates are chosen
  const ints* candidates = nullptr;
  std::int64_t candidate_count = 0;
};

lists selected_at_once(const indexer_world& world, const named_twin<select_rows_args>& twin,
                       const stream_ref& stream, const selection& s, std::int64_t score_rows) {
  const std::int64_t limit = 333, tokens = world.batch.tokens();
  floats scratch(size(score_rows * limit), unset);
  lists out{ints(size(tokens * s.k), 9), ints(size(tokens * s.block_k), 9)};
  select_rows_args args;
  args.scores = world.args(limit, scratch.data());
  if (s.candidates) args.scores.candidates = s.candidates->data();
  args.scores.candidate_count = s.candidate_count;
  args.scores.candidate_size = s.block_size;
  args.score_rows = score_rows;
  args.k = s.k;
  args.selected = out.selected.data();
  args.block_size = s.block_size;
  args.block_k = s.block_k;
  if (s.block_k > 0) args.blocks = out.blocks.data();
  twin(stream, args);
  return out;
}

lists selected_in_turn(const indexer_world& world, std::size_t twin, const selection& s) {
  const std::int64_t limit = 333, tokens = world.batch.tokens();
  floats score(size(tokens * limit), unset);
  lists out{ints(size(tokens * s.k), 9), ints(size(tokens * s.block_k), 9)};
  auto scores = world.args(limit, score.data());
  if (s.candidates) scores.candidates = s.candidates->data();
  scores.candidate_count = s.candidate_count;
  scores.candidate_size = s.block_size;
  DI_TWINS(index_scores)[twin]({}, scores);
  if (s.block_k > 0)
    DI_TWINS(candidate_blocks)
    [twin]({}, {scores.batch, world.ratio, 0, tokens, score.data(), limit, s.block_size, s.block_k,
                out.blocks.data()});
  DI_TWINS(top_rows)
  [twin]({}, {scores.batch, world.ratio, 0, tokens, score.data(), limit, s.k, out.selected.data()});
  return out;
}

}  // namespace

TEST_CASE("index_scores on ragged shapes errs at most twice as much as a plain f32 loop, and "
          "released has the reference's bits") {
  for (const auto& twin : DI_TWINS(index_scores))
    for (const auto& [heads, dim, ratio] : {std::array{1, 1, 1},
                                            {2, 7, 2},
                                            {3, 64, 1},
                                            {4, 33, 4},
                                            {7, 20, 1},
                                            {33, 16, 2},
                                            {70, 9, 1},
                                            {32, 128, 2},
                                            {5, 31, 8}}) {
      CAPTURE(twin.name);
      CAPTURE(heads);
      const indexer_world world(heads, dim, ratio);
      const std::int64_t limit = 340, tokens = world.batch.tokens();
      const auto run = [&](const auto& op, const stream_ref& stream, bool bf16) {
        floats score(size(tokens * limit), unset);
        op(stream, world.args(limit, score.data(), bf16));
        return score;
      };
      const auto score = on_every_team([&](const stream_ref& s) { return run(twin, s, false); });
      rounding_check errors;
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t row = 0; row < limit; ++row) {
          const auto got = score[size(t * limit + row)];
          if (row >= world.visible(t)) {
            REQUIRE(got == -infinity);
            continue;
          }
          errors.add({got}, {world.plain_score<float>(t, row)},
                     {world.plain_score<double>(t, row)});
        }
      CHECK(errors.holds());
      CHECK(errors.plain > 0);
      const auto rounded = on_every_team([&](const stream_ref& s) { return run(twin, s, true); });
      CHECK(same_bits(rounded, run(index_scores_ref, {}, true)));
    }
}

TEST_CASE("index_scores: rows scored for candidates have the bits of all rows scored") {
  for (const auto& twin : DI_TWINS(index_scores)) {
    CAPTURE(twin.name);
    const indexer_world world(5, 24, 1);
    const std::int64_t tokens = world.batch.tokens(), limit = 350, count = 9;
    ints candidates;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (const std::int32_t block : {0, 1, 2, 5, 17, 36, 37, 110, -1})
        candidates.push_back(block);
    floats all(size(tokens * limit), unset), masked = all;
    auto args = world.args(limit, all.data());
    twin({}, args);
    args.score = masked.data();
    args.candidates = candidates.data();
    args.candidate_count = count;
    args.candidate_size = 3;
    twin({}, args);
    for (std::int64_t i = 0; i < tokens * limit; ++i) {
      const auto block = i % limit / 3;
      const bool is_kept = std::count(candidates.begin(), candidates.begin() + 8, block) > 0;
      REQUIRE(masked[size(i)] == (is_kept ? all[size(i)] : -infinity));
    }
  }
}

TEST_CASE("top_rows and candidate_blocks of long lists are the reference's, ties and all") {
  const std::int64_t limit = 6007;
  test_batch batch(2, 760, 8);
  batch.row(0, 6006, 1).row(1, 5000, 2).row(0, 512, 1).padding(1);
  const auto tokens = batch.tokens();
  for (const int kind : {0, 1, 2, 3, 4}) {  // spread, coarse, all equal, few eligible, one binade
    CAPTURE(kind);
    auto score = noise(11, tokens * limit, 50);
    for (std::size_t i = 0; i < score.size(); ++i) {
      if (kind == 1) score[i] = std::floor(score[i]);
      if (kind == 2) score[i] = -1.5F;
      if (kind == 3 && i % 50 != 7) score[i] = i % 3 ? -infinity : unset;
      if (kind == 4) score[i] = 1 + std::fabs(score[i]) * 1e-4F;
      if (kind == 1 && i % 5 == 0) score[i] = i % 2 ? -0.0F : 0.0F;
      if (kind == 0 && i % 97 == 0) score[i] = infinity;
    }
    for (const std::int64_t k : {1, 7, 64, 512, 5000, 6006, 6007, 7000}) {
      CAPTURE(k);
      const auto rows = [&](const auto& op, const stream_ref& stream) {
        ints out(size(tokens * k), 9);
        op(stream, {batch.view(), 1, 0, tokens, score.data(), limit, k, out.data()});
        return out;
      };
      for (const auto& twin : DI_TWINS(top_rows))
        CHECK(on_every_team([&](const stream_ref& s) { return rows(twin, s); }) ==
              rows(named_twin<top_rows_args>{"reference", top_rows_ref}, {}));
      for (const std::int64_t width : {1, 3, 8, 9, 64}) {
        const auto kept = [&](const auto& op) {
          ints out(size(tokens * k), 9);
          op({}, {batch.view(), 1, 0, tokens, score.data(), limit, width, k, out.data()});
          return out;
        };
        for (const auto& twin : DI_TWINS(candidate_blocks))
          CHECK(kept(twin) ==
                kept(named_twin<candidate_blocks_args>{"reference", candidate_blocks_ref}));
      }
    }
  }
}

TEST_CASE("select_rows is index_scores, candidate_blocks and top_rows, whatever the scratch") {
  const auto fused = DI_TWINS(select_rows);
  for (std::size_t twin = 0; twin < fused.size(); ++twin)
    for (const std::int32_t ratio : {1, 2}) {
      CAPTURE(fused[twin].name);
      const indexer_world world(6, 24, ratio);
      const auto source = selected_in_turn(world, twin, {.k = 16, .block_k = 12});
      for (const auto& s :
           {selection{.k = 16}, selection{.k = 40, .block_k = 4}, selection{.k = 400},
            selection{.k = 400, .block_k = 3}, selection{.k = 400, .block_k = 60},
            selection{.k = 16, .candidates = &source.blocks, .candidate_count = 12},
            selection{.k = 400, .candidates = &source.blocks, .candidate_count = 12}}) {
        CAPTURE(s.k);
        CAPTURE(s.block_k);
        const auto expected = selected_in_turn(world, twin, s);
        inline_team alone;
        threads_team three(3), many(16);  // more threads than tokens: cut by rows
        last_first_team last_first;
        for (const std::int64_t room : {1, 2, 3, 16}) {
          CAPTURE(room);
          for (thread_team* team :
               {static_cast<thread_team*>(nullptr), static_cast<thread_team*>(&alone),
                static_cast<thread_team*>(&three), static_cast<thread_team*>(&many),
                static_cast<thread_team*>(&last_first)})
            CHECK(selected_at_once(world, fused[twin], {team}, s, room) == expected);
        }
      }
    }
}

TEST_CASE("select_rows: a token that sees no more rows than it may select takes all of them, "
          "unscored") {
  for (const auto& twin : DI_TWINS(select_rows)) {
    CAPTURE(twin.name);
    indexer_world world(3, 16, 1);
    std::fill(world.keys.begin(), world.keys.end(), unset);
    const auto out = selected_at_once(world, twin, {}, {.k = 131, .block_k = 17}, 1);
    const auto list = [&](std::int64_t t) {
      return ints(out.selected.begin() + t * 131, out.selected.begin() + (t + 1) * 131);
    };
    ints all(131);
    for (std::int32_t i = 0; i < 131; ++i) all[size(i)] = i;
    CHECK(list(10) == all);
    CHECK(list(0) == ints(131, -1));  // more rows, none of which can be ranked
    CHECK(list(3) == ints(131, -1));  // padding
    CHECK(out.blocks[size(10 * 17 + 16)] == 16);
  }
}

TEST_CASE("the cost of the indexer counts the rows that are scored") {
  const indexer_world world(6, 24, 2);
  auto scores = world.args(333, nullptr);
  std::int64_t rows = 0;
  for (std::int64_t t = 0; t < world.batch.tokens(); ++t) rows += world.visible(t);
  CHECK(scores.cost().bytes == rows * 24 * 4);
  CHECK(scores.cost().flops == rows * 24 * 6 * 2);
  const auto most = world.visible(0);
  select_rows_args fused{.scores = scores, .score_rows = 1, .k = most - 1};
  CHECK(fused.cost().bytes < rows * 24 * 4);
  CHECK(fused.cost().bytes > 0);
  fused.k = most + 1;
  CHECK(fused.cost().bytes == 0);
  ints candidates(size(world.batch.tokens() * 2), -1);
  candidates[0] = 0;
  candidates[1] = static_cast<std::int32_t>(most / 8);  // partly visible
  scores.candidates = candidates.data();
  scores.candidate_count = 2;
  scores.candidate_size = 8;
  CHECK(scores.cost().bytes == (8 + most % 8) * 24 * 4);
}
