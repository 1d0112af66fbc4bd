#include "kernel_support.hpp"

#include <cmath>

#include "kernels/common/lanes.hpp"
#include "kernels/linear/fused_product.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(split_mix64(seed + i) >> 40) * 0x1p-23f - 1.0f;
  return out;
}

}  // namespace

TEST_CASE("a fused product is runs of 128 fused multiply-adds, whatever the machine and the rows") {
  struct shape {
    std::int64_t out, in, rows;
  };
  for (const auto& it : {shape{1, 1, 1},
                         {16, 128, 1},
                         {24, 512, 3},
                         {17, 129, 35},
                         {40, 300, 2},
                         {24, 127, 16},
                         {5, 1, 0}}) {
    CAPTURE(it.in);
    CAPTURE(it.rows);
    const auto w = numbers(static_cast<std::size_t>(it.out * it.in), 7);
    const auto x = numbers(static_cast<std::size_t>(it.rows * it.in), 1'000'000);
    stored_matrix stored;
    stored.type = dtype::f32;
    stored.out = it.out;
    stored.in = it.in;
    stored.data = reinterpret_cast<const std::byte*>(w.data());
    std::vector<std::byte> panels(packed_bytes(panel_type_of(dtype::f32), it.out, it.in));
    const auto packed = pack_matrix(stored, packing::exact, panels.data());
    std::vector<float> y(static_cast<std::size_t>(it.rows * it.out), -1.0f);
    for (std::int64_t panel = 0; panel * 16 < it.out; ++panel)
      fused_product({&packed, x.data(), y.data(), it.rows}, panel);
    for (std::int64_t row = 0; row < it.rows; ++row) {
      for (std::int64_t out = 0; out < it.out; ++out) {
        float total = 0;
        for (std::int64_t at = 0; at < it.in; at += 128) {
          float run = 0;
          for (std::int64_t i = at; i < std::min(it.in, at + 128); ++i)
            run = std::fma(x[static_cast<std::size_t>(row * it.in + i)],
                           w[static_cast<std::size_t>(out * it.in + i)], run);
          total += run;
        }
        REQUIRE(y[static_cast<std::size_t>(row * it.out + out)] == total);
      }
    }
  }
}

TEST_CASE("a sum in eights adds 32 at a time to four times eight sums, the rest first at the end") {
  for (const std::int64_t count : {0, 1, 7, 8, 9, 31, 32, 33, 40, 47, 64, 100, 257}) {
    CAPTURE(count);
    const auto x = numbers(static_cast<std::size_t>(count), 99);
    float lane[4][8] = {};
    std::int64_t i = 0;
    for (; i + 32 <= count; i += 32)
      for (std::int64_t k = 0; k < 32; ++k)
        lane[k / 8][k % 8] += x[static_cast<std::size_t>(i + k)];
    for (; i + 8 <= count; i += 8)
      for (std::int64_t k = 0; k < 8; ++k) lane[0][k] += x[static_cast<std::size_t>(i + k)];
    float wanted = 0;
    for (; i < count; ++i) wanted += x[static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < 8; ++k)
      wanted += ((lane[0][k] + lane[1][k]) + lane[2][k]) + lane[3][k];
    CHECK(sum_in_eights(count, [&](std::int64_t at) { return x[static_cast<std::size_t>(at)]; }) ==
          wanted);
  }
}
