#include "kernels/attention/attend_rows.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

work_cost attend_rows_args::cost() const {
  return sparse.o ? sparse.cost() : block.cost();
}

void check_attend_rows(const attend_rows_args& a) {
  check_sparse_attention(a.sparse);
  const float* q = a.sparse.o ? a.sparse.q : a.block.q;
  DI_CHECK(!a.angles || a.q == q, "other queries are rotated than are read");
  const auto dim = a.sparse.o ? a.sparse.dim : a.block.dim;
  DI_CHECK(!a.codes || dim % int8_group == 0, "heads of {} as int8", dim);
}

void attend_rows_ref(const stream_ref& stream, const attend_rows_args& a) {
  check_attend_rows(a);
  const bool is_sparse = a.sparse.o != nullptr;
  const std::int64_t tokens =
    is_sparse ? a.sparse.batch.tokens : std::int64_t{a.block.sequences} * a.block.block;
  const auto heads = is_sparse ? a.sparse.heads : a.block.heads;
  const auto dim = is_sparse ? a.sparse.dim : a.block.dim;
  float* o = is_sparse ? a.sparse.o : a.block.o;
  rope_args rope{a.q, a.angles, tokens, heads,
                 dim, a.rotary, false,  is_sparse ? a.sparse.bf16 : a.block.bf16};
  if (a.angles) rope_ref(stream, rope);
  if (is_sparse)
    sparse_attention_ref(stream, a.sparse);
  else
    block_attention_ref(stream, a.block);
  rope.x = o;
  rope.inverse = true;
  if (a.angles) rope_ref(stream, rope);
  if (a.codes) to_int8_ref(stream, {o, a.codes, a.scales, tokens * heads, dim});
}

}  // namespace deepinfer::kernels
