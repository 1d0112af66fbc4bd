#include "int8_support.hpp"

#include "kernels/isa.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const auto needs_avx2 = doctest::skip(!runs(isa::avx2));

/// Random codes over all of [-127, 127].
int8_input random_codes(std::int64_t rows, std::int64_t in, std::uint64_t seed) {
  int8_input out(rows, in);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < in; ++i)
      out.codes[size(r * int8_padded(in) + i)] = static_cast<std::int8_t>(
        static_cast<int>(split_mix64(seed + static_cast<std::uint64_t>(r * in + i)) % 255) - 127);
  for (std::size_t i = 0; i < out.scales.size(); ++i)
    out.scales[i] = 0.001F * static_cast<float>(1 + split_mix64(seed * 31 + i) % 100);
  return out;
}

int8_input rows_from(const int8_input& all, std::int64_t begin, std::int64_t count) {
  int8_input out(count, all.in);
  const auto width = int8_padded(all.in), groups = width / int8_group;
  std::copy_n(all.codes.begin() + begin * width, count * width, out.codes.begin());
  std::copy_n(all.scales.begin() + begin * groups, count * groups, out.scales.begin());
  return out;
}

constexpr dtype source_types[] = {dtype::f32, dtype::f8_e4m3, dtype::i8};

}  // namespace

TEST_CASE(
  "an int8 product is the exact sum of unpacked weights and activations, but for f32 sums") {
  for (const auto type : source_types)
    for (const std::int64_t out : {1, 17, 40})
      for (const std::int64_t in : {1, 33, 129, 512}) {
        const int8_source source(type, out, in, static_cast<std::uint64_t>(out + in));
        const int8_matrix matrix(source.stored);
        const std::int64_t rows = 3;
        const auto input = int8_of(noise(7, rows * in, 2), rows, in);
        const auto y = multiply(int8_matrix_rows_ref, matrix.packed, input);
        floats weights(size(in));
        for (std::int64_t o = 0; o < out; ++o) {
          unpack_row(matrix.packed, o, weights.data());
          for (std::int64_t r = 0; r < rows; ++r) {
            double sum = 0, magnitude = 0;
            float plain = 0;
            for (std::int64_t i = 0; i < in; ++i) {
              const auto at = r * int8_padded(in) + i;
              const float scale = input.scales[size(at / int8_group)];
              const double x = static_cast<double>(input.codes[size(at)]) * scale;
              sum += weights[size(i)] * x;
              magnitude += std::fabs(weights[size(i)] * x);
              plain += weights[size(i)] * (static_cast<float>(input.codes[size(at)]) * scale);
            }
            const auto off = std::fabs(y[size(r * out + o)] - sum);
            CHECK(off <= 2 * std::max(std::fabs(plain - sum), magnitude * 0x1p-24));
          }
        }
      }
}

TEST_CASE("int8 products in AVX2 give the reference's bits for any rows and sizes" * needs_avx2) {
  for (const auto type : source_types)
    for (const std::int64_t out : {1, 15, 16, 17, 31, 33, 79, 100, 129})
      for (const std::int64_t in : {1, 15, 31, 32, 33, 64, 65, 100, 129, 257}) {
        const int8_source source(type, out, in, static_cast<std::uint64_t>(out * 37 + in));
        const int8_matrix matrix(source.stored);
        bool same = true;
        for (const std::int64_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 33}) {
          const auto input = random_codes(rows, in, static_cast<std::uint64_t>(rows + in));
          same = same && same_values(multiply(int8_matrix_rows_avx2, matrix.packed, input),
                                     multiply(int8_matrix_rows_ref, matrix.packed, input));
        }
        CHECK_MESSAGE(same, "out ", out, " in ", in, " from ", name_of(type));
      }
}

TEST_CASE("int8 products in AVX2 give the reference's bits for each number of rows" * needs_avx2) {
  for (const auto type : source_types) {
    const int8_source source(type, 37, 100, 5);
    const int8_matrix matrix(source.stored);
    for (std::int64_t rows = 0; rows <= 70; ++rows) {
      const auto input = random_codes(rows, 100, static_cast<std::uint64_t>(rows));
      CHECK(same_values(multiply(int8_matrix_rows_avx2, matrix.packed, input),
                        multiply(int8_matrix_rows_ref, matrix.packed, input)));
    }
  }
}

TEST_CASE("the largest codes do not overflow: all of one sign, alternating, and one alone" *
          needs_avx2) {
  const std::int64_t in = 64, out = 20;
  for (const auto type : {dtype::f32, dtype::i8})
    for (int pattern = 0; pattern < 8; ++pattern) {
      const auto is_negative = [&](std::int64_t i) {
        return pattern & 1 ? i % 2 != 0 : pattern & 2 ? (i / 2) % 2 != 0 : false;
      };
      floats w(size(out * in));
      bytes pairs(size(out * in / 2)), scale(size(out * in / 32), std::byte{127});
      for (std::int64_t i = 0; i < out * in; ++i) {
        w[size(i)] = is_negative(i) ? -1.0F : 1.0F;
        const auto code = std::byte{static_cast<std::uint8_t>(is_negative(i) ? 15 : 7)};
        pairs[size(i / 2)] |= i % 2 ? code << 4 : code;
      }
      const bool is_fp4 = type == dtype::i8;
      const auto* data = is_fp4 ? pairs.data() : reinterpret_cast<const std::byte*>(w.data());
      const int8_matrix matrix({type, out, in, data, is_fp4 ? scale.data() : nullptr});
      int8_input input(6, in);
      for (std::int64_t r = 0; r < 6; ++r)
        for (std::int64_t i = 0; i < in; ++i) {
          const int sign = r == 0 ? 1 : r == 1 ? -1 : r == 2 ? (is_negative(i) ? -1 : 1) : 0;
          const int code = r == 3   ? (i == 31 ? -127 : 0)
                           : r == 4 ? (i % 4 < 2 ? 127 : -127)
                                    : 127 * sign;
          input.codes[size(r * in + i)] = static_cast<std::int8_t>(pattern & 4 ? -code : code);
        }
      for (auto& value : input.scales) value = 0.5F;
      const auto y = multiply(int8_matrix_rows_ref, matrix.packed, input);
      CHECK(std::fabs(y[size(2 * out)]) == (is_fp4 ? 6.0F : 1.0F) * 127 * 64 * 0.5F);
      CHECK(same_values(multiply(int8_matrix_rows_avx2, matrix.packed, input), y));
      for (std::int64_t r = 0; r < 6; ++r) {
        const auto one = rows_from(input, r, 1);
        CHECK(
          same_values(multiply(int8_matrix_rows_avx2, matrix.packed, one), rows_of(y, r, 1, out)));
      }
    }
}

TEST_CASE("NaN, infinite and subnormal scales reach the result as in the reference" * needs_avx2) {
  const std::int64_t in = 96, out = 258;
  int8_source source(dtype::i8, out, in, 11);
  for (std::int64_t o = 0; o < out; ++o)  // every e8m0 byte
    for (std::int64_t group = 0; group < 3; ++group)
      source.scale[size(o * 3 + group)] = std::byte{static_cast<std::uint8_t>(o)};
  const int8_matrix matrix(source.stored);
  for (const std::int64_t rows : {1, 3, 6}) {
    auto input = random_codes(rows, in, 3);
    const auto y = multiply(int8_matrix_rows_ref, matrix.packed, input);
    CHECK(std::isnan(y[255]));
    CHECK(!std::isnan(y[1]));
    CHECK(same_values(multiply(int8_matrix_rows_avx2, matrix.packed, input), y));
    for (auto& scale : input.scales) scale *= 0x1p100F;  // the smallest weights count
    CHECK(same_values(multiply(int8_matrix_rows_avx2, matrix.packed, input),
                      multiply(int8_matrix_rows_ref, matrix.packed, input)));
    input.scales[1] = std::nanf("");
    input.scales[2] = std::numeric_limits<float>::infinity();
    input.scales[0] = 1e-40F;
    const auto bad = multiply(int8_matrix_rows_avx2, matrix.packed, input);
    CHECK(same_values(bad, multiply(int8_matrix_rows_ref, matrix.packed, input)));
    for (std::int64_t o = 0; o < out; ++o) CHECK(std::isnan(bad[size(o)]));
    if (rows > 1) CHECK(std::isfinite(bad[size(out + 1)]));
  }
}

TEST_CASE("a row's bits depend neither on other rows nor on the range of panels" * needs_avx2) {
  for (const auto type : source_types) {
    const std::int64_t out = 151, in = 200, rows = 33;
    const int8_source source(type, out, in, 21);
    const int8_matrix matrix(source.stored);
    const auto input = random_codes(rows, in, 77);
    const auto y = multiply(int8_matrix_rows_avx2, matrix.packed, input);
    for (std::int64_t begin = 0; begin < rows; begin += 5)
      for (std::int64_t count = 1; count <= std::min<std::int64_t>(5, rows - begin); ++count)
        CHECK(same_values(
          multiply(int8_matrix_rows_avx2, matrix.packed, rows_from(input, begin, count)),
          rows_of(y, begin, count, out)));
    for (const auto product : {int8_matrix_rows_ref, int8_matrix_rows_avx2})
      for (std::int64_t begin = 0; begin <= matrix.packed.panels(); ++begin)
        for (auto end = begin; end <= matrix.packed.panels(); ++end) {
          const auto part = multiply(product, matrix.packed, input, begin, end);
          bool same = true;
          for (std::int64_t i = 0; i < rows * out; ++i) {
            const auto panel = i % out / panel_width;
            const float expected = panel >= begin && panel < end ? y[size(i)] : 7.0F;
            same = same && part[size(i)] == expected;
          }
          CHECK(same);
        }
  }
}
