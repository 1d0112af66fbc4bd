#include <algorithm>
#include <cstring>

#include "kernels/common/row_table.hpp"
#include "kernels/common/vector_avx2.hpp"

namespace deepinfer::kernels {
namespace {

constexpr std::int64_t scale_columns = 32;

__m256 value_of_bf16(__m128i codes) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
}

/// e4m3_decode of eight codes.
__m256 value_of_e4m3(__m128i codes) {
  const __m256i code = _mm256_cvtepu8_epi32(codes);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
  const __m256i size = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
  const __m256 normal = _mm256_castsi256_ps(
    _mm256_add_epi32(_mm256_slli_epi32(size, 20), _mm256_set1_epi32(120 << 23)));
  const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(size), _mm256_set1_ps(0x1p-9F));
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), size);
  const __m256i is_nan = _mm256_cmpeq_epi32(size, _mm256_set1_epi32(0x7f));
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  const __m256 number = _mm256_blendv_ps(normal, small, _mm256_castsi256_ps(is_small));
  return _mm256_or_ps(_mm256_blendv_ps(number, nan, _mm256_castsi256_ps(is_nan)),
                      _mm256_castsi256_ps(sign));
}

/// The e8m0 code as f32; see e8m0_decode.
__m256 scale_of(std::byte code) {
  const auto exponent = static_cast<int>(code);
  const int bits = exponent == 255 ? 0x7fc00000 : exponent == 0 ? 0x00400000 : exponent << 23;
  return _mm256_castsi256_ps(_mm256_set1_epi32(bits));
}

/// The `count` <= 8 elements of `size` bytes at `from`, the rest of the register 0.
__m128i some_elements(const std::byte* from, std::int64_t count, std::size_t size) {
  alignas(16) std::byte held[16] = {};
  std::memcpy(held, from, static_cast<std::size_t>(count) * size);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(held));
}

void read_bf16(const std::byte* from, std::int64_t dim, float* out) {
  std::int64_t i = 0;
  for (; i + vector_width <= dim; i += vector_width)
    _mm256_storeu_ps(
      out + i, value_of_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
  if (i < dim)
    _mm256_maskstore_ps(out + i, first_lanes(dim - i),
                        value_of_bf16(some_elements(from + 2 * i, dim - i, 2)));
}

/// Products of the smallest scales can lie below the bf16 numbers: they round too.
void read_e4m3(const std::byte* from, const std::byte* scale, std::int64_t dim, bool bf16,
               float* out) {
  const auto value = [&](__m128i codes, std::int64_t i) {
    return rounded_if(bf16,
                      _mm256_mul_ps(value_of_e4m3(codes), scale_of(scale[i / scale_columns])));
  };
  std::int64_t i = 0;
  for (; i + vector_width <= dim; i += vector_width)
    _mm256_storeu_ps(out + i,
                     value(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i)), i));
  if (i < dim)
    _mm256_maskstore_ps(out + i, first_lanes(dim - i),
                        value(some_elements(from + i, dim - i, 1), i));
}

void read_row(const row_table& table, std::int64_t row, bool bf16, float* out) {
  const auto dim = table.dim;
  if (table.type == dtype::bf16) return read_bf16(table.data + 2 * row * dim, dim, out);
  if (table.type == dtype::f8_e4m3)
    return read_e4m3(table.data + row * dim,
                     table.scale + row * ((dim + scale_columns - 1) / scale_columns), dim, bf16,
                     out);
  std::memcpy(out, table.data + 4 * row * dim, static_cast<std::size_t>(dim) * sizeof(float));
  if (bf16)
    for_vectors(0, dim, [&](std::int64_t i, auto lanes) {
      lanes.store(out + i, round_to_bf16(lanes.load(out + i)));
    });
}

}  // namespace

void lookup_avx2(const stream_ref& stream, const lookup_args& a) {
  if (a.count == 0) return;
  check_lookup(a);
  const auto dim = a.table->dim;
  const auto bytes = static_cast<std::size_t>(dim) * sizeof(float);
  stream.for_ranges(a.count, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      float* out = a.y + i * a.copies * dim;
      const std::int64_t row = a.index64 ? a.index64[i] : a.index32[i];
      if (row < 0)
        std::memset(out, 0, bytes);
      else
        read_row(*a.table, row, a.bf16, out);
      for (std::int64_t copy = 1; copy < a.copies; ++copy)
        std::memcpy(out + copy * dim, out, bytes);
      for (std::int64_t copy = 0; a.first_only && copy < a.copies; ++copy)
        a.first_only[i * a.copies + copy] = copy == 0 ? 1.0F : 0.0F;
    }
  });
}

}  // namespace deepinfer::kernels
