#include "kernels/attention/memory_rows.hpp"

#include <algorithm>

namespace deepinfer::kernels {
namespace {

constexpr std::int64_t tokens_together = 4;  // of one chain, while their rows are cached
constexpr std::int64_t heads_together = 8;   // index queries of one token, as an item of work

/// Tokens [begin, end) of a chain, on the calling thread.
struct token_range {
  std::int64_t begin, end;

  void run(rms_norm_args a) const {
    if (!a.y) return;
    a.x += begin * (a.x_stride ? a.x_stride : a.dim);
    a.y += begin * (a.y_stride ? a.y_stride : a.dim);
    a.rows = end - begin;
    rms_norm_avx2({}, a);
  }
  void run(quantise_args a) const {
    if (!a.y) return;
    a.x += begin * a.dim;
    a.y += begin * a.dim;
    a.rows = end - begin;
    quantise_avx2({}, a);
  }
  void run(to_int8_args a) const {
    if (!a.codes) return;
    const auto padded = (a.dim + int8_group - 1) / int8_group * int8_group;
    a.x += begin * (a.x_stride ? a.x_stride : a.dim);
    a.codes += begin * padded;
    a.scales += begin * padded / int8_group;
    a.rows = end - begin;
    to_int8_avx2({}, a);
  }
  void run(rope_args a) const {
    if (!a.x) return;
    a.x += begin * a.heads * a.dim;
    a.angles += begin * a.rotary;
    a.tokens = end - begin;
    rope_avx2({}, a);
  }
  void run(const pool_args& a) const {
    if (a.latent) pool_tokens_avx2(a, begin, end);
  }
  void run(const append_args& a) const {
    if (a.memory) append_tokens(a, begin, end);
  }
};

constexpr std::int64_t chains = 3;

inline void run_chain(const memory_rows_args& a, std::int64_t chain, const token_range& range) {
  if (chain == 0) {
    range.run(a.query_norm);
    range.run(a.query_round);
    range.run(a.query_int8);
  } else if (chain == 1) {
    range.run(a.row_norm);
    range.run(a.row_rope);
    range.run(a.row_round);
  } else {
    range.run(a.pool);
    range.run(a.latent_norm);
    range.run(a.latent_int8);
    range.run(a.memory_copy);
    range.run(a.memory_rope);
    range.run(a.memory_round);
    range.run(a.append);
  }
}

inline void run_index_keys(const index_rows_args& a, std::int64_t token) {
  const token_range one{token, token + 1};
  one.run(a.key_norm);
  one.run(a.key_rope);
  one.run(a.key_round);
  one.run(a.append);
}

/// Heads [first, last) of one token.
inline void run_index_queries(const index_rows_args& a, std::int64_t token, std::int64_t first,
                              std::int64_t last) {
  auto rope = a.query_rope;
  const auto row = token * rope.heads + first;
  rope.x += row * rope.dim;
  rope.angles += token * rope.rotary;
  rope.tokens = 1;
  rope.heads = last - first;
  rope_avx2({}, rope);
  token_range{row, row + last - first}.run(a.query_round);
}

}  // namespace

void memory_rows_avx2(const stream_ref& stream, const memory_rows_args& a) {
  if (a.pool.latent) check_pool(a.pool);
  const auto blocks = (a.tokens + tokens_together - 1) / tokens_together;
  stream.for_ranges(blocks * chains, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto first = item / chains * tokens_together;
      run_chain(a, item % chains, {first, std::min(first + tokens_together, a.tokens)});
    }
  });
}

void index_rows_avx2(const stream_ref& stream, const index_rows_args& a) {
  const auto heads = a.query_rope.x ? a.query_rope.heads : 0;
  const auto parts = 1 + (heads + heads_together - 1) / heads_together;
  stream.for_ranges(a.tokens * parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto token = item / parts, first = (item % parts - 1) * heads_together;
      if (first < 0)
        run_index_keys(a, token);
      else
        run_index_queries(a, token, first, std::min(first + heads_together, heads));
    }
  });
}

}  // namespace deepinfer::kernels
