// What a layer does besides products with packed weights, at the sizes of a model of width 1024.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_layer_data.hpp"

namespace deepinfer {
namespace {

using namespace bench_layer;

constexpr std::int64_t streams = 4, mixes = (2 + streams) * streams;
constexpr std::int32_t experts = 64, experts_per_token = 6;

case_source attention_case(const kernels::ops& ops, std::int64_t rows) {
  return case_of<attention_data>(kernels::sparse_attention_args::op_name, attention_shape(), rows,
                                 [&ops](const stream_ref& stream, attention_data& data) {
                                   ops.sparse_attention(stream, data.sparse_args());
                                 });
}

case_source index_case(const kernels::ops& ops, std::int64_t rows) {
  return case_of<index_data>(kernels::index_scores_args::op_name, index_shape(), rows,
                             [&ops](const stream_ref& stream, index_data& data) {
                               ops.index_scores(stream, data.score_args());
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
      angles(equal_angles(tokens)) {}
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
