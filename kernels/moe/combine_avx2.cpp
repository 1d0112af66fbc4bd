#include "kernels/common/vector_avx2.hpp"
#include "kernels/mix/mix_parts.hpp"
#include "kernels/moe/expert_ffn.hpp"
#include "kernels/moe/route.hpp"

namespace deepinfer::kernels {

namespace {

constexpr std::int64_t vectors_together = 4;

/// Sums of `Vectors` neighbouring vectors over the rows, in order.
template <std::size_t Vectors, class Lanes>
void add_rows(const float* const* rows, std::int64_t count, std::int64_t d, const Lanes& lanes,
              bool bf16, float* y) {
  __m256 sum[Vectors];
  for (auto& it : sum) it = _mm256_setzero_ps();
  for (std::int64_t row = 0; row < count; ++row) {
    const float* from = rows[row] + d;
    for (auto& it : sum) {
      it = _mm256_add_ps(it, lanes.load(from));
      from += vector_width;
    }
  }
  float* to = y + d;
  for (const auto& it : sum) {
    lanes.store(to, rounded_if(bf16, it));
    to += vector_width;
  }
}

}  // namespace

void combine_part_avx2(const combine_args& a, std::int64_t token, std::int64_t begin,
                       std::int64_t end) {
  const float* rows[max_experts_per_token + 1];
  std::int64_t count = 0;
  for (auto pair = token * a.k; pair < (token + 1) * a.k; ++pair)
    if (a.id[pair] >= 0) rows[count++] = a.pair_y + pair * a.dim;
  if (a.shared) rows[count++] = a.shared + token * a.dim;
  float* y = a.y + token * a.dim;
  constexpr auto step = vectors_together * vector_width;
  auto d = begin;
  for (; d + step <= end; d += step)
    add_rows<vectors_together>(rows, count, d, whole_vector{}, a.bf16, y);
  for_vectors(d, end,
              [&](std::int64_t at, auto lanes) { add_rows<1>(rows, count, at, lanes, a.bf16, y); });
}

void combine_avx2(const stream_ref& stream, const combine_args& a) {
  check_choices(a.k);
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) combine_part_avx2(a, token, 0, a.dim);
  });
}

}  // namespace deepinfer::kernels
