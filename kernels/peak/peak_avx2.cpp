#include <immintrin.h>

#include "kernels/peak/peak.hpp"

namespace deepinfer::kernels {

namespace {

constexpr std::int64_t streams = 8;
constexpr std::int64_t line_words = 8;       // of a cache line
constexpr std::int64_t prefetch_words = 64;  // 512 bytes: more of it slows this machine class down

__m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

std::uint64_t sum_of(const std::uint64_t* words, std::int64_t count) {
  const auto each = count / streams / line_words * line_words;
  __m256i sums[streams];
  for (auto& it : sums) it = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < each; i += line_words)
#pragma GCC unroll 8
    for (std::int64_t s = 0; s < streams; ++s) {
      const auto* at = words + s * each + i;
      _mm_prefetch(reinterpret_cast<const char*>(at + prefetch_words), _MM_HINT_T0);
      sums[s] = _mm256_add_epi64(sums[s], _mm256_add_epi64(load(at), load(at + 4)));
    }
  std::uint64_t sum = 0;
  for (const auto it : sums) {
    alignas(32) std::uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), it);
    sum += lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
  for (auto i = streams * each; i < count; ++i) sum += words[i];
  return sum;
}

// Latency 4, two a cycle: eight would do, twelve leave room.
float fma_piece(std::int64_t rounds) {
  constexpr int chains = 12;
  static_assert(chains * 8 == fma_peak_accumulators);
  __m256 x[chains];
  for (int i = 0; i < chains; ++i)
    x[i] = _mm256_add_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7),
                         _mm256_set1_ps(static_cast<float>(8 * i)));
  const auto half = _mm256_set1_ps(0.5F), one = _mm256_set1_ps(1.0F);
  for (std::int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) x[i] = _mm256_fmadd_ps(x[i], half, one);
  float sum = 0;
  for (const auto it : x) {
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, it);
    for (const auto lane : lanes) sum += lane;
  }
  return sum;
}

std::uint32_t int8_piece(const std::int8_t* weights, std::int64_t rounds) {
  constexpr int chains = 8, inputs = 4;
  constexpr std::int64_t vector = 32;
  static_assert(int8_peak_weights % (chains * vector) == 0);
  const auto ones = _mm256_set1_epi16(1);
  __m256i sums[chains];
  for (auto& it : sums) it = _mm256_setzero_si256();
  for (std::int64_t round = 0; round < rounds; ++round) {
    __m256i x[inputs];
    for (int j = 0; j < inputs; ++j) x[j] = _mm256_set1_epi8(static_cast<char>((round + j) % 64));
    for (std::int64_t at = 0; at < int8_peak_weights; at += chains * vector)
#pragma GCC unroll 8
      for (int c = 0; c < chains; ++c) {
        const auto pairs = _mm256_maddubs_epi16(x[c % inputs], load(weights + at + c * vector));
        sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pairs, ones));
      }
  }
  std::uint32_t sum = 0;
  for (const auto it : sums) {
    alignas(32) std::uint32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), it);
    for (const auto lane : lanes) sum += lane;
  }
  return sum;
}

}  // namespace

void read_peak_avx2(const stream_ref& stream, const read_peak_args& a) {
  stream.for_ranges(a.count, [&a](std::int64_t begin, std::int64_t end) {
    __atomic_fetch_add(a.sum, sum_of(a.words + begin, end - begin), __ATOMIC_RELAXED);
  });
}

void fma_peak_avx2(const stream_ref& stream, const fma_peak_args& a) {
  stream.for_ranges(a.pieces, [&a](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) a.result[i] = fma_piece(a.rounds);
  });
}

void int8_peak_avx2(const stream_ref& stream, const int8_peak_args& a) {
  stream.for_ranges(a.pieces, [&a](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) a.result[i] = int8_piece(a.weights, a.rounds);
  });
}

}  // namespace deepinfer::kernels
