#include "attention_support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernels/common/formats.hpp"
#include "tests/support/golden_file.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

/// A sequence of 100 positions with window rows, a compressed memory and a selected list per query.
struct sequence_world {
  std::int64_t heads = 3, dim = 24, selected_count;
  std::int32_t positions = 100, window, ratio, ring_size;
  floats q, rows, memory, sink;
  ints selected;
  test_batch layout{3, 13, 8};  ///< gives the block table
  named_twin<sparse_attention_args> attention{"reference", sparse_attention_ref};

  sequence_world(std::int32_t window_size, std::int32_t pool_ratio, std::int64_t k,
                 std::int32_t ring)
    : selected_count(k),
      window(window_size),
      ratio(pool_ratio),
      ring_size(ring) {
    q = noise(1, positions * heads * dim, 2);
    rows = noise(2, positions * dim, 2);
    sink = noise(4, heads, 2);
    if (ratio == 0) return;
    memory = noise(3, layout.blocks() * 8 / ratio * dim, 2);
    for (std::int32_t p = 0; p < positions; ++p)
      for (std::int32_t i = 0; i < k; ++i) {
        const auto row = i * 3 + p % 3;
        selected.push_back(row < (p + 1) / ratio ? row : -1);
      }
  }

  const float* memory_row(std::int64_t slot, std::int64_t row) const {
    const std::int64_t per_block = 8 / ratio;
    const auto block = layout.table[size(slot * 13 + row / per_block)];
    return memory.data() + (block * per_block + row % per_block) * dim;
  }

  /// Output of all positions, computed in chunks in slot 1 next to padding; the ring starts as NaN.
  floats run(const stream_ref& stream, const ints& chunks, bool bf16 = false) const {
    floats ring(size(3 * ring_size * dim), unset), out;
    std::int32_t at = 0;
    for (const auto chunk : chunks) {
      auto batch = layout;
      batch.padding(2).row(1, at, chunk).padding(1);
      const auto tokens = batch.tokens();
      floats queries(size(tokens * heads * dim), 1), step_rows(size(tokens * dim), unset),
        o(size(tokens * heads * dim), unset);
      ints lists(size(tokens * selected_count), -1);
      std::copy_n(q.begin() + at * heads * dim, chunk * heads * dim,
                  queries.begin() + 2 * heads * dim);
      std::copy_n(rows.begin() + at * dim, chunk * dim, step_rows.begin() + 2 * dim);
      if (ratio > 0)
        std::copy_n(selected.begin() + at * selected_count, chunk * selected_count,
                    lists.begin() + 2 * selected_count);
      attention(stream, {.batch = batch.view(),
                         .q = queries.data(),
                         .step_rows = step_rows.data(),
                         .ring = ring.data(),
                         .ring_size = ring_size,
                         .window = window,
                         .ratio = ratio,
                         .memory = memory.data(),
                         .selected = lists.data(),
                         .selected_count = selected_count,
                         .sink = sink.data(),
                         .scale = .2F,
                         .o = o.data(),
                         .heads = heads,
                         .dim = dim,
                         .bf16 = bf16});
      window_store_ref(stream, {.batch = batch.view(),
                                .rows = step_rows.data(),
                                .ring = ring.data(),
                                .ring_size = ring_size,
                                .dim = dim});
      CHECK(rows_of(o, 0, 2 * heads, dim) == floats(size(2 * heads * dim), 0));
      CHECK(rows_of(o, (tokens - 1) * heads, heads, dim) == floats(size(heads * dim), 0));
      const auto mine = rows_of(o, 2 * heads, chunk * heads, dim);
      out.insert(out.end(), mine.begin(), mine.end());
      at += chunk;
    }
    return out;
  }

  std::vector<double> in_double() const {
    std::vector<double> out;
    for (std::int32_t p = 0; p < positions; ++p)
      for (std::int64_t h = 0; h < heads; ++h) {
        std::vector<const float*> list;
        for (auto w = std::max(0, p - window + 1); w <= p; ++w)
          list.push_back(rows.data() + w * dim);
        for (std::int64_t i = 0; ratio > 0 && i < selected_count; ++i)
          if (const auto row = selected[size(p * selected_count + i)]; row >= 0)
            list.push_back(memory_row(1, row));
        double sum = std::exp(double{sink[size(h)]});
        std::vector<double> o(size(dim));
        for (const float* row : list) {
          double logit = 0;
          for (std::int64_t d = 0; d < dim; ++d)
            logit += .2 * q[size((p * heads + h) * dim + d)] * row[d];
          sum += std::exp(logit);
          for (std::int64_t d = 0; d < dim; ++d) o[size(d)] += std::exp(logit) * row[d];
        }
        for (const double v : o) out.push_back(v / sum);
      }
    return out;
  }
};

}  // namespace

TEST_CASE("sparse_attention is the softmax over window and selected rows, whatever the chunks "
          "[invariant 1]") {
  const struct {
    std::int32_t window, ratio;
    std::int64_t k;
    std::int32_t ring;
  } table[] = {{8, 0, 0, 8}, {1, 1, 7, 3}, {6, 2, 5, 11}, {70, 2, 20, 70}};
  for (const auto& twin : DI_TWINS(sparse_attention))
    for (const auto& row : table) {
      CAPTURE(twin.name);
      CAPTURE(row.window);
      sequence_world world(row.window, row.ratio, row.k, row.ring);
      world.attention = twin;
      const auto whole = on_every_team([&](const stream_ref& s) { return world.run(s, {100}); });
      CHECK(distance(whole, world.in_double()) < 5e-6);
      for (const auto& chunks : {ints(100, 1), ints{1, 2, 3, 40, 54}, ints{99, 1}})
        CHECK(same_bits(world.run({}, chunks), whole));
      const auto rounded = world.run({}, {100}, true);
      CHECK(
        std::all_of(rounded.begin(), rounded.end(), [](float v) { return bf16_round(v) == v; }));
      CHECK(same_bits(world.run({}, {60, 1, 39}, true), rounded));
      CHECK(distance(rounded, whole) > 0);
      CHECK(distance(rounded, whole) < 0.03);
    }
}

TEST_CASE("a window's ring: where a position lies, and where its window begins") {
  // deepinfer.md 12, scenario 18: window 128, ring 134, slot 3, position 1000.
  const std::int32_t window = 128, ring_size = 134, slot = 3, position = 1000, dim = 4;
  const std::int64_t stored_at = 464, begins_at = 471;  // of position 1000, of position 873
  test_batch batch(4, 64, 16);
  batch.row(slot, position, 1);
  const floats step_rows(size(dim), 1), q(size(dim), 0), sink(1, 0);

  floats ring(size(4 * ring_size * dim), unset);
  window_store_ref({}, {batch.view(), step_rows.data(), ring.data(), ring_size, dim});
  for (std::int64_t entry = 0; entry < 4 * ring_size; ++entry)
    CHECK(std::isnan(ring[size(entry * dim)]) == (entry != stored_at));

  // With q and sink 0 every listed row has the same weight, 1 / (rows + 1): outputs count them.
  for (const auto& twin : DI_TWINS(sparse_attention)) {
    CAPTURE(twin.name);
    const auto sum_with = [&](std::int64_t entry) {
      floats seen(size(4 * ring_size * dim), 1), o(size(dim), unset);
      if (entry >= 0) std::fill_n(seen.begin() + entry * dim, dim, unset);
      twin({}, {.batch = batch.view(),
                .q = q.data(),
                .step_rows = step_rows.data(),
                .ring = seen.data(),
                .ring_size = ring_size,
                .window = window,
                .sink = sink.data(),
                .scale = 1,
                .o = o.data(),
                .heads = 1,
                .dim = dim});
      return o[0];
    };
    CHECK(std::abs(sum_with(-1) - 128.F / 129) < 1e-6F);
    // Read are positions 873 .. 999 and this step's own row: the ring's entries from 471 on, round
    // its end at 536. Entry 464, the newest, is not read before the step has stored it, nor are
    // those of positions 867 .. 872, which drafts of the step before may have overwritten.
    for (std::int64_t entry = 0; entry < 4 * ring_size; ++entry) {
      const auto behind = (entry - begins_at + ring_size) % ring_size;
      const bool is_mine = entry >= slot * ring_size;
      CHECK(std::isnan(sum_with(entry)) == (is_mine && behind < 127));
    }
  }
}

TEST_CASE("sparse_attention: rows that no query may see can be NaN") {
  for (const auto& twin : DI_TWINS(sparse_attention)) {
    CAPTURE(twin.name);
    sequence_world world(6, 2, 5, 9);
    world.attention = twin;
    const auto before = world.run({}, {100});
    for (std::int64_t row = 0; row < 50; ++row) {
      const auto is_listed = [&](std::int32_t id) { return id == row; };
      if (std::any_of(world.selected.begin(), world.selected.end(), is_listed)) continue;
      auto* cell = const_cast<float*>(world.memory_row(1, row));
      std::fill(cell, cell + world.dim, unset);
    }
    CHECK(same_bits(world.run({}, {100}), before));
  }
}

TEST_CASE("sparse_attention, released, is within one bf16 step of the release's kernel, an empty "
          "list gives 0") {
  const golden_file ops(DI_SOURCE_DIR "/tests/golden/model/v41-a-fp8/ops.safetensors");
  const auto q = ops.floats("sparse_attn.q"), kv = ops.floats("sparse_attn.kv"),
             sink = ops.floats("sparse_attn.sink"), expected = ops.floats("sparse_attn.out");
  const auto selected = ops.ints("sparse_attn.idx");
  test_batch batch(1, 1, 90);
  for (int i = 0; i < 7; ++i) batch.row(0, 89, 1);
  batch.table = {0};
  for (const auto& twin : DI_TWINS(sparse_attention)) {
    CAPTURE(twin.name);
    const auto o = on_every_team([&](const stream_ref& stream) {
      floats out(q.size(), unset);
      twin(stream, {.batch = batch.view(),
                    .q = q.data(),
                    .ratio = 1,
                    .memory = kv.data(),
                    .selected = selected.data(),
                    .selected_count = 80,
                    .sink = sink.data(),
                    .scale = .125F,
                    .o = out.data(),
                    .heads = 4,
                    .dim = 64,
                    .bf16 = true});
      return out;
    });
    REQUIRE(o.size() == expected.size());
    int differing = 0;
    for (std::size_t i = 0; i < o.size(); ++i) {
      CHECK(bf16_steps(o[i], expected[i]) <= 1);
      differing += o[i] != expected[i] ? 1 : 0;
    }
    CHECK(differing < 20);
    CHECK(rows_of(o, 3, 1, 4 * 64) == floats(4 * 64, 0));
  }
}

TEST_CASE("block_attention: all queries of a block see one context and the whole block") {
  const std::int64_t heads = 2, dim = 20;
  const std::int32_t window = 5, ring_size = 9, block = 3;
  const ints slot{2, 0, -1, 1}, position{11, 2, 4, -1};
  const auto q = noise(1, 4 * block * heads * dim), rows = noise(2, 4 * block * dim),
             sink = noise(3, heads);
  auto ring = noise(4, 3 * ring_size * dim);
  for (const std::int64_t entry : {0 * 9 + 3, 0 * 9 + 8, 2 * 9 + 6, 2 * 9 + 3})  // seen by nobody
    std::fill_n(ring.begin() + entry * dim, dim, unset);
  for (const auto& twin : DI_TWINS(block_attention)) {
    CAPTURE(twin.name);
    const auto o = on_every_team([&](const stream_ref& stream) {
      floats out(q.size(), unset);
      twin(stream, {.sequences = 4,
                    .block = block,
                    .slot = slot.data(),
                    .position = position.data(),
                    .q = q.data(),
                    .block_rows = rows.data(),
                    .ring = ring.data(),
                    .ring_size = ring_size,
                    .window = window,
                    .sink = sink.data(),
                    .scale = .3F,
                    .o = out.data(),
                    .heads = heads,
                    .dim = dim});
      return out;
    });
    for (std::int64_t item = 0; item < 4 * block * heads; ++item) {
      const auto sequence = item / (block * heads);
      if (sequence >= 2) {
        CHECK(rows_of(o, item, 1, dim) == floats(dim, 0));
        continue;
      }
      std::vector<const float*> list;
      for (auto p = std::max(0, position[size(sequence)] - window + 1);
           p <= position[size(sequence)]; ++p)
        list.push_back(ring.data() + (slot[size(sequence)] * ring_size + p % ring_size) * dim);
      for (std::int64_t i = 0; i < block; ++i)
        list.push_back(rows.data() + (sequence * block + i) * dim);
      double sum = std::exp(double{sink[size(item % heads)]});
      std::vector<double> expected(size(dim));
      for (const float* row : list) {
        double logit = 0;
        for (std::int64_t d = 0; d < dim; ++d) logit += .3 * q[size(item * dim + d)] * row[d];
        sum += std::exp(logit);
        for (std::int64_t d = 0; d < dim; ++d) expected[size(d)] += std::exp(logit) * row[d];
      }
      for (auto& v : expected) v /= sum;
      CHECK(distance(rows_of(o, item, 1, dim), expected) < 2e-6);
    }
  }
}
