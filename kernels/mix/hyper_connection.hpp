/// Hyper-connections (single pass): how the S residual streams are read and written.
///
/// One token, flat = its streams as S*D numbers, stream-major:
///   z = (fn flat) / sqrt(mean(flat^2) + rms_eps), (2 + S) * S numbers: a [S], b [S], C [S, S]
///   pre_j  = sigmoid(a_j * scale0 + base_j) + hc_eps
///   post_k = 2 * sigmoid(b_k * scale1 + base_{S+k})
///   M      = softmax over k of (C[j][k] * scale2 + base_{2S+Sj+k}), + hc_eps on each
///   M: columns / (sum + hc_eps), then (iterations - 1) times rows, columns / (sum + hc_eps)
///   collapse: y = sum_s w_s X_s
///   post: X'_k = post_k * o + sum_j M[j][k] * X_j, summed over the first index
/// Shapes: x [tokens, S, D]; pre, post, w [tokens, S]; comb [tokens, S, S]. Precision: f32;
/// collapse and post round to bf16 once if `bf16`. The last bit of z decides which way a bf16
/// stream entry on a border falls; so hyper_mix forms fn flat as fused_product does and the mean as
/// sum_in_eights does, the orders of the recorded released runs; every twin has the same bits.
/// Limits: S <= max_streams. Source: model-v41.md 6, 4.4 points 5, 6, 21.
#pragma once

#include <cstdint>

#include "kernels/linear/packed_matrix.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

inline constexpr std::int32_t max_streams = 8;

/// Aborts on a number of streams beyond the limit.
void check_streams(std::int32_t streams);

/// Scratch of one token in hyper_mix_args::partial.
constexpr std::int64_t mix_partial_floats(std::int32_t streams, std::int64_t dim) {
  const std::int64_t runs = (streams * dim + 127) / 128;
  return runs * (((2 + streams) * streams + 7) / 8 * 8);
}

struct hyper_split_args {
  static constexpr const char* op_name = "hyper_split";
  const float* z = nullptr;      ///< [tokens, (2 + S) * S], already divided by the root mean square
  const float* base = nullptr;   ///< [(2 + S) * S]
  const float* scale = nullptr;  ///< [3]
  float* pre = nullptr;
  float* post = nullptr;
  float* comb = nullptr;
  std::int64_t tokens = 0;
  std::int32_t streams = 4;
  std::int32_t iterations = 20;
  float hc_eps = 0;
};
void hyper_split_ref(const stream_ref&, const hyper_split_args&);
void hyper_split_avx2(const stream_ref&, const hyper_split_args&);

struct hyper_mix_args {
  static constexpr const char* op_name = "hyper_mix";
  const float* x = nullptr;           ///< [tokens, S, D]
  const packed_matrix* fn = nullptr;  ///< [(2 + S) * S, S * D] f32
  float* z = nullptr;                 ///< scratch [tokens, (2 + S) * S]
  std::int64_t dim = 0;               ///< D
  float rms_eps = 0;
  hyper_split_args split;  ///< its z is ignored; tokens and streams hold for all
  /// Scratch with which threads share the product when tokens are fewer than threads (only then is
  /// it written): [tokens, mix_partial_floats(S, D)]; null: they don't share.
  float* partial = nullptr;

  work_cost cost() const;
};
/// Aborts where `fn` does not fit the streams.
void check_hyper_mix(const hyper_mix_args&);
void hyper_mix_ref(const stream_ref&, const hyper_mix_args&);
void hyper_mix_avx2(const stream_ref&, const hyper_mix_args&);

struct collapse_args {
  static constexpr const char* op_name = "collapse";
  const float* x = nullptr;       ///< [tokens, S, D]
  const float* weight = nullptr;  ///< [tokens, S]
  float* y = nullptr;             ///< [tokens, D]
  std::int64_t tokens = 0;
  std::int32_t streams = 4;
  std::int64_t dim = 0;
  bool bf16 = false;
};
void collapse_ref(const stream_ref&, const collapse_args&);
void collapse_avx2(const stream_ref&, const collapse_args&);

struct hyper_post_args {
  static constexpr const char* op_name = "hyper_post";
  float* x = nullptr;           ///< [tokens, S, D], updated in place
  const float* o = nullptr;     ///< [tokens, D], the sublayer's output
  const float* post = nullptr;  ///< [tokens, S]
  const float* comb = nullptr;  ///< [tokens, S, S]
  std::int64_t tokens = 0;
  std::int32_t streams = 4;
  std::int64_t dim = 0;
  bool bf16 = false;
};
void hyper_post_ref(const stream_ref&, const hyper_post_args&);
void hyper_post_avx2(const stream_ref&, const hyper_post_args&);

/// A drafter's tap: the mean over the streams, written with a stride (taps of several layers lie
/// side by side). Source: model-v41.md 11.1, 4.4 point 26.
struct stream_mean_args {
  static constexpr const char* op_name = "stream_mean";
  const float* x = nullptr;  ///< [tokens, S, D]
  float* y = nullptr;        ///< [tokens, D] with y_stride
  std::int64_t tokens = 0;
  std::int32_t streams = 4;
  std::int64_t dim = 0;
  std::int64_t y_stride = 0;  ///< 0: dim
  bool bf16 = false;
};
void stream_mean_ref(const stream_ref&, const stream_mean_args&);
void stream_mean_avx2(const stream_ref&, const stream_mean_args&);

}  // namespace deepinfer::kernels
