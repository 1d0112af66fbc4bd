#include <cmath>

#include "kernels/common/vector_avx2.hpp"
#include "kernels/mix/mix_parts.hpp"

namespace deepinfer::kernels {
namespace {

constexpr std::int32_t four = 4;

float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

void softmax_row(float* row, float eps) {
  float top = row[0];
  for (int k = 1; k < four; ++k) top = top < row[k] ? row[k] : top;
  float sum = 0;
  for (int k = 0; k < four; ++k) {
    row[k] = expf(row[k] - top);
    sum += row[k];
  }
  for (int k = 0; k < four; ++k) row[k] = row[k] / sum + eps;
}

/// Everything of one token but the column and row steps.
void start_token(const hyper_split_args& a, std::int64_t token) {
  const float* z = a.z + token * (2 + four) * four;
  float* pre = a.pre + token * four;
  float* post = a.post + token * four;
  float* comb = a.comb + token * four * four;
  for (int j = 0; j < four; ++j) {
    pre[j] = sigmoid(z[j] * a.scale[0] + a.base[j]) + a.hc_eps;
    post[j] = 2.0F * sigmoid(z[four + j] * a.scale[1] + a.base[four + j]);
  }
  for (int i = 0; i < four * four; ++i)
    comb[i] = z[2 * four + i] * a.scale[2] + a.base[2 * four + i];
  for (int j = 0; j < four; ++j) softmax_row(comb + j * four, a.hc_eps);
}

/// The 4 x 4 matrices of two tokens, one in each half: m[j] holds row j.
struct matrix_pair {
  __m256 m[four];

  matrix_pair(const float* a, const float* b) {
    for (int j = 0; j < four; ++j) m[j] = _mm256_loadu2_m128(b + four * j, a + four * j);
  }
  void store(float* a, float* b) const {
    for (int j = 0; j < four; ++j) _mm256_storeu2_m128(b + four * j, a + four * j, m[j]);
  }

  /// Divides every column by (its sum, entries in order, + eps).
  void normalise_columns(__m256 eps) {
    __m256 sum = _mm256_add_ps(_mm256_setzero_ps(), m[0]);
    for (int j = 1; j < four; ++j) sum = _mm256_add_ps(sum, m[j]);
    sum = _mm256_add_ps(sum, eps);
    for (auto& row : m) row = _mm256_div_ps(row, sum);
  }

  void transpose() {
    const __m256 low01 = _mm256_unpacklo_ps(m[0], m[1]), high01 = _mm256_unpackhi_ps(m[0], m[1]);
    const __m256 low23 = _mm256_unpacklo_ps(m[2], m[3]), high23 = _mm256_unpackhi_ps(m[2], m[3]);
    m[0] = _mm256_shuffle_ps(low01, low23, 0x44);
    m[1] = _mm256_shuffle_ps(low01, low23, 0xee);
    m[2] = _mm256_shuffle_ps(high01, high23, 0x44);
    m[3] = _mm256_shuffle_ps(high01, high23, 0xee);
  }
};

void sinkhorn(float* a, float* b, std::int32_t iterations, float hc_eps) {
  const __m256 eps = _mm256_set1_ps(hc_eps);
  matrix_pair pair(a, b);
  pair.normalise_columns(eps);
  for (std::int32_t i = 1; i < iterations; ++i) {
    pair.transpose();
    pair.normalise_columns(eps);
    pair.transpose();
    pair.normalise_columns(eps);
  }
  pair.store(a, b);
}

template <std::size_t Count>
void post_part(const hyper_post_args& a, std::int64_t token, std::int64_t begin, std::int64_t end) {
  constexpr auto streams = static_cast<std::int64_t>(Count);
  const auto dim = a.dim;
  const bool bf16 = a.bf16;
  const float* o = a.o + token * dim;
  float* x = a.x + token * streams * dim;
  __m256 post[Count], comb[Count][Count];
  for (std::size_t k = 0; k < Count; ++k) {
    post[k] = _mm256_broadcast_ss(a.post + token * streams + k);
    for (std::size_t j = 0; j < Count; ++j)
      comb[j][k] = _mm256_broadcast_ss(a.comb + token * streams * streams + j * Count + k);
  }
  for_vectors(begin, end, [&](std::int64_t d, auto lanes) {
    __m256 before[Count];
    const float* from = x + d;
    for (auto& it : before) {
      it = lanes.load(from);
      from += dim;
    }
    const __m256 out = lanes.load(o + d);
    float* to = x + d;
    for (std::size_t k = 0; k < Count; ++k) {
      __m256 mixed = _mm256_mul_ps(comb[0][k], before[0]);
      for (std::size_t j = 1; j < Count; ++j)
        mixed = _mm256_add_ps(mixed, _mm256_mul_ps(comb[j][k], before[j]));
      lanes.store(to, rounded_if(bf16, _mm256_add_ps(_mm256_mul_ps(post[k], out), mixed)));
      to += dim;
    }
  });
}

}  // namespace

void hyper_split_avx2(const stream_ref& stream, const hyper_split_args& a) {
  if (a.streams != four) return hyper_split_ref(stream, a);
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; token += 2) {
      const auto other = token + 1 < end ? token + 1 : token;
      start_token(a, token);
      if (other != token) start_token(a, other);
      sinkhorn(a.comb + token * four * four, a.comb + other * four * four, a.iterations, a.hc_eps);
    }
  });
}

void collapse_avx2(const stream_ref& stream, const collapse_args& a) {
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      const auto streams = a.streams;
      const auto dim = a.dim;
      const bool bf16 = a.bf16;
      const float* weight = a.weight + token * streams;
      const float* x = a.x + token * streams * dim;
      float* y = a.y + token * dim;
      for_vectors(0, dim, [&](std::int64_t d, auto lanes) {
        __m256 sum = _mm256_mul_ps(_mm256_broadcast_ss(weight), lanes.load(x + d));
        for (std::int32_t s = 1; s < streams; ++s)
          sum = _mm256_add_ps(
            sum, _mm256_mul_ps(_mm256_broadcast_ss(weight + s), lanes.load(x + s * dim + d)));
        lanes.store(y + d, rounded_if(bf16, sum));
      });
    }
  });
}

void hyper_post_part_avx2(const hyper_post_args& a, std::int64_t token, std::int64_t begin,
                          std::int64_t end) {
  static_assert(max_streams == 8);
  switch (a.streams) {
  case 1: return post_part<1>(a, token, begin, end);
  case 2: return post_part<2>(a, token, begin, end);
  case 3: return post_part<3>(a, token, begin, end);
  case 4: return post_part<4>(a, token, begin, end);
  case 5: return post_part<5>(a, token, begin, end);
  case 6: return post_part<6>(a, token, begin, end);
  case 7: return post_part<7>(a, token, begin, end);
  case 8: return post_part<8>(a, token, begin, end);
  default: return check_streams(a.streams);
  }
}

void hyper_post_avx2(const stream_ref& stream, const hyper_post_args& a) {
  check_streams(a.streams);
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) hyper_post_part_avx2(a, token, 0, a.dim);
  });
}

void stream_mean_part_avx2(const stream_mean_args& a, std::int64_t token, std::int64_t begin,
                           std::int64_t end) {
  const float* x = a.x + token * a.streams * a.dim;
  float* y = a.y + token * (a.y_stride ? a.y_stride : a.dim);
  const __m256 count = _mm256_set1_ps(static_cast<float>(a.streams));
  for_vectors(begin, end, [&](std::int64_t d, auto lanes) {
    __m256 sum = lanes.load(x + d);
    for (std::int32_t s = 1; s < a.streams; ++s)
      sum = _mm256_add_ps(sum, lanes.load(x + s * a.dim + d));
    lanes.store(y + d, rounded_if(a.bf16, _mm256_div_ps(sum, count)));
  });
}

void stream_mean_avx2(const stream_ref& stream, const stream_mean_args& a) {
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) stream_mean_part_avx2(a, token, 0, a.dim);
  });
}

}  // namespace deepinfer::kernels
