/// What a machine does at most: loops that only read memory, or only multiply and add in registers
/// and the first cache. Numbers of kernels are shares of these.
///
/// Each is a parallel region whose work is known exactly, and leaves a result that depends on all
/// of it, so that nothing can be left out. The results are the same on every instruction set.
///   read_peak: sum += words[0] + ... + words[count - 1], modulo 2^64; the range is read as eight
///              streams side by side
///   fma_peak:  result[i] = sum of the accumulators of piece i, x <- x * 0.5 + 1 in every round
///   int8_peak: result[i] = sum over rounds r, weights w of piece i: unsigned byte (r + j) mod 64
///              (j = number of w's vector of 32, mod 4) times signed w, modulo 2^32
/// Shapes: words [count]; weights [int8_peak_weights], each within +-63; result [pieces].
/// Zero words, pieces or rounds are legal. Cost: bytes and operations as the args' functions say.
/// Source: performance.md 1.
#pragma once

#include <cstdint>

#include "kernels/isa.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct read_peak_args {
  const std::uint64_t* words = nullptr;
  std::int64_t count = 0;
  std::uint64_t* sum = nullptr;  ///< added to

  std::int64_t bytes() const { return count * 8; }
};
void read_peak_ref(const stream_ref&, const read_peak_args&);
void read_peak_avx2(const stream_ref&, const read_peak_args&);

inline constexpr std::int64_t fma_peak_accumulators = 12 * 8;

struct fma_peak_args {
  std::int64_t pieces = 0;  ///< shared out over the threads
  std::int64_t rounds = 0;
  float* result = nullptr;

  std::int64_t flops() const { return pieces * rounds * fma_peak_accumulators * 2; }
};
void fma_peak_ref(const stream_ref&, const fma_peak_args&);
void fma_peak_avx2(const stream_ref&, const fma_peak_args&);

inline constexpr std::int64_t int8_peak_weights = 8192;

struct int8_peak_args {
  const std::int8_t* weights = nullptr;
  std::int64_t pieces = 0;
  std::int64_t rounds = 0;
  std::uint32_t* result = nullptr;

  std::int64_t int8_ops() const { return pieces * rounds * int8_peak_weights * 2; }
};
void int8_peak_ref(const stream_ref&, const int8_peak_args&);
void int8_peak_avx2(const stream_ref&, const int8_peak_args&);

struct peak_loops {
  void (*read)(const stream_ref&, const read_peak_args&);
  void (*fma)(const stream_ref&, const fma_peak_args&);
  void (*int8)(const stream_ref&, const int8_peak_args&);
};

/// The loops of an instruction set that runs here.
const peak_loops& cpu_peak(isa set);

}  // namespace deepinfer::kernels
