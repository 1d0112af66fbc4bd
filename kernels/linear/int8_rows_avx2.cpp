#include <immintrin.h>

#include "kernels/linear/int8_rows.hpp"

namespace deepinfer::kernels {
namespace {

/// Lanes of the `part`-th eight of `count` values that exist.
__m256i lanes_of(std::int64_t count, int part) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count) - 8 * part), lane);
}

/// |x| as bits, which are in the order of the values, NaN last.
float largest(const __m256 (&x)[4]) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (const __m256& part : x)
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(part), magnitude));
  __m128i top = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0x4e));
  top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(top));
}

/// The scale of 32 values.
float encode_group(const __m256 (&x)[4], std::int8_t* codes) {
  const float most = largest(x);
  auto* to = reinterpret_cast<__m256i*>(codes);
  if (!(most < __builtin_inff()) || most < int8_smallest) {
    _mm256_storeu_si256(to, _mm256_setzero_si256());
    return most < int8_smallest ? 0.0F : __builtin_nanf("");
  }
  const __m256 inverse = _mm256_set1_ps(127.0F / most);
  __m256i word[4];
  for (int part = 0; part < 4; ++part)
    word[part] = _mm256_cvtps_epi32(_mm256_mul_ps(x[part], inverse));
  const __m256i bytes =
    _mm256_packs_epi16(_mm256_packs_epi32(word[0], word[1]), _mm256_packs_epi32(word[2], word[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packs work within halves
  _mm256_storeu_si256(to, _mm256_permutevar8x32_epi32(bytes, order));
  return most / 127.0F;
}

void encode_row(const float* x, std::int64_t dim, std::int8_t* codes, float* scales) {
  __m256 values[4];
  std::int64_t at = 0;
  for (; at + int8_group <= dim; at += int8_group) {
    for (int part = 0; part < 4; ++part) values[part] = _mm256_loadu_ps(x + at + 8 * part);
    scales[at / int8_group] = encode_group(values, codes + at);
  }
  if (at == dim) return;
  for (int part = 0; part < 4; ++part)
    values[part] = _mm256_maskload_ps(x + at + 8 * part, lanes_of(dim - at, part));
  scales[at / int8_group] = encode_group(values, codes + at);
}

}  // namespace

void to_int8_avx2(const stream_ref& stream, const to_int8_args& a) {
  const auto stride = a.x_stride ? a.x_stride : a.dim;
  const auto groups = (a.dim + int8_group - 1) / int8_group;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      encode_row(a.x + row * stride, a.dim, a.codes + row * groups * int8_group,
                 a.scales + row * groups);
  });
}

}  // namespace deepinfer::kernels
