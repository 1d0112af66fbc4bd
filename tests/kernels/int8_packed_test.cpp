#include "int8_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

floats stored_row(const stored_matrix& m, std::int64_t row) {
  floats out(size(m.in));
  dequantise_row(m, row, out.data());
  return out;
}

floats packed_row(const packed_matrix& m, std::int64_t row) {
  floats out(size(m.in));
  unpack_row(m, row, out.data());
  return out;
}

/// One f32 row of 32 values, packed.
struct one_group {
  floats values;
  int8_matrix matrix;
  std::int32_t codes[code_group];
  float scale;

  explicit one_group(floats w)
    : values(std::move(w)),
      matrix({dtype::f32, 1, 32, reinterpret_cast<const std::byte*>(values.data()), nullptr}),
      scale(int8_group_codes(matrix.packed, 0, 0, codes)) {}
};

}  // namespace

TEST_CASE("FP4 weights packed for int8 activations come back exactly, signs of zero included") {
  for (const std::int64_t out : {1, 7, 8, 9, 15, 16, 17, 33, 100})
    for (const std::int64_t in : {1, 2, 31, 32, 33, 64, 100, 127, 129, 160}) {
      const int8_source source(dtype::i8, out, in, static_cast<std::uint64_t>(out * 1000 + in));
      const int8_matrix matrix(source.stored);
      CHECK(matrix.packed.type == panel_type::i4);
      bool same = true;
      for (std::int64_t row = 0; row < out; ++row)
        same = same && same_bits(packed_row(matrix.packed, row), stored_row(source.stored, row));
      CHECK(same);
    }
}

TEST_CASE("every e8m0 scale of an FP4 weight is kept, the NaN and the subnormal too") {
  const std::int64_t out = 256, in = 32;
  int8_source source(dtype::i8, out, in, 3);
  for (std::int64_t row = 0; row < out; ++row)
    source.scale[size(row)] = std::byte{static_cast<std::uint8_t>(row)};
  const int8_matrix matrix(source.stored);
  for (std::int64_t row = 0; row < out; ++row)
    CHECK(same_values(packed_row(matrix.packed, row), stored_row(source.stored, row)));
  auto bare = source.stored;
  bare.scale = nullptr;
  const int8_matrix unscaled(bare);
  CHECK(same_bits(packed_row(unscaled.packed, 5), stored_row(bare, 5)));
}

TEST_CASE("weights rounded to int8 come back as code * scale, within half a scale") {
  for (const auto type : {dtype::f32, dtype::bf16, dtype::f8_e4m3})
    for (const std::int64_t out : {1, 15, 16, 17, 33})
      for (const std::int64_t in : {1, 31, 32, 33, 65, 129}) {
        const int8_source source(type, out, in, static_cast<std::uint64_t>(out * 100 + in));
        const int8_matrix matrix(source.stored);
        CHECK(matrix.packed.type == panel_type::i8);
        for (std::int64_t row = 0; row < out; ++row) {
          const auto stored = stored_row(source.stored, row);
          const auto packed = packed_row(matrix.packed, row);
          bool is_near = true, is_product = true;
          for (std::int64_t i = 0; i < in; ++i) {
            std::int32_t codes[code_group];
            const float scale = int8_group_codes(matrix.packed, row, i / 32, codes);
            is_product = is_product && packed[size(i)] == static_cast<float>(codes[i % 32]) * scale;
            const double off = static_cast<double>(packed[size(i)]) - stored[size(i)];
            is_near = is_near && std::fabs(off) <= 0.5000001 * static_cast<double>(scale);
          }
          CHECK(is_near);
          CHECK(is_product);
        }
      }
}

TEST_CASE("the codes of a group are at most 64, whichever way its scale was rounded") {
  std::int32_t most = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const one_group group(noise(seed, 32, 0.5F + static_cast<float>(seed) * 0.01F));
    for (const auto code : group.codes) {
      CHECK(std::abs(code) <= 64);
      most = std::max(most, std::abs(code));
    }
  }
  CHECK(most == 64);
}

TEST_CASE(
  "of the nearest scale and the next power of two, the one with less squared error is used") {
  int nearest = 0, power = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const one_group group(noise(seed, 32, 0.5F + static_cast<float>(seed) * 0.005F));
    float most = 0;
    for (const float w : group.values) most = std::max(most, std::fabs(w));
    const auto error = [&](float scale) {
      double sum = 0;
      for (const float w : group.values) {
        const double off = w - static_cast<double>(std::nearbyint(w / scale)) * scale;
        sum += off * off;
      }
      return sum;
    };
    const float even = bf16_decode(bf16_encode(most / 64)), next = pow2ceil(most / 64);
    const double least = std::min(error(even), error(next));
    CHECK(error(group.scale) <= least * (1 + 1e-5));
    CHECK((group.scale == even || group.scale == next));
    nearest += group.scale == even;
    power += group.scale == next;
  }
  CHECK(power > 10);
  CHECK(nearest > 10);
}

TEST_CASE("inputs and outputs that a packed matrix lacks have the code 0") {
  for (const auto type : {dtype::f32, dtype::bf16, dtype::f8_e4m3, dtype::i8})
    for (const std::int64_t out : {1, 5, 9, 17})
      for (const std::int64_t in : {1, 3, 31, 33, 37, 64}) {
        const int8_source source(type, out, in, static_cast<std::uint64_t>(out * 64 + in));
        const int8_matrix matrix(source.stored);
        bool is_zero = true, is_scaled = true;
        for (std::int64_t row = 0; row < matrix.packed.panels() * panel_width; ++row)
          for (std::int64_t group = 0; group < (in + 31) / 32; ++group) {
            std::int32_t codes[code_group];
            const float scale = int8_group_codes(matrix.packed, row, group, codes);
            for (std::int64_t i = 0; i < code_group; ++i)
              if (row >= out || group * 32 + i >= in) is_zero = is_zero && codes[i] == 0;
            if (row >= out) is_scaled = is_scaled && scale <= 0x1p-127F;
          }
        CHECK(is_zero);
        CHECK(is_scaled);
      }
}

TEST_CASE("E4M3 weights of the three upper binades are kept exactly") {
  floats w;
  for (int i = 0; i < 32; ++i)
    w.push_back(static_cast<float>((8 + i % 8) << i % 3) * (i % 2 ? -0.25F : 0.25F));
  w[0] = 15.0F;
  const one_group group(w);
  CHECK(group.scale == 0.25F);
  CHECK(same_bits(packed_row(group.matrix.packed, 0), w));
}

TEST_CASE("groups without values, and with ones that are not finite, show in the scale") {
  CHECK(one_group(floats(32, 0.0F)).scale == 0);
  CHECK(one_group(floats(32, 1e-38F)).scale == 0);
  CHECK(one_group(floats(32, 0x1p-118F)).scale > 0);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    floats w(32, 1.0F);
    w[31] = bad;
    const one_group group(w);
    CHECK(std::isnan(group.scale));
    CHECK(std::isnan(packed_row(group.matrix.packed, 0)[0]));
  }
}
