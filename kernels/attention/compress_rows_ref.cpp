#include "kernels/attention/compress_rows.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

bool completes_group(const batch_view& batch, std::int64_t token, std::int32_t ratio) {
  return !batch.is_padding(token) && (batch.position[token] + 1) % ratio == 0;
}

struct pooling_inputs {
  const float* value;
  const float* score;
};

/// Inputs of the group member at `position`: of this step, or kept from an older one.
pooling_inputs member(const pool_args& a, std::int64_t token, std::int64_t position) {
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

/// latent[0..width) for the channels from `channel` on: three passes over the group's members.
void pool_channels(const pool_args& a, std::int64_t token, std::int64_t channel, std::int64_t width,
                   float* latent) {
  constexpr std::int64_t most = 64;
  float top[most], sum[most] = {};
  const std::int64_t first = std::int64_t{a.batch.position[token]} + 1 - a.ratio;
  for (std::int64_t i = 0; i < a.ratio; ++i) {
    const float* s = member(a, token, first + i).score + channel;
    for (std::int64_t d = 0; d < width; ++d) top[d] = i == 0 ? s[d] : std::max(top[d], s[d]);
  }
  for (std::int64_t i = 0; i < a.ratio; ++i) {
    const float* s = member(a, token, first + i).score + channel;
    for (std::int64_t d = 0; d < width; ++d) sum[d] += std::exp(s[d] - top[d]);
  }
  std::fill(latent, latent + width, 0.0F);
  for (std::int64_t i = 0; i < a.ratio; ++i) {
    const auto inputs = member(a, token, first + i);
    const float* s = inputs.score + channel;
    const float* c = inputs.value + channel;
    for (std::int64_t d = 0; d < width; ++d) latent[d] += std::exp(s[d] - top[d]) / sum[d] * c[d];
  }
}

}  // namespace

void group_positions_ref(const stream_ref& stream, const group_positions_args& a) {
  stream.for_ranges(a.batch.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token)
      a.row_position[token] =
        completes_group(a.batch, token, a.ratio) ? a.batch.position[token] + 1 - a.ratio : -1;
  });
}

void check_pool(const pool_args& a) {
  DI_CHECK(a.ratio == 1 || a.ring_size >= a.ratio - 1, "a pooling ring of {} for groups of {}",
           a.ring_size, a.ratio);
}

void pool_ref(const stream_ref& stream, const pool_args& a) {
  check_pool(a);
  stream.for_ranges(a.batch.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      float* latent = a.latent + token * a.dim;
      if (!completes_group(a.batch, token, a.ratio)) {
        std::fill(latent, latent + a.dim, 0.0F);
        continue;
      }
      if (a.ratio == 1) {
        std::copy(a.value + token * a.dim, a.value + (token + 1) * a.dim, latent);
      } else {
        for (std::int64_t channel = 0; channel < a.dim; channel += 64)
          pool_channels(a, token, channel, std::min<std::int64_t>(64, a.dim - channel),
                        latent + channel);
      }
      if (a.bf16)
        for (std::int64_t d = 0; d < a.dim; ++d) latent[d] = bf16_round(latent[d]);
    }
  });
}

void pool_store_ref(const stream_ref& stream, const pool_store_args& a) {
  const auto& batch = a.batch;
  stream.for_ranges(batch.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      if (batch.is_padding(token) || !batch.is_among_last(token, a.ring_size)) continue;
      const auto entry =
        std::int64_t{batch.slot[token]} * a.ring_size + batch.position[token] % a.ring_size;
      float* kept = a.ring + entry * 2 * a.dim;
      const auto at = token * a.dim;
      std::copy(a.value + at, a.value + at + a.dim, kept);
      std::copy(a.score + at, a.score + at + a.dim, kept + a.dim);
    }
  });
}

void append_tokens(const append_args& a, std::int64_t begin, std::int64_t end) {
  const auto& batch = a.batch;
  for (auto token = begin; token < end; ++token) {
    if (batch.is_padding(token) || a.row_position[token] < 0) continue;
    const auto entry = batch.paged_index(token, a.row_position[token] / a.ratio, a.ratio);
    DI_CHECK(entry >= 0, "token {} (slot {}, position {}) has no block for its compressed row",
             token, batch.slot[token], batch.position[token]);
    const float* row = a.rows + token * a.dim;
    std::copy(row, row + a.dim, a.memory + entry * a.dim);
  }
}

void append_ref(const stream_ref& stream, const append_args& a) {
  stream.for_ranges(a.batch.tokens,
                    [&](std::int64_t begin, std::int64_t end) { append_tokens(a, begin, end); });
}

}  // namespace deepinfer::kernels
