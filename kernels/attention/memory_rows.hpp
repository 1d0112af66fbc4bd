/// What happens to rows between two products of the attention sublayer, in one parallel region.
///
/// memory_rows: between the products of the sublayer's input and those of its latents. Three chains
/// per token, none of which reads another's results:
///   query   query_norm, then query_round (another buffer) and query_int8
///   window  row_norm, row_rope, row_round
///   memory  pool, latent_norm, latent_int8, then memory_copy (another buffer), memory_rope,
///           memory_round, append
/// index_rows: between the products that make index queries and keys and the scoring. Two chains:
///   key     key_norm, key_rope, key_round, append
///   query   query_rope, query_round
/// A stage whose output pointer is null is left out. Equal, bit for bit, to the stages' ops called
/// one after the other; shapes, precision and edge cases are theirs. Every stage has the same
/// tokens, except that query_round of index_rows counts rows of heads.
/// pool_store and window_store are not here: rings may be written only after all have read them.
/// Source: model-v41.md 8.1, 8.2, 8.3, 8.5.
#pragma once

#include "kernels/attention/compress_rows.hpp"
#include "kernels/attention/rope.hpp"
#include "kernels/common/quantise.hpp"
#include "kernels/linear/int8_rows.hpp"
#include "kernels/norm/rms_norm.hpp"

namespace deepinfer::kernels {

struct memory_rows_args {
  static constexpr const char* op_name = "memory_rows";
  std::int64_t tokens = 0;

  rms_norm_args query_norm;
  quantise_args query_round;
  to_int8_args query_int8;

  rms_norm_args row_norm;
  rope_args row_rope;
  quantise_args row_round;

  pool_args pool;
  rms_norm_args latent_norm;
  to_int8_args latent_int8;
  quantise_args memory_copy;
  rope_args memory_rope;
  quantise_args memory_round;
  append_args append;
};
void memory_rows_ref(const stream_ref&, const memory_rows_args&);
void memory_rows_avx2(const stream_ref&, const memory_rows_args&);

struct index_rows_args {
  static constexpr const char* op_name = "index_rows";
  std::int64_t tokens = 0;

  rms_norm_args key_norm;
  rope_args key_rope;
  quantise_args key_round;
  append_args append;

  rope_args query_rope;
  quantise_args query_round;  ///< rows = tokens * query_rope.heads
};
void index_rows_ref(const stream_ref&, const index_rows_args&);
void index_rows_avx2(const stream_ref&, const index_rows_args&);

}  // namespace deepinfer::kernels
