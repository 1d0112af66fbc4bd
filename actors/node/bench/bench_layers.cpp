// What a layer does besides products with packed weights, at the sizes of a model of width 1024.
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_kernels.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

using floats = std::vector<float>;
using ints = std::vector<std::int32_t>;

constexpr std::int64_t dim = 1024, streams = 4, mixes = (2 + streams) * streams;
constexpr std::int64_t heads = 16, head_dim = 256;
constexpr std::int32_t rotary = 32;
constexpr std::int32_t window = 128, visible_rows = 4096, block_size = 64;
constexpr std::int64_t index_heads = 8, index_dim = 64, selected_rows = 512;
constexpr std::int32_t experts = 64, experts_per_token = 6;

floats noise(std::int64_t count, float scale = 1) {
  floats out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] =
      scale * static_cast<float>(2 * unit_real(static_cast<std::uint32_t>(split_mix64(i + 7))) - 1);
  return out;
}

/// A decode step: every token a sequence of its own at position visible_rows - 1. All sequences
/// share their blocks, as reading does not mind.
struct decode_batch {
  explicit decode_batch(std::int64_t tokens)
    : slot(static_cast<std::size_t>(tokens)),
      position(slot.size(), visible_rows - 1),
      first(slot.size()),
      table(slot.size() * blocks) {
    std::iota(slot.begin(), slot.end(), 0);
    first = slot;
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<std::int32_t>(i * 7 % blocks);
  }
  kernels::batch_view view() const {
    return {static_cast<std::int32_t>(slot.size()),
            slot.data(),
            position.data(),
            first.data(),
            position.data(),
            table.data(),
            blocks,
            block_size};
  }

  static constexpr std::int32_t blocks = visible_rows / block_size;
  ints slot, position, first, table;
};

/// A case over `data`, which `run(stream, data)` may write.
template <class Data, class Run>
case_source case_of(const char* name, std::string shape, std::int64_t rows, Run run) {
  return {name, [name, shape, rows, run]() -> result<kernel_case> {
            auto data = std::make_shared<Data>(rows);
            kernel_case it;
            it.name = name;
            it.shape = shape;
            it.rows = rows;
            it.run = [data, run](const stream_ref& stream, std::int64_t) { run(stream, *data); };
            return it;
          }};
}

struct attention_data {
  explicit attention_data(std::int64_t tokens)
    : batch(tokens),
      q(noise(tokens * heads * head_dim)),
      step_rows(noise(tokens * head_dim)),
      ring(noise(tokens * window * head_dim)),
      memory(noise(std::int64_t{visible_rows} * head_dim)),
      sink(noise(heads)),
      o(q.size()),
      selected(static_cast<std::size_t>(tokens * selected_rows)) {
    for (std::size_t i = 0; i < selected.size(); ++i)
      selected[i] = static_cast<std::int32_t>(i % selected_rows * (visible_rows / selected_rows));
  }
  decode_batch batch;
  floats q, step_rows, ring, memory, sink, o;
  ints selected;
};

case_source attention_case(const kernels::ops& ops, std::int64_t rows) {
  const auto shape =
    fmt::format("{} heads of {}, {} + {} rows", heads, head_dim, window, selected_rows);
  return case_of<attention_data>(kernels::sparse_attention_args::op_name, shape, rows,
                                 [&ops](const stream_ref& stream, attention_data& data) {
                                   kernels::sparse_attention_args args;
                                   args.batch = data.batch.view();
                                   args.q = data.q.data();
                                   args.step_rows = data.step_rows.data();
                                   args.ring = data.ring.data();
                                   args.ring_size = window;
                                   args.window = window;
                                   args.ratio = 1;
                                   args.memory = data.memory.data();
                                   args.selected = data.selected.data();
                                   args.selected_count = selected_rows;
                                   args.sink = data.sink.data();
                                   args.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
                                   args.o = data.o.data();
                                   args.heads = heads;
                                   args.dim = head_dim;
                                   ops.sparse_attention(stream, args);
                                 });
}

struct index_data {
  explicit index_data(std::int64_t tokens)
    : batch(tokens),
      query(noise(tokens * index_heads * index_dim)),
      weight(noise(tokens * index_heads)),
      keys(noise(std::int64_t{visible_rows} * index_dim)),
      score(noise(tokens * visible_rows)),
      selected(static_cast<std::size_t>(tokens * selected_rows)) {}
  decode_batch batch;
  floats query, weight, keys, score;
  ints selected;
};

case_source index_case(const kernels::ops& ops, std::int64_t rows) {
  const auto shape = fmt::format("{} heads of {}, {} rows", index_heads, index_dim, visible_rows);
  return case_of<index_data>(kernels::index_scores_args::op_name, shape, rows,
                             [&ops](const stream_ref& stream, index_data& data) {
                               kernels::index_scores_args args;
                               args.batch = data.batch.view();
                               args.count = args.batch.tokens;
                               args.query = data.query.data();
                               args.weight = data.weight.data();
                               args.keys = data.keys.data();
                               args.heads = index_heads;
                               args.dim = index_dim;
                               args.score = data.score.data();
                               args.row_limit = visible_rows;
                               ops.index_scores(stream, args);
                             });
}

case_source top_rows_case(const kernels::ops& ops, std::int64_t rows) {
  const auto shape = fmt::format("{} of {} rows", selected_rows, visible_rows);
  return case_of<index_data>(kernels::top_rows_args::op_name, shape, rows,
                             [&ops](const stream_ref& stream, index_data& data) {
                               kernels::top_rows_args args;
                               args.batch = data.batch.view();
                               args.count = args.batch.tokens;
                               args.score = data.score.data();
                               args.row_limit = visible_rows;
                               args.k = selected_rows;
                               args.selected = data.selected.data();
                               ops.top_rows(stream, args);
                             });
}

struct stream_data {
  explicit stream_data(std::int64_t count)
    : tokens(count),
      x(noise(count * streams * dim)),
      o(noise(count * dim)),
      hidden(o.size()),
      norm(noise(dim)),
      fn_cells(noise(kernel_rows * streams * dim, 0.02F)),
      base(noise(mixes)),
      scale(noise(3)),
      z(static_cast<std::size_t>(count * mixes)),
      pre(static_cast<std::size_t>(count * streams), 0.25F),
      post(pre.size(), 0.5F),
      comb(pre.size() * streams, 0.2F) {  // sums below 1: x stays bounded
    fn = {kernels::panel_type::f32, mixes, streams * dim,
          reinterpret_cast<const std::byte*>(fn_cells.data())};
  }
  static constexpr std::int64_t kernel_rows =
    (mixes + kernels::panel_width - 1) / kernels::panel_width * kernels::panel_width;

  std::int64_t tokens;
  floats x, o, hidden, norm, fn_cells, base, scale, z, pre, post, comb;
  floats made_pre = pre, made_post = post, made_comb = comb;
  kernels::packed_matrix fn;
};

kernels::hyper_mix_args mix_of(stream_data& data) {
  kernels::hyper_mix_args args;
  args.x = data.x.data();
  args.fn = &data.fn;
  args.z = data.z.data();
  args.dim = dim;
  args.rms_eps = 1e-6F;
  args.split.base = data.base.data();
  args.split.scale = data.scale.data();
  args.split.pre = data.made_pre.data();
  args.split.post = data.made_post.data();
  args.split.comb = data.made_comb.data();
  args.split.tokens = data.tokens;
  args.split.hc_eps = 1e-6F;
  return args;
}

kernels::collapse_args collapse_of(stream_data& data) {
  return {data.x.data(), data.pre.data(), data.hidden.data(), data.tokens, streams, dim};
}

kernels::hyper_post_args post_of(stream_data& data) {
  kernels::hyper_post_args args;
  args.x = data.x.data();
  args.o = data.o.data();
  args.post = data.post.data();
  args.comb = data.comb.data();
  args.tokens = data.tokens;
  args.dim = dim;
  return args;
}

kernels::rms_norm_args norm_of(stream_data& data) {
  kernels::rms_norm_args args;
  args.x = data.o.data();
  args.weight = data.norm.data();
  args.y = data.hidden.data();
  args.rows = data.tokens;
  args.dim = dim;
  args.eps = 1e-6F;
  return args;
}

/// From the output of one sublayer to the normed input of the next.
void run_sublayer(const kernels::ops& ops, const stream_ref& stream, stream_data& data) {
  const auto post = post_of(data);
  const auto mix = mix_of(data);
  const auto collapse = collapse_of(data);
  auto norm = norm_of(data);
  norm.x = data.hidden.data();
  kernels::sublayer_args args;
  args.tokens = data.tokens;
  args.post = &post;
  args.mix = &mix;
  args.collapse = &collapse;
  args.norm = &norm;
  ops.sublayer(stream, args);
}

std::vector<case_source> stream_cases(const kernels::ops& ops, std::int64_t rows) {
  const auto shape = fmt::format("{} streams of {}", streams, dim);
  const auto row_shape = fmt::format("{}", dim);
  const auto on_streams = [&](const char* name, auto run) {
    return case_of<stream_data>(name, shape, rows, run);
  };
  const auto on_rows = [&](const char* name, auto run) {
    return case_of<stream_data>(name, row_shape, rows, run);
  };
  return {
    on_streams(
      kernels::sublayer_args::op_name,
      [&ops](const stream_ref& stream, stream_data& data) { run_sublayer(ops, stream, data); }),
    on_streams(
      kernels::hyper_mix_args::op_name,
      [&ops](const stream_ref& stream, stream_data& data) { ops.hyper_mix(stream, mix_of(data)); }),
    on_streams(kernels::collapse_args::op_name,
               [&ops](const stream_ref& stream, stream_data& data) {
                 ops.collapse(stream, collapse_of(data));
               }),
    on_streams(kernels::hyper_post_args::op_name,
               [&ops](const stream_ref& stream, stream_data& data) {
                 ops.hyper_post(stream, post_of(data));
               }),
    on_rows(
      kernels::rms_norm_args::op_name,
      [&ops](const stream_ref& stream, stream_data& data) { ops.rms_norm(stream, norm_of(data)); }),
    on_rows(kernels::quantise_args::op_name, [&ops](const stream_ref& stream, stream_data& data) {
      ops.quantise(stream,
                   {data.o.data(), data.hidden.data(), data.tokens, dim, kernels::quantiser::q8});
    })};
}

struct rope_data {
  explicit rope_data(std::int64_t tokens)
    : x(noise(tokens * heads * head_dim)),
      angles(static_cast<std::size_t>(tokens * rotary)) {
    for (std::size_t i = 0; i < angles.size(); i += 2) {  // a rotation, so x stays as large
      angles[i] = 0.6F;
      angles[i + 1] = 0.8F;
    }
  }
  floats x, angles;
};

case_source rope_case(const kernels::ops& ops, std::int64_t rows) {
  return case_of<rope_data>(
    kernels::rope_args::op_name, fmt::format("{} heads of {}, {} rotary", heads, head_dim, rotary),
    rows, [&ops, rows](const stream_ref& stream, rope_data& data) {
      ops.rope(stream, {data.x.data(), data.angles.data(), rows, heads, head_dim, rotary});
    });
}

struct route_data {
  explicit route_data(std::int64_t tokens)
    : batch(tokens),
      logits(noise(tokens * experts, 4)),
      bias(experts),
      weight(static_cast<std::size_t>(tokens * experts_per_token)),
      id(weight.size()) {}
  decode_batch batch;
  floats logits, bias, weight;
  ints id;
};

case_source route_case(const kernels::ops& ops, std::int64_t rows) {
  return case_of<route_data>(kernels::route_args::op_name,
                             fmt::format("{} of {} experts", experts_per_token, experts), rows,
                             [&ops](const stream_ref& stream, route_data& data) {
                               kernels::route_args args;
                               args.batch = data.batch.view();
                               args.logits = data.logits.data();
                               args.bias = data.bias.data();
                               args.experts = experts;
                               args.k = experts_per_token;
                               args.id = data.id.data();
                               args.weight = data.weight.data();
                               ops.route(stream, args);
                             });
}

}  // namespace

std::vector<case_source> layer_cases(const kernels::ops& ops, std::span<const std::int32_t> rows) {
  std::vector<case_source> out;
  for (const auto count : rows) {
    out.push_back(attention_case(ops, count));
    out.push_back(index_case(ops, count));
    out.push_back(top_rows_case(ops, count));
    for (auto& it : stream_cases(ops, count)) out.push_back(std::move(it));
    out.push_back(rope_case(ops, count));
    out.push_back(route_case(ops, count));
  }
  return out;
}

}  // namespace deepinfer
