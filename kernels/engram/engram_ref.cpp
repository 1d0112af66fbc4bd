#include "kernels/engram/engram.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

std::int64_t class_at(const ngram_ids_args& a, std::int64_t token, std::int64_t position) {
  if (position < 0) return a.pad_class;
  const auto id = a.history[a.batch.paged_index(token, position, 1)];
  return id < 0 || id >= a.vocab ? a.pad_class : a.token_class[id];
}

/// sum x * q * k * key
float weighted_dot(const float* x, const float* q, const float* k, const float* key,
                   std::int64_t dim) {
  return sum_in_eights(dim, [=](std::int64_t i) { return x[i] * (q[i] * k[i]) * key[i]; });
}

float inverse_rms(const float* x, std::int64_t dim, float eps) {
  return 1.0F / std::sqrt(sum_of_squares(x, dim) / static_cast<float>(dim) + eps);
}

}  // namespace

void ngram_ids_ref(const stream_ref& stream, const ngram_ids_args& a) {
  if (a.batch.tokens == 0) return;
  DI_CHECK(a.ngram >= 1 && a.ngram <= max_ngram, "n-grams of {}, at most {}", a.ngram, max_ngram);
  const std::int64_t columns = std::int64_t{a.ngram - 1} * a.heads;
  stream.for_ranges(a.batch.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      std::int64_t* id = a.id + token * columns;
      if (a.batch.is_padding(token)) {
        std::fill(id, id + columns, -1);
        continue;
      }
      std::int64_t hash = 0;
      for (std::int32_t i = 0; i < a.ngram; ++i) {
        hash ^= class_at(a, token, a.batch.position[token] - i) * a.multiplier[i];
        for (std::int32_t h = 0; i > 0 && h < a.heads; ++h) {
          const auto column = std::int64_t{i - 1} * a.heads + h;
          id[column] = hash % a.prime[column] + a.offset[column];
        }
      }
    }
  });
}

void engram_gate_ref(const stream_ref& stream, const engram_gate_args& a) {
  const float root = 1.0F / std::sqrt(static_cast<float>(a.dim));
  stream.for_ranges(a.tokens * a.streams, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto token = item / a.streams, s = item % a.streams;
      float* x = a.x + item * a.dim;
      const float* key = a.kv + (token * (a.streams + 1) + s) * a.dim;
      const float* value = a.kv + (token * (a.streams + 1) + a.streams) * a.dim;
      const float product =
        weighted_dot(x, a.q_weight + s * a.dim, a.k_weight + s * a.dim, key, a.dim);
      const float rho =
        product * inverse_rms(x, a.dim, a.eps) * inverse_rms(key, a.dim, a.eps) * root;
      const float signed_root = std::copysign(std::sqrt(std::max(std::fabs(rho), 1e-6F)), rho);
      const float gate = 1.0F / (1.0F + std::exp(-signed_root));
      for (std::int64_t d = 0; d < a.dim; ++d) {
        const float sum = x[d] + gate * value[d];
        x[d] = a.bf16 ? bf16_round(sum) : sum;
      }
    }
  });
}

}  // namespace deepinfer::kernels
