// What a prefix cache adds to a step: resume points kept and loaded, blocks copied to and fro.
#include <doctest/doctest.h>

#include <cstring>

#include "attention_support.hpp"
#include "kernels/step/copy_blocks.hpp"
#include "kernels/step/resume_edges.hpp"
#include "kernels/step/resume_load.hpp"
#include "kernels/step/resume_store.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr std::int64_t dim = 3;
constexpr std::int32_t ring_size = 11;

/// Rows of positions 0 .. 63 of a sequence that cached the first of them.
struct cached_sequence {
  test_batch layout{3, 16, 4};
  floats rows = noise(5, 64 * dim);
  floats ring = floats(size(3 * ring_size * dim), unset);
  std::int32_t kept = 5;
  floats resume = floats(size(layout.blocks() * kept * dim), unset);

  /// Runs positions [first, first + count) of slot 1 beside padding and another row.
  void step(const stream_ref& stream, std::int32_t first, std::int32_t count, std::int32_t every) {
    auto batch = layout;
    batch.padding(1).row(1, first, count).padding(2);
    floats step_rows(size(batch.tokens() * dim), unset);
    std::copy_n(rows.begin() + first * dim, count * dim, step_rows.begin() + dim);
    ints edges(size(batch.tokens()), -7), found{-7};
    resume_edges_ref(stream, {batch.view(), every, edges.data(), found.data()});
    resume_store_ref(stream, {.batch = batch.view(),
                              .edge = edges.data(),
                              .count = found.data(),
                              .rows = step_rows.data(),
                              .ring = ring.data(),
                              .ring_size = ring_size,
                              .kept = kept,
                              .dim = dim,
                              .resume = resume.data()});
    window_store_ref(stream, {batch.view(), step_rows.data(), ring.data(), ring_size, dim});
  }

  /// Rows [end - kept, end) as the block that ends there should keep them.
  bool holds(std::int32_t end) const {
    const std::int64_t block = layout.table[size(16 + end / 4 - 1)];
    for (std::int64_t i = 0; i < kept; ++i) {
      const auto position = end - kept + i;
      const auto found = rows_of(resume, block * kept + i, 1, dim);
      if (position < 0 ? !std::isnan(found[0]) : found != rows_of(rows, position, 1, dim))
        return false;
    }
    return true;
  }
};

}  // namespace

TEST_CASE(
  "resume_edges: the tokens that complete a multiple of `every` positions, and no padding") {
  test_batch batch{4, 16, 4};
  batch.row(0, 6, 3).padding(2).row(1, 3, 1).row(2, 0, 17).row(3, 31, 1);
  ints edges(size(batch.tokens()), -7), count{-7};
  resume_edges_ref({}, {batch.view(), 8, edges.data(), count.data()});
  CHECK(count[0] == 4);
  CHECK(ints(edges.begin(), edges.begin() + 4) == ints{1, 13, 21, 23});
  resume_edges_ref({}, {batch.view(), 4, edges.data(), count.data()});
  CHECK(count[0] == 7);
  const test_batch none;
  resume_edges_ref({}, {none.view(), 8, edges.data(), count.data()});
  CHECK(count[0] == 0);
}

TEST_CASE("resume_store: the rows before every edge, from ring and step, whatever the chunks") {
  for (const std::int32_t every : {4, 8, 12})
    for (const auto& chunks : {ints{40}, ints(40, 1), ints{3, 1, 30, 6}, ints{8, 8, 8, 8, 8}}) {
      CAPTURE(every);
      CAPTURE(chunks.size());
      on_every_team([&](const stream_ref& stream) {
        cached_sequence sequence;
        std::int32_t at = 0;
        for (const auto chunk : chunks) {
          sequence.step(stream, at, chunk, every);
          at += chunk;
        }
        for (std::int32_t end = 4; end <= 40; end += 4) {
          CAPTURE(end);
          const std::int64_t block = sequence.layout.table[size(16 + end / 4 - 1)];
          if (end % every == 0)
            CHECK(sequence.holds(end));
          else
            CHECK(std::isnan(sequence.resume[size(block * sequence.kept * dim)]));
        }
        for (auto& it : sequence.resume)
          if (std::isnan(it)) it = -1;  // so that two runs compare
        return sequence.resume;
      });
    }
}

TEST_CASE("resume_load: the ring gets back what the block before a start kept, and nothing else") {
  cached_sequence sequence;
  sequence.step({}, 0, 40, 4);
  // Slots 2 and 0 go on behind blocks of slot 1; one slot starts from nothing.
  auto tables = sequence.layout.table;
  std::copy_n(tables.begin() + 16, 10, tables.begin());
  std::copy_n(tables.begin() + 16, 10, tables.begin() + 32);
  const ints slot{2, 1, 0}, position{4, 0, 20};
  const auto loaded = on_every_team([&](const stream_ref& stream) {
    floats ring(size(3 * ring_size * dim), -1);
    resume_load_ref(stream, {.slot = slot.data(),
                             .position = position.data(),
                             .starts = 3,
                             .every = 4,
                             .tables = tables.data(),
                             .table_stride = 16,
                             .block_size = 4,
                             .resume = sequence.resume.data(),
                             .kept = sequence.kept,
                             .dim = dim,
                             .ring = ring.data(),
                             .ring_size = ring_size});
    return ring;
  });
  for (std::int64_t entry = 0; entry < ring_size; ++entry) {
    CAPTURE(entry);
    const auto expect = [&](std::int32_t of, bool is_there, std::int64_t row) {
      CHECK(rows_of(loaded, of * ring_size + entry, 1, dim) ==
            (is_there ? rows_of(sequence.rows, row, 1, dim) : floats(size(dim), -1)));
    };
    expect(2, entry < 4, entry);
    expect(1, false, 0);
    // Positions 15 .. 19 lie at 4 .. 8 of a ring of 11.
    expect(0, entry >= 4 && entry <= 8, entry + 11);
  }
  resume_load_ref({}, {});  // no starts
}

TEST_CASE("copy_blocks: in order, every part of a block, between blocks and places") {
  std::vector<std::int32_t> wide{1, 2, 3, 4, 5, 6};  // three blocks of two
  std::vector<char> narrow{'a', 'b', 'c'};
  const auto bytes_of = [](auto& vector) { return reinterpret_cast<std::byte*>(vector.data()); };
  const block_part parts[] = {{bytes_of(wide), 8, 1}, {bytes_of(narrow), 1, 0}};
  std::vector<std::byte> arena(2 * 9);
  const auto run = [&](std::vector<block_copy> copies) {
    copy_blocks_ref({}, {.parts = parts,
                         .part_count = 2,
                         .blocks = 3,
                         .copies = copies.data(),
                         .count = static_cast<std::int32_t>(copies.size()),
                         .arena = arena.data(),
                         .place_bytes = 9,
                         .places = 2});
  };
  run({});
  CHECK(wide == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  // Block 0 goes to place 1 and block 2 comes from there, before block 1 takes its place.
  run({{0, 1, true}, {2, 1, false}, {1, 1, true}, {0, 1, false}});
  CHECK(wide == std::vector<std::int32_t>{3, 4, 3, 4, 1, 2});
  CHECK(narrow == std::vector<char>{'b', 'b', 'a'});
}
