#include "kernels/attention/compress_rows.hpp"

#include <math.h>

#include <algorithm>

#include "kernels/attention/lanes_avx2.hpp"

namespace deepinfer::kernels {
namespace {

struct pooling_inputs {
  const float* value;
  const float* score;
};

/// Inputs of the group member at `position`: of this step, or kept from an older one.
inline pooling_inputs member(const pool_args& a, std::int64_t token, std::int64_t position) {
  const auto& batch = a.batch;
  const auto since_first = position - batch.row_first_position[token];
  if (since_first >= 0) {
    const auto at = (batch.row_first_token[token] + since_first) * a.dim;
    return {a.value + at, a.score + at};
  }
  const auto entry = std::int64_t{batch.slot[token]} * a.ring_size + position % a.ring_size;
  const float* kept = a.ring + entry * 2 * a.dim;
  return {kept, kept + a.dim};
}

/// expf of eight lanes, one by one.
inline __m256 libm_exp8(__m256 x) {
  alignas(32) float lane[8];
  _mm256_store_ps(lane, x);
  for (auto& it : lane) it = expf(it);
  return _mm256_load_ps(lane);
}

/// Eight channels (those of the mask) of a group: the largest score, then weights and values.
/// `Ordered`: the weights are divided one by one, as the reference does.
template <bool Ordered, class Member>
inline __m256 pool_channels(std::int32_t ratio, std::int64_t channel, __m256i mask,
                            const Member& inputs) {
  const auto load = [&](const float* x) { return _mm256_maskload_ps(x + channel, mask); };
  auto top = load(inputs(0).score);
  for (std::int32_t i = 1; i < ratio; ++i) top = _mm256_max_ps(load(inputs(i).score), top);
  auto sum = _mm256_setzero_ps(), pooled = _mm256_setzero_ps();
  if constexpr (Ordered) {
    for (std::int32_t i = 0; i < ratio; ++i)
      sum = _mm256_add_ps(sum, libm_exp8(_mm256_sub_ps(load(inputs(i).score), top)));
    for (std::int32_t i = 0; i < ratio; ++i) {
      const auto weight = libm_exp8(_mm256_sub_ps(load(inputs(i).score), top));
      const auto share = _mm256_div_ps(weight, sum);
      pooled = _mm256_add_ps(pooled, _mm256_mul_ps(share, load(inputs(i).value)));
    }
    return round_to_bf16(pooled);
  }
  for (std::int32_t i = 0; i < ratio; ++i) {
    const auto weight = exp8(_mm256_sub_ps(load(inputs(i).score), top));
    sum = _mm256_add_ps(sum, weight);
    pooled = _mm256_fmadd_ps(weight, load(inputs(i).value), pooled);
  }
  return _mm256_div_ps(pooled, sum);
}

template <bool Ordered>
inline void pool_group(const pool_args& a, std::int64_t token, float* latent) {
  const std::int64_t first = std::int64_t{a.batch.position[token]} + 1 - a.ratio;
  constexpr std::int32_t room = 8;  // longer groups look their members up again and again
  pooling_inputs kept[room];
  for (std::int32_t i = 0; i < std::min(a.ratio, room); ++i) kept[i] = member(a, token, first + i);
  for (std::int64_t channel = 0; channel < a.dim; channel += 8) {
    const auto mask = first_lanes(a.dim - channel);
    const auto pooled =
      a.ratio <= room
        ? pool_channels<Ordered>(a.ratio, channel, mask, [&](std::int32_t i) { return kept[i]; })
        : pool_channels<Ordered>(a.ratio, channel, mask,
                                 [&](std::int32_t i) { return member(a, token, first + i); });
    _mm256_maskstore_ps(latent + channel, mask, pooled);
  }
}

}  // namespace

void pool_tokens_avx2(const pool_args& a, std::int64_t begin, std::int64_t end) {
  for (auto token = begin; token < end; ++token) {
    float* latent = a.latent + token * a.dim;
    if (a.batch.is_padding(token) || (a.batch.position[token] + 1) % a.ratio != 0) {
      std::fill(latent, latent + a.dim, 0.0F);
    } else if (a.ratio == 1) {
      for (std::int64_t d = 0; d < a.dim; d += 8) {
        const auto mask = first_lanes(a.dim - d);
        const auto value = _mm256_maskload_ps(a.value + token * a.dim + d, mask);
        _mm256_maskstore_ps(latent + d, mask, a.bf16 ? round_to_bf16(value) : value);
      }
    } else if (a.bf16) {
      pool_group<true>(a, token, latent);
    } else {
      pool_group<false>(a, token, latent);
    }
  }
}

void pool_avx2(const stream_ref& stream, const pool_args& a) {
  check_pool(a);
  stream.for_ranges(a.batch.tokens,
                    [&](std::int64_t begin, std::int64_t end) { pool_tokens_avx2(a, begin, end); });
}

}  // namespace deepinfer::kernels
