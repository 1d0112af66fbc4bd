// The fused row stages of the attention sublayer against the ops that they stand for.
#include "attention_support.hpp"

#include <algorithm>

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr std::int32_t rotary = 6;
constexpr std::int64_t latent_dim = 75, dim = 40;

/// Everything a step's rows are made from and into; copied for each run.
struct rows_world {
  std::int64_t tokens;
  std::int32_t ratio;
  floats query, query_rounded, row, value, score, latent, memory_row, angles, ring, memory, weight;
  floats query_scales, latent_scales;
  std::vector<std::int8_t> query_codes, latent_codes;
  ints row_position;

  rows_world(const test_batch& batch, std::int32_t pool_ratio)
    : tokens(batch.tokens()),
      ratio(pool_ratio) {
    query = noise(1, tokens * latent_dim);
    query_rounded = floats(query.size(), unset);
    row = noise(2, tokens * dim);
    value = noise(3, tokens * dim);
    score = noise(4, tokens * dim, 3);
    latent = floats(row.size(), unset);
    memory_row = latent;
    angles = noise(5, tokens * rotary);
    ring = noise(6, 4 * ratio * 2 * dim);
    memory = floats(size(batch.blocks() * 8 / ratio * dim), 9);
    weight = noise(7, latent_dim);
    query_codes.assign(size(tokens * int8_padded(latent_dim)), 1);
    query_scales = floats(size(tokens * int8_padded(latent_dim) / 32), 9);
    latent_codes.assign(size(tokens * int8_padded(dim)), 1);
    latent_scales = floats(size(tokens * int8_padded(dim) / 32), 9);
    row_position = ints(size(tokens), 77);
    group_positions_ref({}, {batch.view(), ratio, row_position.data()});
  }

  rms_norm_args norm(floats& x, std::int64_t width, bool bf16) const {
    return {x.data(), weight.data(), x.data(), tokens, width, 0, 0, 1e-6F, bf16};
  }
  rope_args rope(floats& x, bool bf16) const {
    return {x.data(), angles.data(), tokens, 1, dim, rotary, false, bf16};
  }

  memory_rows_args args(const test_batch& batch, bool released, bool fast) {
    memory_rows_args a;
    a.tokens = tokens;
    a.query_norm = norm(query, latent_dim, released);
    a.row_norm = norm(row, dim, released);
    a.row_rope = rope(row, released);
    a.pool = {batch.view(), ratio, value.data(),  score.data(), ring.data(),
              ratio,        dim,   latent.data(), released};
    a.latent_norm = norm(latent, dim, released);
    a.memory_copy = {latent.data(), memory_row.data(), tokens, dim, quantiser::none};
    a.memory_rope = rope(memory_row, released);
    a.append = {batch.view(), ratio, row_position.data(), memory_row.data(), memory.data(), dim};
    if (fast) {
      a.query_int8 = {query.data(), query_codes.data(), query_scales.data(), tokens, latent_dim};
      a.latent_int8 = {latent.data(), latent_codes.data(), latent_scales.data(), tokens, dim};
    }
    if (!released) return a;
    a.query_round = {query.data(), query_rounded.data(), tokens, latent_dim, quantiser::q8};
    a.row_round = {row.data(), row.data(), tokens, dim, quantiser::q8};
    a.memory_round = {memory_row.data(), memory_row.data(), tokens, dim, quantiser::q4_memory};
    return a;
  }

  /// All that was written, in one array.
  floats written() const {
    floats out;
    for (const auto* part : {&query, &query_rounded, &row, &latent, &memory_row, &memory,
                             &query_scales, &latent_scales})
      out.insert(out.end(), part->begin(), part->end());
    out.insert(out.end(), query_codes.begin(), query_codes.end());
    out.insert(out.end(), latent_codes.begin(), latent_codes.end());
    return out;
  }
};

/// The twins of the stages beside a fused twin: references, or AVX2.
struct stage_twins {
  void (*norm)(const stream_ref&, const rms_norm_args&) = rms_norm_ref;
  void (*rope)(const stream_ref&, const rope_args&) = rope_ref;
  void (*round)(const stream_ref&, const quantise_args&) = quantise_ref;
  void (*int8)(const stream_ref&, const to_int8_args&) = to_int8_ref;
  void (*pool)(const stream_ref&, const pool_args&) = pool_ref;
};

stage_twins stages_of(std::size_t twin) {
#if defined(__x86_64__)
  if (twin == 1) return {rms_norm_avx2, rope_avx2, quantise_avx2, to_int8_avx2, pool_avx2};
#endif
  CHECK(twin == 0);
  return {};
}

test_batch batch_of(std::int64_t tokens) {
  test_batch batch;
  if (tokens == 1) batch.row(1, 7, 1);
  if (tokens == 2) batch.row(1, 6, 1).padding(1);
  if (tokens > 2)
    batch.row(1, 7, 5).padding(2).row(2, 0, static_cast<std::int32_t>(tokens) - 8).row(0, 63, 1);
  return batch;
}

}  // namespace

TEST_CASE(
  "memory_rows is its stages one after the other, bit for bit, and leaves out the unnamed") {
  const auto fused = DI_TWINS(memory_rows);
  for (std::size_t twin = 0; twin < fused.size(); ++twin)
    for (const std::int64_t tokens : {0, 1, 2, 9, 41})
      for (const std::int32_t ratio : {1, 2, 4})
        for (const bool released : {false, true})
          for (const bool fast : {false, true}) {
            CAPTURE(fused[twin].name);
            CAPTURE(tokens);
            CAPTURE(ratio);
            CAPTURE(released);
            const auto batch = batch_of(tokens);
            rows_world in_turn(batch, ratio);
            const auto op = stages_of(twin);
            const auto a = in_turn.args(batch, released, fast);
            op.norm({}, a.query_norm);
            if (released) op.round({}, a.query_round);
            if (fast) op.int8({}, a.query_int8);
            op.norm({}, a.row_norm);
            op.rope({}, a.row_rope);
            if (released) op.round({}, a.row_round);
            op.pool({}, a.pool);
            op.norm({}, a.latent_norm);
            if (fast) op.int8({}, a.latent_int8);
            op.round({}, a.memory_copy);
            op.rope({}, a.memory_rope);
            if (released) op.round({}, a.memory_round);
            append_ref({}, a.append);
            const auto got = on_every_team([&](const stream_ref& stream) {
              rows_world world(batch, ratio);
              fused[twin](stream, world.args(batch, released, fast));
              return world.written();
            });
            CHECK(same_bits(got, in_turn.written()));
          }
}

TEST_CASE("memory_rows without a memory touches the queries and window rows alone") {
  for (const auto& twin : DI_TWINS(memory_rows)) {
    CAPTURE(twin.name);
    const auto batch = batch_of(12);
    rows_world world(batch, 2);
    const auto latent = world.latent, memory = world.memory, row = world.row;
    auto args = world.args(batch, false, false);
    args.pool = {};
    args.latent_norm = {};
    args.memory_copy = {};
    args.memory_rope = {};
    args.append = {};
    twin({}, args);
    CHECK(same_bits(world.latent, latent));
    CHECK(same_bits(world.memory, memory));
    CHECK_FALSE(same_bits(world.row, row));
  }
}

TEST_CASE("index_rows is its stages one after the other, bit for bit") {
  const auto fused = DI_TWINS(index_rows);
  for (std::size_t twin = 0; twin < fused.size(); ++twin)
    for (const std::int64_t tokens : {0, 1, 2, 9, 41})
      for (const std::int64_t heads : {1, 8, 13})
        for (const bool released : {false, true}) {
          CAPTURE(fused[twin].name);
          CAPTURE(tokens);
          CAPTURE(heads);
          const auto batch = batch_of(tokens);
          const rows_world world(batch, 2);
          const auto keys = noise(8, tokens * dim), queries = noise(9, tokens * heads * dim);
          const auto query_angles = noise(10, tokens * rotary);
          const auto args_of = [&](floats& key, floats& query, floats& memory) {
            index_rows_args a;
            a.tokens = tokens;
            a.key_norm = world.norm(key, dim, released);
            a.key_rope = world.rope(key, released);
            a.append = {batch.view(), 2, world.row_position.data(), key.data(), memory.data(), dim};
            a.query_rope = {query.data(), query_angles.data(), tokens, heads, dim, rotary, false,
                            released};
            if (!released) return a;
            a.key_round = {key.data(), key.data(), tokens, dim, quantiser::q4_index};
            a.query_round = {query.data(), query.data(), tokens * heads, dim, quantiser::q4_index};
            return a;
          };
          auto key = keys, query = queries, memory = world.memory;
          const auto op = stages_of(twin);
          const auto a = args_of(key, query, memory);
          op.norm({}, a.key_norm);
          op.rope({}, a.key_rope);
          if (released) op.round({}, a.key_round);
          append_ref({}, a.append);
          op.rope({}, a.query_rope);
          if (released) op.round({}, a.query_round);
          const auto got = on_every_team([&](const stream_ref& stream) {
            auto own_key = keys, own_query = queries, own_memory = world.memory;
            fused[twin](stream, args_of(own_key, own_query, own_memory));
            CHECK((tokens == 0 || same_bits(own_key, key)));
            CHECK((tokens == 0 || same_bits(own_query, query)));
            return own_memory;
          });
          CHECK(same_bits(got, memory));
        }
}

TEST_CASE("index_rows without queries appends keys alone") {
  for (const auto& twin : DI_TWINS(index_rows)) {
    CAPTURE(twin.name);
    const auto batch = batch_of(9);
    rows_world world(batch, 1);
    auto keys = noise(8, 9 * dim);
    index_rows_args args;
    args.tokens = 9;
    args.key_norm = world.norm(keys, dim, false);
    args.append = {batch.view(),        1,  world.row_position.data(), keys.data(),
                   world.memory.data(), dim};
    twin({}, args);
    const auto entry = batch.view().paged_index(0, 7, 1);
    CHECK(rows_of(world.memory, entry, 1, dim) == rows_of(keys, 0, 1, dim));
  }
}
