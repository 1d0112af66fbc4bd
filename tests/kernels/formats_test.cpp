#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/common/formats.hpp"

using namespace deepinfer::kernels;

TEST_CASE("e4m3: decoding then encoding returns every code, and the limits are those of FN") {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) {
      CHECK(std::isnan(e4m3_decode(static_cast<std::uint8_t>(code))));
      continue;
    }
    CHECK(e4m3_encode(e4m3_decode(static_cast<std::uint8_t>(code))) == code);
  }
  CHECK(e4m3_decode(0x7e) == 448.0F);
  CHECK(e4m3_decode(0x08) == 0x1p-6F);
  CHECK(e4m3_decode(0x01) == 0x1p-9F);
  CHECK(e4m3_encode(1e9F) == 0x7e);
  CHECK(e4m3_encode(-1e9F) == 0xfe);
  CHECK((e4m3_encode(std::numeric_limits<float>::quiet_NaN()) & 0x7f) == 0x7f);
}

TEST_CASE("e4m3 and e2m1 encoders round to the nearest code, ties to the even one") {
  struct format {
    unsigned codes;
    float (*decode)(std::uint8_t);
    std::uint8_t (*encode)(float);
  };
  for (const auto& f : {format{0x7f, e4m3_decode, e4m3_encode}, {8, e2m1_decode, e2m1_encode}}) {
    for (std::uint8_t code = 0; code + 1u < f.codes; ++code) {
      const float low = f.decode(code), high = f.decode(static_cast<std::uint8_t>(code + 1));
      const float middle = low + (high - low) / 2;
      CAPTURE(low);
      CHECK(f.encode(middle) == code + code % 2);
      CHECK(f.encode(std::nextafter(middle, 0.0F)) == code);
      CHECK(f.encode(std::nextafter(middle, 1e9F)) == code + 1);
    }
  }
}

TEST_CASE("e2m1: the listed ties, the sign and the clamp") {
  const struct {
    float value, rounded;
  } table[] = {{.25F, 0}, {.75F, 1}, {1.25F, 1}, {1.75F, 2}, {2.5F, 2}, {3.5F, 4}, {5, 4}, {9, 6}};
  for (const auto& row : table) {
    CHECK(e2m1_decode(e2m1_encode(row.value)) == row.rounded);
    CHECK(e2m1_decode(e2m1_encode(-row.value)) == -row.rounded);
  }
  CHECK(e2m1_encode(-0.0F) == 8);
}

TEST_CASE("bf16: every code survives, ties go to even, overflow becomes infinity, NaN stays NaN") {
  for (unsigned code = 0; code < 65536; ++code) {
    const float value = bf16_decode(static_cast<std::uint16_t>(code));
    if (std::isnan(value))
      REQUIRE(std::isnan(bf16_round(value)));
    else
      REQUIRE(bf16_encode(value) == code);
  }
  CHECK(bf16_round(1.0F + 0x1p-8F) == 1.0F);
  CHECK(bf16_round(1.0F + 0x1p-7F + 0x1p-8F) == 1.0F + 0x1p-6F);
  CHECK(bf16_round(1.0F + 0x1p-8F + 0x1p-20F) == 1.0F + 0x1p-7F);
  CHECK(std::isinf(bf16_round(std::numeric_limits<float>::max())));
  CHECK(std::isnan(bf16_round(std::bit_cast<float>(0x7f800001u))));
}

TEST_CASE("e8m0 is 2^(b-127) down to b = 0, and 255 is NaN") {
  for (int b = 0; b < 255; ++b)
    CHECK(e8m0_decode(static_cast<std::uint8_t>(b)) == std::ldexp(1.0F, b - 127));
  CHECK(std::isnan(e8m0_decode(255)));
}

TEST_CASE("pow2ceil gives the smallest power of two at or above a value") {
  const struct {
    float value, power;
  } table[] = {{1, 1}, {1.0000001F, 2},        {0.75F, 1}, {0x1p-126F, 0x1p-126F},
               {3, 4}, {1e-4F / 448, 0x1p-22F}};
  for (const auto& row : table) CHECK(pow2ceil(row.value) == row.power);
}
