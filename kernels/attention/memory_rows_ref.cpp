#include "kernels/attention/memory_rows.hpp"

namespace deepinfer::kernels {

void memory_rows_ref(const stream_ref& stream, const memory_rows_args& a) {
  if (a.tokens == 0) return;
  if (a.query_norm.y) rms_norm_ref(stream, a.query_norm);
  if (a.query_round.y) quantise_ref(stream, a.query_round);
  if (a.query_int8.codes) to_int8_ref(stream, a.query_int8);

  if (a.row_norm.y) rms_norm_ref(stream, a.row_norm);
  if (a.row_rope.x) rope_ref(stream, a.row_rope);
  if (a.row_round.y) quantise_ref(stream, a.row_round);

  if (a.pool.latent) pool_ref(stream, a.pool);
  if (a.latent_norm.y) rms_norm_ref(stream, a.latent_norm);
  if (a.latent_int8.codes) to_int8_ref(stream, a.latent_int8);
  if (a.memory_copy.y) quantise_ref(stream, a.memory_copy);
  if (a.memory_rope.x) rope_ref(stream, a.memory_rope);
  if (a.memory_round.y) quantise_ref(stream, a.memory_round);
  if (a.append.memory) append_ref(stream, a.append);
}

void index_rows_ref(const stream_ref& stream, const index_rows_args& a) {
  if (a.tokens == 0) return;
  if (a.key_norm.y) rms_norm_ref(stream, a.key_norm);
  if (a.key_rope.x) rope_ref(stream, a.key_rope);
  if (a.key_round.y) quantise_ref(stream, a.key_round);
  if (a.append.memory) append_ref(stream, a.append);

  if (a.query_rope.x) rope_ref(stream, a.query_rope);
  if (a.query_round.y) quantise_ref(stream, a.query_round);
}

}  // namespace deepinfer::kernels
