#include "kernels/attention/attend_rows.hpp"

#include <algorithm>

namespace deepinfer::kernels {
namespace {

/// Items [begin, end) of tokens * heads, by tokens.
inline void rotate(rope_args whole, std::int64_t begin, std::int64_t end) {
  while (begin < end) {
    const auto token = begin / whole.heads, stop = std::min(end, (token + 1) * whole.heads);
    auto some = whole;
    some.x += begin * whole.dim;
    some.angles += token * whole.rotary;
    some.tokens = 1;
    some.heads = stop - begin;
    rope_avx2({}, some);
    begin = stop;
  }
}

}  // namespace

void attend_rows_avx2(const stream_ref& stream, const attend_rows_args& a) {
  check_attend_rows(a);
  const bool is_sparse = a.sparse.o != nullptr;
  const auto heads = is_sparse ? a.sparse.heads : a.block.heads;
  const auto dim = is_sparse ? a.sparse.dim : a.block.dim;
  // What is rotated and attended to at a time: a token's heads, or a sequence's.
  const auto together = is_sparse ? heads : a.block.block * heads;
  const std::int64_t items =
    (is_sparse ? a.sparse.batch.tokens : std::int64_t{a.block.sequences}) * together;
  float* o = is_sparse ? a.sparse.o : a.block.o;
  const rope_args in{a.q, a.angles, 0,     heads,
                     dim, a.rotary, false, is_sparse ? a.sparse.bf16 : a.block.bf16};
  auto out = in;
  out.x = o;
  out.inverse = true;
  stream.for_ranges(items, [&](std::int64_t range_begin, std::int64_t range_end) {
    for (auto begin = range_begin; begin < range_end;) {
      const auto end = std::min(range_end, (begin / together + 1) * together);
      if (a.angles) rotate(in, begin, end);
      if (is_sparse)
        sparse_attention_heads_avx2(a.sparse, begin, end);
      else
        block_attention_heads_avx2(a.block, begin, end);
      if (a.angles) rotate(out, begin, end);
      if (a.codes)
        to_int8_avx2({}, {o + begin * dim, a.codes + begin * dim,
                          a.scales + begin * dim / int8_group, end - begin, dim});
      begin = end;
    }
  });
}

}  // namespace deepinfer::kernels
