// What an attention sublayer runs between its products, as the model calls it: one op each.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_layer_data.hpp"

namespace deepinfer {
namespace {

using namespace bench_layer;

case_source attend_case(const kernels::ops& ops, std::int64_t rows, bool to_int8) {
  return case_of<attention_data>(kernels::attend_rows_args::op_name,
                                 attention_shape() + (to_int8 ? ", rope, to int8" : ", rope"), rows,
                                 [&ops, to_int8](const stream_ref& stream, attention_data& data) {
                                   kernels::attend_rows_args args;
                                   args.sparse = data.sparse_args();
                                   args.q = data.q.data();
                                   args.angles = data.angles.data();
                                   args.rotary = rotary;
                                   if (to_int8) {
                                     args.codes = data.codes.data();
                                     args.scales = data.scales.data();
                                   }
                                   ops.attend_rows(stream, args);
                                 });
}

case_source select_case(const kernels::ops& ops, std::int64_t rows) {
  return case_of<index_data>(kernels::select_rows_args::op_name,
                             fmt::format("{} of {}", selected_rows, index_shape()), rows,
                             [&ops, rows](const stream_ref& stream, index_data& data) {
                               kernels::select_rows_args args;
                               args.scores = data.score_args();
                               args.score_rows = rows;
                               args.k = selected_rows;
                               args.selected = data.selected.data();
                               ops.select_rows(stream, args);
                             });
}

constexpr std::int32_t pooled = 2;  // positions of a compressed row: each token completes one

struct memory_data {
  explicit memory_data(std::int64_t tokens)
    : batch(tokens),
      query(noise(tokens * q_rank)),
      window_rows(noise(tokens * head_dim)),
      value(noise(tokens * head_dim)),
      score(noise(tokens * head_dim)),
      ring(noise(tokens * pooled * 2 * head_dim)),
      latent(value.size()),
      rotated(value.size()),
      memory(noise(paged_rows(tokens) / pooled * head_dim)),
      norm(noise(head_dim > q_rank ? head_dim : q_rank)),
      angles(equal_angles(tokens)),
      row_position(static_cast<std::size_t>(tokens), visible_rows - pooled),
      codes(query.size()),
      scales(query.size() / kernels::int8_group) {}

  decode_batch batch;
  floats query, window_rows, value, score, ring, latent, rotated, memory, norm, angles;
  ints row_position;
  std::vector<std::int8_t> codes;
  floats scales;
};

kernels::rms_norm_args norm_in_place(memory_data& data, floats& x, std::int64_t rows,
                                     std::int64_t width) {
  kernels::rms_norm_args args;
  args.x = x.data();
  args.y = x.data();
  args.weight = data.norm.data();
  args.rows = rows;
  args.dim = width;
  args.eps = 1e-6F;
  return args;
}

void run_memory_rows(const kernels::ops& ops, const stream_ref& stream, memory_data& data,
                     std::int64_t rows, bool to_int8) {
  kernels::memory_rows_args args;
  args.tokens = rows;
  args.query_norm = norm_in_place(data, data.query, rows, q_rank);
  if (to_int8)
    args.query_int8 = {data.query.data(), data.codes.data(), data.scales.data(), rows, q_rank};
  args.row_norm = norm_in_place(data, data.window_rows, rows, head_dim);
  args.row_rope = {data.window_rows.data(), data.angles.data(), rows, 1, head_dim, rotary};
  args.pool.batch = data.batch.view();
  args.pool.ratio = pooled;
  args.pool.value = data.value.data();
  args.pool.score = data.score.data();
  args.pool.ring = data.ring.data();
  args.pool.ring_size = pooled;
  args.pool.dim = head_dim;
  args.pool.latent = data.latent.data();
  args.latent_norm = norm_in_place(data, data.latent, rows, head_dim);
  args.memory_copy = {data.latent.data(), data.rotated.data(), rows, head_dim,
                      kernels::quantiser::none};
  args.memory_rope = {data.rotated.data(), data.angles.data(), rows, 1, head_dim, rotary};
  args.append = {data.batch.view(),  pooled,  data.row_position.data(), data.rotated.data(),
                 data.memory.data(), head_dim};
  ops.memory_rows(stream, args);
}

case_source memory_case(const kernels::ops& ops, std::int64_t rows, bool to_int8) {
  const auto shape = fmt::format("query of {}{}, window row and compressed row of {}", q_rank,
                                 to_int8 ? " to int8" : "", head_dim);
  return case_of<memory_data>(kernels::memory_rows_args::op_name, shape, rows,
                              [&ops, rows, to_int8](const stream_ref& stream, memory_data& data) {
                                run_memory_rows(ops, stream, data, rows, to_int8);
                              });
}

}  // namespace

std::vector<case_source> attention_cases(const kernels::ops& ops,
                                         std::span<const std::int32_t> rows) {
  std::vector<case_source> out;
  for (const auto make : {memory_case, attend_case})
    for (const bool to_int8 : {false, true})
      for (const auto count : rows) out.push_back(make(ops, count, to_int8));
  for (const auto count : rows) out.push_back(select_case(ops, count));
  return out;
}

}  // namespace deepinfer
