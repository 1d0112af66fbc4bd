/// The compressed memory: pooling groups of m tokens into latents, and appending rows to paged
/// memory.
///
/// pool: a token at position p with (p + 1) mod m == 0 completes group j = p div m. Per channel the
/// weights are softmax over the group's s, latent = sum weight * c. Group members before the row's
/// first position come from the pooling ring, the others from the step buffers. Tokens that
/// complete nothing and padding give latent 0 and row_position -1. m == 1 copies c (score may be
/// null).
/// pool_store: after pool, keeps the last ring_size tokens' (c, s) of each row of the batch.
/// append: writes row row_position[t] / m of the token's sequence, found by the block table.
/// Precision: f32, tokens in position order; latent rounds to bf16 once if `bf16`, and pool's AVX2
/// twin then has the reference's bits. The other ops copy rows: they have no twin.
/// Source: model-v41.md 8.3, 14, 16 rules 2 and 3, 4.4 points 10 and 11.
#pragma once

#include <cstdint>

#include "kernels/common/batch.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

/// row_position[t] = j * m where token t completes group j, else -1: the position at which the row
/// and its index key are rotated.
struct group_positions_args {
  static constexpr const char* op_name = "group_positions";
  batch_view batch;
  std::int32_t ratio = 1;
  std::int32_t* row_position = nullptr;  ///< [tokens]
};
void group_positions_ref(const stream_ref&, const group_positions_args&);

struct pool_args {
  static constexpr const char* op_name = "pool";
  batch_view batch;
  std::int32_t ratio = 1;
  const float* value = nullptr;  ///< c of this step [tokens, dim]
  const float* score = nullptr;  ///< s of this step [tokens, dim]
  const float* ring = nullptr;  ///< [slots, ring_size, 2, dim]: c then s; may be null if ratio is 1
  std::int32_t ring_size = 0;
  std::int64_t dim = 0;
  float* latent = nullptr;  ///< [tokens, dim]
  bool bf16 = false;
};
void pool_ref(const stream_ref&, const pool_args&);
void pool_avx2(const stream_ref&, const pool_args&);
/// Tokens [begin, end), on the calling thread.
void pool_tokens_avx2(const pool_args&, std::int64_t begin, std::int64_t end);
void check_pool(const pool_args&);

struct pool_store_args {
  static constexpr const char* op_name = "pool_store";
  batch_view batch;
  const float* value = nullptr;
  const float* score = nullptr;
  float* ring = nullptr;
  std::int32_t ring_size = 0;
  std::int64_t dim = 0;
};
void pool_store_ref(const stream_ref&, const pool_store_args&);

struct append_args {
  static constexpr const char* op_name = "append";
  batch_view batch;
  std::int32_t ratio = 1;
  const std::int32_t* row_position = nullptr;  ///< [tokens], of group_positions
  const float* rows = nullptr;                 ///< [tokens, dim]
  float* memory = nullptr;                     ///< [blocks, block_size / ratio, dim]
  std::int64_t dim = 0;
};
void append_ref(const stream_ref&, const append_args&);
/// Tokens [begin, end), on the calling thread.
void append_tokens(const append_args&, std::int64_t begin, std::int64_t end);

}  // namespace deepinfer::kernels
