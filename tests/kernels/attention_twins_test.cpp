// Attention over ragged shapes: rounding against numbers in double, bits against the reference,
// and the fused op against its parts.
#include "attention_support.hpp"

#include <algorithm>

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

/// A step with two sequences, padding and a token that sees nothing selected. Buffers have exactly
/// the size that the op may read.
struct attention_world {
  std::int64_t heads, dim, k;
  std::int32_t window, ratio;
  test_batch batch{3, 40, 8};
  floats q, step_rows, ring, memory, sink;
  ints selected;

  attention_world(std::int64_t head_count, std::int64_t width, std::int32_t window_size,
                  std::int32_t pool_ratio, std::int64_t list)
    : heads(head_count),
      dim(width),
      k(list),
      window(window_size),
      ratio(pool_ratio) {
    batch.padding(1).row(2, 301, 3).padding(1).row(0, 0, 2).row(1, 63, 1);
    const auto tokens = batch.tokens();
    const auto seed = static_cast<std::uint64_t>(heads * 1000 + dim);
    q = noise(seed, tokens * heads * dim, 1.5F);
    step_rows = noise(seed + 1, tokens * dim);
    ring = noise(seed + 2, 3 * window * dim);
    sink = noise(seed + 3, heads, 3);
    if (ratio > 0) memory = noise(seed + 4, batch.blocks() * 8 / ratio * dim);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t i = 0; i < k; ++i) {
        const auto row = static_cast<std::int32_t>(i + i / 5);
        const bool is_listed = i % 9 != 4 && row < (batch.position[size(t)] + 1) / ratio;
        selected.push_back(is_listed ? row : -1);
      }
  }

  sparse_attention_args args(const float* queries, float* o, bool bf16) const {
    return {.batch = batch.view(),
            .q = queries,
            .step_rows = step_rows.data(),
            .ring = ring.data(),
            .ring_size = window,
            .window = window,
            .ratio = ratio,
            .memory = memory.data(),
            .selected = selected.data(),
            .selected_count = k,
            .sink = sink.data(),
            .scale = .4F,
            .o = o,
            .heads = heads,
            .dim = dim,
            .bf16 = bf16};
  }

  floats run(const named_twin<sparse_attention_args>& attention, const stream_ref& stream,
             bool bf16) const {
    floats o(q.size(), unset);
    attention(stream, args(q.data(), o.data(), bf16));
    return o;
  }

  std::vector<const float*> rows_of_token(std::int64_t t) const {
    std::vector<const float*> list;
    const auto slot = batch.slot[size(t)], position = batch.position[size(t)];
    if (slot < 0 || position < 0) return list;
    for (auto p = std::max(0, position - window + 1); p <= position; ++p) {
      const auto since = p - batch.first_position[size(t)];
      list.push_back(since >= 0 ? step_rows.data() + (batch.first_token[size(t)] + since) * dim
                                : ring.data() + (slot * window + p % window) * dim);
    }
    for (std::int64_t i = 0; i < k; ++i)
      if (const auto row = selected[size(t * k + i)]; row >= 0)
        list.push_back(memory.data() + batch.view().paged_index(t, row, ratio) * dim);
    return list;
  }

  rounding_check check(const floats& o) const {
    rounding_check out;
    for (std::int64_t item = 0; item < batch.tokens() * heads; ++item) {
      const auto list = rows_of_token(item / heads);
      const float bias = sink[size(item % heads)], *x = q.data() + item * dim;
      out.add(rows_of(o, item, 1, dim), plain_attention<float>(x, list, bias, .4F, dim),
              plain_attention<double>(x, list, bias, .4F, dim));
    }
    return out;
  }
};

struct shape {
  std::int64_t heads, dim;
  std::int32_t window, ratio;
  std::int64_t k;
};

const shape shapes[] = {{1, 1, 1, 1, 3},        {2, 7, 5, 2, 70},    {3, 8, 64, 1, 64},
                        {4, 9, 65, 1, 1},       {5, 32, 3, 2, 61},   {7, 33, 128, 1, 9},
                        {8, 40, 17, 4, 5},      {33, 65, 9, 1, 4},   {70, 24, 12, 2, 20},
                        {16, 128, 128, 2, 150}, {6, 512, 20, 1, 90}, {4, 31, 130, 0, 0},
                        {9, 16, 62, 1, 3}};

/// Drafts of three sequences, one of them absent.
struct draft_world {
  std::int64_t heads, dim;
  std::int32_t window, drafts;
  ints slot{2, -1, 0}, position{40, 3, 1};
  floats q, rows, ring, sink;

  draft_world(std::int64_t head_count, std::int64_t width, std::int32_t size_of_window,
              std::int32_t count)
    : heads(head_count),
      dim(width),
      window(size_of_window),
      drafts(count) {
    q = noise(1, 3 * drafts * heads * dim);
    rows = noise(2, 3 * drafts * dim);
    ring = noise(3, 3 * (window + 2) * dim);
    sink = noise(4, heads);
  }

  block_attention_args args(const float* queries, float* o, bool bf16) const {
    return {.sequences = 3,
            .block = drafts,
            .slot = slot.data(),
            .position = position.data(),
            .q = queries,
            .block_rows = rows.data(),
            .ring = ring.data(),
            .ring_size = window + 2,
            .window = window,
            .sink = sink.data(),
            .scale = .3F,
            .o = o,
            .heads = heads,
            .dim = dim,
            .bf16 = bf16};
  }
};

}  // namespace

TEST_CASE("sparse_attention on ragged shapes errs at most twice as much as a plain f32 loop") {
  for (const auto& twin : DI_TWINS(sparse_attention))
    for (const auto& it : shapes) {
      CAPTURE(twin.name);
      CAPTURE(it.heads);
      CAPTURE(it.dim);
      const attention_world world(it.heads, it.dim, it.window, it.ratio, it.k);
      const auto o =
        on_every_team([&](const stream_ref& stream) { return world.run(twin, stream, false); });
      const auto errors = world.check(o);
      CAPTURE(errors.twin);
      CAPTURE(errors.plain);
      CHECK(errors.holds());
      CHECK(errors.plain > 0);
    }
}

TEST_CASE("sparse_attention, released, has the reference's bits in every twin") {
  for (const auto& twin : DI_TWINS(sparse_attention))
    for (const auto& it : shapes) {
      CAPTURE(twin.name);
      CAPTURE(it.heads);
      CAPTURE(it.dim);
      const attention_world world(it.heads, it.dim, it.window, it.ratio, it.k);
      const auto o =
        on_every_team([&](const stream_ref& stream) { return world.run(twin, stream, true); });
      CHECK(same_bits(o, world.run({"reference", sparse_attention_ref}, {}, true)));
    }
}

TEST_CASE("sparse_attention: logits and sinks far apart leave finite weights that sum to one") {
  test_batch batch(1, 1, 8);
  batch.row(0, 2, 1);
  const std::int64_t dim = 8;
  floats rows(size(3 * dim), 0), q(size(4 * dim), 1);
  for (std::int64_t d = 0; d < dim; ++d) rows[size(2 * dim + d)] = 4000;  // 32000 above the others
  for (std::int64_t d = 0; d < dim; ++d) q[size(3 * dim + d)] = -1;       // the other way round
  const floats sink{-infinity, 0, 1e30F, -1e30F};
  for (const auto& twin : DI_TWINS(sparse_attention)) {
    CAPTURE(twin.name);
    floats o(q.size(), unset);
    batch.first_position[0] = 0;
    batch.position[0] = 2;
    twin({}, {.batch = batch.view(),
              .q = q.data(),
              .step_rows = rows.data(),
              .ring_size = 3,
              .window = 3,
              .sink = sink.data(),
              .scale = 1,
              .o = o.data(),
              .heads = 4,
              .dim = dim});
    CHECK(rows_of(o, 0, 1, dim) == floats(size(dim), 4000));
    CHECK(rows_of(o, 1, 1, dim) == floats(size(dim), 4000));
    CHECK(rows_of(o, 2, 1, dim) == floats(size(dim), 0));
    CHECK(rows_of(o, 3, 1, dim) == floats(size(dim), 0));
  }
}

TEST_CASE("sparse_attention: a NaN in a listed row shows in every head") {
  for (const auto& twin : DI_TWINS(sparse_attention)) {
    CAPTURE(twin.name);
    attention_world world(5, 40, 17, 1, 70);
    const auto listed = world.selected[size(1 * world.k + 60)];  // token 1, in a later tile
    REQUIRE(listed >= 0);
    world.memory[size(world.batch.view().paged_index(1, listed, 1) * world.dim + 33)] = unset;
    const auto o = world.run(twin, {}, false);
    for (std::int64_t h = 0; h < 5; ++h) CHECK(std::isnan(o[size((5 + h) * world.dim + 33)]));
  }
}

TEST_CASE("block_attention of any number of heads errs at most twice as much as a plain f32 loop, "
          "and released has the reference's bits") {
  for (const auto& twin : DI_TWINS(block_attention))
    for (const auto& [heads, dim, window, drafts] :
         {std::array{1, 20, 5, 1}, {3, 9, 70, 5}, {16, 64, 64, 8}, {5, 130, 1, 3}}) {
      CAPTURE(twin.name);
      CAPTURE(heads);
      const draft_world world(heads, dim, window, drafts);
      const auto run = [&](const auto& attention, const stream_ref& stream, bool bf16) {
        floats o(world.q.size(), unset);
        attention(stream, world.args(world.q.data(), o.data(), bf16));
        return o;
      };
      const auto o = on_every_team([&](const stream_ref& s) { return run(twin, s, false); });
      rounding_check errors;
      for (std::int64_t item = 0; item < 3 * drafts * heads; ++item) {
        const auto sequence = item / (drafts * heads);
        const auto slot = world.slot[size(sequence)], position = world.position[size(sequence)];
        std::vector<const float*> list;
        for (auto p = std::max(0, position - window + 1); slot >= 0 && p <= position; ++p)
          list.push_back(world.ring.data() + (slot * (window + 2) + p % (window + 2)) * dim);
        for (std::int64_t i = 0; slot >= 0 && i < drafts; ++i)
          list.push_back(world.rows.data() + (sequence * drafts + i) * dim);
        const float sink = world.sink[size(item % heads)], *q = world.q.data() + item * dim;
        errors.add(rows_of(o, item, 1, dim), plain_attention<float>(q, list, sink, .3F, dim),
                   plain_attention<double>(q, list, sink, .3F, dim));
      }
      CHECK(errors.holds());
      const auto rounded = on_every_team([&](const stream_ref& s) { return run(twin, s, true); });
      CHECK(same_bits(rounded, run(block_attention_ref, {}, true)));
    }
}

TEST_CASE("attend_rows is rope, attention, inverse rope and to_int8, bit for bit") {
  const std::int32_t rotary = 8;
  const auto attentions = DI_TWINS(sparse_attention);
  const auto blocks = DI_TWINS(block_attention);
  const auto fused = DI_TWINS(attend_rows);
  for (std::size_t twin = 0; twin < fused.size(); ++twin)
    for (const bool is_sparse : {true, false})
      for (const bool bf16 : {false, true})
        for (const std::int64_t dim : {32, 40}) {
          CAPTURE(fused[twin].name);
          CAPTURE(is_sparse);
          CAPTURE(bf16);
          const std::int64_t heads = 5;
          const attention_world world(heads, dim, 9, 2, 70);
          const draft_world drafts(heads, dim, 9, 3);
          const auto& queries = is_sparse ? world.q : drafts.q;
          const auto tokens = static_cast<std::int64_t>(queries.size()) / heads / dim;
          const auto angles = noise(7, tokens * rotary);
          auto q = queries;
          floats o(q.size(), unset), scales(q.size() / 32, unset);
          std::vector<std::int8_t> codes(q.size(), 1);
          rope_args rope{q.data(), angles.data(), tokens, heads, dim, rotary, false, bf16};
          rope_ref({}, rope);
          if (is_sparse)
            attentions[twin]({}, world.args(q.data(), o.data(), bf16));
          else
            blocks[twin]({}, drafts.args(q.data(), o.data(), bf16));
          rope.x = o.data();
          rope.inverse = true;
          rope_ref({}, rope);
          const bool with_codes = dim == 32;
          if (with_codes)
            to_int8_ref({}, {o.data(), codes.data(), scales.data(), tokens * heads, dim});

          std::vector<std::int8_t> all_codes;
          const auto got = on_every_team([&](const stream_ref& stream) {
            auto x = queries;
            floats out(q.size(), unset), code_scales(q.size() / 32, unset);
            all_codes.assign(q.size(), 1);
            attend_rows_args args;
            if (is_sparse)
              args.sparse = world.args(x.data(), out.data(), bf16);
            else
              args.block = drafts.args(x.data(), out.data(), bf16);
            args.q = x.data();
            args.angles = angles.data();
            args.rotary = rotary;
            if (with_codes) {
              args.codes = all_codes.data();
              args.scales = code_scales.data();
            }
            fused[twin](stream, args);
            CHECK(same_bits(x, q));
            CHECK(same_bits(code_scales, scales));
            return out;
          });
          CHECK(same_bits(got, o));
          CHECK(all_codes == codes);
        }
}

TEST_CASE("the cost of attention counts each listed row once per token") {
  const attention_world world(5, 40, 17, 2, 70);
  std::int64_t rows = 0;
  for (std::int64_t t = 0; t < world.batch.tokens(); ++t)
    rows += static_cast<std::int64_t>(world.rows_of_token(t).size());
  const auto cost = world.args(nullptr, nullptr, false).cost();
  CHECK(cost.bytes == rows * 40 * 4);
  CHECK(cost.flops == rows * 40 * 5 * 4);
  CHECK(cost.int8_ops == 0);
  const draft_world drafts(2, 16, 5, 3);
  const auto of_block = drafts.args(nullptr, nullptr, false).cost();
  CHECK(of_block.bytes == (5 + 3 + 2 + 3) * 16 * 4);
  CHECK(of_block.flops == (5 + 3 + 2 + 3) * 16 * 4 * 2 * 3);
}
