// The rings and the compressed memory: window_store, pool, pool_store, append.
#include "attention_support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr std::int64_t dim = 70;  // more than one tile of channels, and ragged

/// Latents of positions [0, positions) of the sequence in slot 1, computed in chunks beside another
/// sequence and padding; the pooling ring starts as NaN.
floats latents(const named_twin<pool_args>& pool, const stream_ref& stream, const floats& c,
               const floats& s, std::int32_t ratio, std::int32_t ring_size, const ints& chunks,
               bool bf16 = false) {
  floats ring(size(4 * ring_size * 2 * dim), unset), out;
  std::int32_t at = 0;
  for (const auto chunk : chunks) {
    test_batch batch;
    batch.row(2, at * 2, 3).row(1, at, chunk).padding(2);
    const auto tokens = batch.tokens();
    auto value = noise(size(at + 100), tokens * dim), score = noise(size(at + 200), tokens * dim);
    std::copy_n(c.begin() + at * dim, chunk * dim, value.begin() + 3 * dim);
    std::copy_n(s.begin() + at * dim, chunk * dim, score.begin() + 3 * dim);
    floats latent(size(tokens * dim), unset);
    // The neighbour's older inputs were never stored: its row starts where its groups start.
    if ((at * 2) % ratio != 0) std::fill(batch.slot.begin(), batch.slot.begin() + 3, -1);
    pool(stream, {.batch = batch.view(),
                  .ratio = ratio,
                  .value = value.data(),
                  .score = score.data(),
                  .ring = ring.data(),
                  .ring_size = ring_size,
                  .dim = dim,
                  .latent = latent.data(),
                  .bf16 = bf16});
    pool_store_ref(stream, {.batch = batch.view(),
                            .value = value.data(),
                            .score = score.data(),
                            .ring = ring.data(),
                            .ring_size = ring_size,
                            .dim = dim});
    CHECK(rows_of(latent, tokens - 2, 2, dim) == floats(2 * dim, 0));
    const auto mine = rows_of(latent, 3, chunk, dim);
    out.insert(out.end(), mine.begin(), mine.end());
    at += chunk;
  }
  return out;
}

}  // namespace

TEST_CASE(
  "pool: a completing token gets its group's softmax mean, whatever the chunks [invariant 1]") {
  const std::int32_t positions = 24;
  const auto c = noise(1, positions * dim), s = noise(2, positions * dim, 6);
  for (const auto& twin : DI_TWINS(pool)) {
    CAPTURE(twin.name);
    for (const std::int32_t ratio : {2, 3, 4, 12}) {
      CAPTURE(ratio);
      std::vector<double> expected(size(positions * dim));
      for (std::int64_t p = ratio - 1; p < positions; p += ratio)
        for (std::int64_t d = 0; d < dim; ++d) {
          double sum = 0;
          for (auto q = p - ratio + 1; q <= p; ++q) sum += std::exp(double{s[size(q * dim + d)]});
          for (auto q = p - ratio + 1; q <= p; ++q)
            expected[size(p * dim + d)] +=
              std::exp(double{s[size(q * dim + d)]}) / sum * c[size(q * dim + d)];
        }
      const auto whole = on_every_team(
        [&](const stream_ref& stream) { return latents(twin, stream, c, s, ratio, ratio, {24}); });
      CHECK(distance(whole, expected) < 1e-6);
      for (const auto& chunks : {ints{1, 3, 7, 1, 12}, ints(24, 1), ints{23, 1}, ints{2, 2, 20}})
        CHECK(same_bits(latents(twin, {}, c, s, ratio, ratio + 3, chunks), whole));
      auto rounded = latents({"reference", pool_ref}, {}, c, s, ratio, ratio, {24});
      for (auto& v : rounded) v = bf16_round(v);
      CHECK(latents(twin, {}, c, s, ratio, ratio, {5, 19}, true) == rounded);
    }
  }
}

TEST_CASE("pool: groups of one are the inputs themselves, without scores or a ring") {
  test_batch batch;
  batch.row(0, 5, 3).padding(1);
  const auto c = noise(1, 4 * dim);
  for (const auto& twin : DI_TWINS(pool)) {
    CAPTURE(twin.name);
    floats latent(4 * dim, unset);
    twin({}, {.batch = batch.view(), .value = c.data(), .dim = dim, .latent = latent.data()});
    CHECK(rows_of(latent, 0, 3, dim) == rows_of(c, 0, 3, dim));
    CHECK(rows_of(latent, 3, 1, dim) == floats(dim, 0));
  }
}

TEST_CASE(
  "a ring keeps the last rows of each row of the batch, at position mod size, and nothing else") {
  for (const std::int32_t ring_size : {3, 7}) {
    test_batch batch;
    batch.row(3, 0, 2).row(0, 6, 9).padding(2).row(1, 100, 1);
    const auto rows = noise(1, batch.tokens() * 4), score = noise(2, batch.tokens() * 4);
    const auto window = on_every_team([&](const stream_ref& stream) {
      floats ring(size(4 * ring_size * 4), 9);
      window_store_ref(stream, {.batch = batch.view(),
                                .rows = rows.data(),
                                .ring = ring.data(),
                                .ring_size = ring_size,
                                .dim = 4});
      return ring;
    });
    floats pooled(size(4 * ring_size * 8), 9);
    pool_store_ref({}, {.batch = batch.view(),
                        .value = rows.data(),
                        .score = score.data(),
                        .ring = pooled.data(),
                        .ring_size = ring_size,
                        .dim = 4});
    ints holder(size(4 * ring_size), -1);
    for (std::int32_t t = 0; t < batch.tokens(); ++t) {  // later positions overwrite older ones
      if (batch.slot[size(t)] < 0 || batch.position[size(t)] < 0) continue;
      holder[size(batch.slot[size(t)] * ring_size + batch.position[size(t)] % ring_size)] = t;
    }
    for (std::int64_t entry = 0; entry < 4 * ring_size; ++entry) {
      const auto t = holder[size(entry)];
      CHECK(rows_of(window, entry, 1, 4) == (t < 0 ? floats(4, 9) : rows_of(rows, t, 1, 4)));
      CHECK(rows_of(pooled, 2 * entry, 1, 4) == (t < 0 ? floats(4, 9) : rows_of(rows, t, 1, 4)));
      CHECK(rows_of(pooled, 2 * entry + 1, 1, 4) ==
            (t < 0 ? floats(4, 9) : rows_of(score, t, 1, 4)));
    }
  }
}

TEST_CASE("append writes the row of each completed group where the block table says") {
  for (const std::int32_t ratio : {1, 2, 4}) {
    CAPTURE(ratio);
    test_batch batch(3, 4, 8);
    batch.row(0, 3, 6).row(2, 21, 9).padding(2);
    const auto rows = noise(1, batch.tokens() * 3);
    ints row_position(size(batch.tokens()), 77);
    group_positions_ref(
      {}, {.batch = batch.view(), .ratio = ratio, .row_position = row_position.data()});
    const auto memory = on_every_team([&](const stream_ref& stream) {
      floats out(size(batch.blocks() * 8 / ratio * 3), 9);
      append_ref(stream, {.batch = batch.view(),
                          .ratio = ratio,
                          .row_position = row_position.data(),
                          .rows = rows.data(),
                          .memory = out.data(),
                          .dim = 3});
      return out;
    });
    floats expected(memory.size(), 9);
    for (std::int64_t t = 0; t < batch.tokens(); ++t) {
      const auto slot = batch.slot[size(t)], p = batch.position[size(t)];
      const bool completes = slot >= 0 && p >= 0 && (p + 1) % ratio == 0;
      CHECK(row_position[size(t)] == (completes ? p - ratio + 1 : -1));
      if (!completes) continue;
      const auto block = batch.table[size(slot * 4 + p / 8)];
      const auto entry = block * (8 / ratio) + p % 8 / ratio;
      std::copy_n(rows.begin() + t * 3, 3, expected.begin() + entry * 3);
    }
    CHECK(memory == expected);
  }
}

TEST_CASE("pool: scores of any size leave weights that sum to one") {
  test_batch batch;
  batch.row(0, 0, 2);
  const floats c{1, 2, 3, 4, 5, 6}, s{500, -500, 0, 500, 500, -1000};
  for (const auto& twin : DI_TWINS(pool)) {
    CAPTURE(twin.name);
    floats latent(6, unset);
    twin({}, {.batch = batch.view(),
              .ratio = 2,
              .value = c.data(),
              .score = s.data(),
              .ring_size = 2,
              .dim = 3,
              .latent = latent.data()});
    CHECK(rows_of(latent, 1, 1, 3) == floats{2.5F, 5, 3});
  }
}
