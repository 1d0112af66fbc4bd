/// Data that the cases of a layer's ops run on: a decode step of a model of width 1024 whose
/// sequences are 4096 positions long.
///
/// Every token is a sequence of its own. Sequences share all blocks of compressed rows except the
/// last, which ops may write; rings are their own. Values are random in [-1, 1) and fixed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/node/bench/bench_kernels.hpp"

namespace deepinfer::bench_layer {

using floats = std::vector<float>;
using ints = std::vector<std::int32_t>;

inline constexpr std::int64_t dim = 1024, heads = 16, head_dim = 256, q_rank = 256;
inline constexpr std::int32_t rotary = 32;
inline constexpr std::int32_t window = 128, visible_rows = 4096, block_size = 64;
inline constexpr std::int64_t index_heads = 8, index_dim = 64, selected_rows = 512;

floats noise(std::int64_t count, float scale = 1);
/// Angles of one rotation for all: what is rotated in place stays as large.
floats equal_angles(std::int64_t tokens);
/// Rows of the paged memory that `tokens` sequences at visible_rows positions take.
std::int64_t paged_rows(std::int64_t tokens);

struct decode_batch {
  explicit decode_batch(std::int64_t tokens);
  kernels::batch_view view() const;

  static constexpr std::int32_t blocks = visible_rows / block_size;  ///< of a sequence
  ints slot, position, first, table;
};

struct attention_data {
  explicit attention_data(std::int64_t tokens);
  kernels::sparse_attention_args sparse_args();

  decode_batch batch;
  floats q, step_rows, ring, memory, sink, o, angles;
  ints selected;
  std::vector<std::int8_t> codes;
  floats scales;
};
std::string attention_shape();

struct index_data {
  explicit index_data(std::int64_t tokens);
  kernels::index_scores_args score_args();

  decode_batch batch;
  floats query, weight, keys, score;
  ints selected;
};
std::string index_shape();

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

}  // namespace deepinfer::bench_layer
