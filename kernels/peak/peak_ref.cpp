#include "kernels/peak/peak.hpp"

namespace deepinfer::kernels {

namespace {

constexpr std::int64_t streams = 8;

std::uint64_t sum_of(const std::uint64_t* words, std::int64_t count) {
  const auto each = count / streams;
  std::uint64_t sums[streams] = {};
  for (std::int64_t i = 0; i < each; ++i)
    for (std::int64_t s = 0; s < streams; ++s) sums[s] += words[s * each + i];
  std::uint64_t sum = 0;
  for (const auto it : sums) sum += it;
  for (auto i = streams * each; i < count; ++i) sum += words[i];
  return sum;
}

float fma_piece(std::int64_t rounds) {
  float x[fma_peak_accumulators];
  for (std::int64_t i = 0; i < fma_peak_accumulators; ++i) x[i] = static_cast<float>(i);
  for (std::int64_t round = 0; round < rounds; ++round)
    for (auto& it : x) it = it * 0.5F + 1.0F;
  float sum = 0;
  for (const auto it : x) sum += it;
  return sum;
}

std::uint32_t int8_piece(const std::int8_t* weights, std::int64_t rounds) {
  constexpr std::int64_t vector = 32, inputs = 4;
  std::uint32_t sum = 0;
  for (std::int64_t round = 0; round < rounds; ++round)
    for (std::int64_t at = 0; at < int8_peak_weights; at += vector) {
      const auto x = static_cast<std::int32_t>((round + at / vector % inputs) % 64);
      std::int32_t part = 0;
      for (std::int64_t i = 0; i < vector; ++i) part += x * weights[at + i];
      sum += static_cast<std::uint32_t>(part);
    }
  return sum;
}

}  // namespace

void read_peak_ref(const stream_ref& stream, const read_peak_args& a) {
  stream.for_ranges(a.count, [&a](std::int64_t begin, std::int64_t end) {
    __atomic_fetch_add(a.sum, sum_of(a.words + begin, end - begin), __ATOMIC_RELAXED);
  });
}

void fma_peak_ref(const stream_ref& stream, const fma_peak_args& a) {
  stream.for_ranges(a.pieces, [&a](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) a.result[i] = fma_piece(a.rounds);
  });
}

void int8_peak_ref(const stream_ref& stream, const int8_peak_args& a) {
  stream.for_ranges(a.pieces, [&a](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) a.result[i] = int8_piece(a.weights, a.rounds);
  });
}

}  // namespace deepinfer::kernels
