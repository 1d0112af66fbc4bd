/// Engram: hashed n-gram rows added to the residual streams.
///
/// ngram_ids: c_k = class of the token at position p - k (pad_class before the start), k < n;
///   r_1 = c_0 * mu_0, r_i = r_{i-1} xor (c_{i-1} * mu_{i-1}); for i = 2..n and head h, column
///   q = heads * (i - 2) + h: id = r_i mod prime[q] + offset[q]. Products must stay below 2^63.
///   The history is the paged token ids, this step's included. A padding token gets -1 throughout.
/// engram_gate: kv holds S keys of D, then one value of D. Per stream, in f32:
///   rho = sum X q_weight k_weight key / sqrt(mean X^2 + eps) / sqrt(mean key^2 + eps) / sqrt(D)
///   g = sigmoid(copysign(sqrt(max(|rho|, 1e-6)), rho)),  X <- X + g * value (bf16 rounds once)
/// Every twin has the same bits. Shapes: history paged [blocks, block_size] i32; id [tokens, (n-1)
/// * heads] i64; x [tokens, S, D]; kv [tokens, (S+1) * D]; q_weight, k_weight [S, D] f32. Looking
/// rows up is `lookup`. Limits: n <= max_ngram.
/// Source: model-v41.md 10, 4.4 points 2 and 4.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

inline constexpr std::int32_t max_ngram = 16;

struct ngram_ids_args {
  static constexpr const char* op_name = "ngram_ids";
  batch_view batch;
  const std::int32_t* history = nullptr;      ///< [blocks, block_size]
  const std::int32_t* token_class = nullptr;  ///< [vocab]
  std::int32_t vocab = 0;                     ///< ids outside [0, vocab) count as pad_class
  std::int32_t pad_class = 0;
  std::int32_t ngram = 0;  ///< n
  std::int32_t heads = 0;
  const std::int64_t* multiplier = nullptr;  ///< [n]
  const std::int64_t* prime = nullptr;       ///< [(n - 1) * heads]
  const std::int64_t* offset = nullptr;      ///< [(n - 1) * heads]
  std::int64_t* id = nullptr;                ///< [tokens, (n - 1) * heads]
};
void ngram_ids_ref(const stream_ref&, const ngram_ids_args&);

struct engram_gate_args {
  static constexpr const char* op_name = "engram_gate";
  float* x = nullptr;
  const float* kv = nullptr;
  const float* q_weight = nullptr;
  const float* k_weight = nullptr;
  std::int64_t tokens = 0;
  std::int32_t streams = 4;
  std::int64_t dim = 0;
  float eps = 0;
  bool bf16 = false;
};
void engram_gate_ref(const stream_ref&, const engram_gate_args&);
void engram_gate_avx2(const stream_ref&, const engram_gate_args&);

}  // namespace deepinfer::kernels
