// What bounded replay adds to a step: where late layers begin, which tokens they keep, and windows
// that reach no further back.
#include <doctest/doctest.h>

#include "attention_support.hpp"
#include "kernels/step/keep_late.hpp"
#include "kernels/step/start_late.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

TEST_CASE("start_late: each start's slot gets its begin, the others keep theirs") {
  ints begins{1, 2, 3, 4};
  const ints slot{3, 0}, begin{40, 10};
  start_late_ref({}, {slot.data(), begin.data(), 2, begins.data()});
  CHECK(begins == ints{10, 2, 3, 40});
  start_late_ref({}, {});
  CHECK(begins == ints{10, 2, 3, 40});
}

TEST_CASE("keep_late: the last tokens of each row, as rows of their own, padding behind them") {
  test_batch batch{4, 8, 8};
  // Dropped whole, cut inside, kept whole, padding, cut at its first token.
  batch.row(0, 2, 3).row(1, 4, 4).row(2, 9, 2).padding(1).row(3, 20, 2);
  const ints begins{5, 6, 0, 20};
  struct kept {
    ints token = ints(8, -7), at = ints(12, -7), slot = token, position = token, row = token,
         first = token;
  } out;
  keep_late_ref({}, {.batch = batch.view(),
                     .late_begin = begins.data(),
                     .kept = 8,
                     .token = out.token.data(),
                     .kept_at = out.at.data(),
                     .slot = out.slot.data(),
                     .position = out.position.data(),
                     .row_first_token = out.row.data(),
                     .row_first_position = out.first.data()});
  CHECK(out.token == ints{5, 6, 7, 8, 10, 11, -1, -1});
  CHECK(out.at == ints{-1, -1, -1, -1, -1, 0, 1, 2, 3, -1, 4, 5});
  CHECK(out.slot == ints{1, 1, 2, 2, 3, 3, -1, -1});
  CHECK(out.position == ints{6, 7, 9, 10, 20, 21, -1, -1});
  CHECK(out.row == ints{0, 0, 2, 2, 4, 4, 6, 7});
  CHECK(out.first == ints{6, 6, 9, 9, 20, 20, -1, -1});
  keep_late_ref({}, {});  // no tokens
}

TEST_CASE("a window that begins late is a shorter window, bit for bit, in both attentions") {
  constexpr std::int64_t heads = 3, dim = 24;
  constexpr std::int32_t ring_size = 50, slots = 3;
  const auto ring = noise(2, slots * ring_size * dim, 2), sink = noise(4, heads, 2);
  const auto q = noise(1, 4 * heads * dim, 2), rows = noise(3, 4 * dim, 2);
  // Position 60 with a window of 40 sees 21 .. 60: bounds below, inside, at its own, above.
  for (const std::int32_t begin : {0, 21, 22, 45, 60, 61}) {
    CAPTURE(begin);
    const ints begins{7, begin, 900};
    const auto shorter = std::min(40, 61 - begin);
    test_batch batch{slots, 16, 8};
    batch.row(1, 60, 1);
    for (const auto& twin : DI_TWINS(sparse_attention)) {
      CAPTURE(twin.name);
      const auto run = [&](std::int32_t window, const std::int32_t* bound) {
        floats o(size(heads * dim), unset);
        twin({}, {.batch = batch.view(),
                  .q = q.data(),
                  .step_rows = rows.data(),
                  .ring = ring.data(),
                  .ring_size = ring_size,
                  .window = window,
                  .window_begin = bound,
                  .sink = sink.data(),
                  .scale = .3F,
                  .o = o.data(),
                  .heads = heads,
                  .dim = dim});
        return o;
      };
      const auto found = run(40, begins.data());
      CHECK(found == (shorter > 0 ? run(shorter, nullptr) : floats(size(heads * dim), 0)));
    }
    const ints slot{1}, position{60};
    for (const auto& twin : DI_TWINS(block_attention)) {
      CAPTURE(twin.name);
      const auto run = [&](std::int32_t window, const std::int32_t* bound) {
        floats o(size(4 * heads * dim), unset);
        twin({}, {.sequences = 1,
                  .block = 4,
                  .slot = slot.data(),
                  .position = position.data(),
                  .q = q.data(),
                  .block_rows = rows.data(),
                  .ring = ring.data(),
                  .ring_size = ring_size,
                  .window = window,
                  .window_begin = bound,
                  .sink = sink.data(),
                  .scale = .3F,
                  .o = o.data(),
                  .heads = heads,
                  .dim = dim});
        return o;
      };
      CHECK(run(40, begins.data()) == run(std::max(0, shorter), nullptr));
    }
  }
}

TEST_CASE("the cost of attention counts the rows of windows that begin late") {
  test_batch batch{2, 16, 8};
  batch.row(0, 30, 1).row(1, 30, 1);
  const ints begins{28, 31};
  sparse_attention_args args;
  args.batch = batch.view();
  args.window = 10;
  args.heads = args.dim = 1;
  CHECK(args.cost().bytes == 20 * 4);
  args.window_begin = begins.data();
  CHECK(args.cost().bytes == 3 * 4);
}
