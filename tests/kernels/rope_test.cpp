#include "kernel_support.hpp"

#include <cmath>

#include "kernels/common/formats.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

TEST_CASE("rope: the release's YaRN frequencies, and plain ones without a context to stretch") {
  floats f(32);
  rope_frequencies({.theta = 160000, .rotary = 64, .original_positions = 65536, .factor = 16},
                   f.data());
  const struct {
    std::size_t pair;
    double frequency;
  } table[] = {{0, 1},
               {1, .68765602},
               {14, 5.2868563e-3},
               {15, 3.6355386e-3},
               {16, 2.265625e-3},
               {20, 2.9697778e-4},
               {24, 1.953125e-5},
               {25, 5.3723127e-6},
               {31, 5.680529e-7}};
  for (const auto& row : table) CHECK(std::fabs(f[row.pair] / row.frequency - 1) < 1e-7);
  rope_frequencies({.theta = 10000, .rotary = 64, .original_positions = 0, .factor = 16}, f.data());
  for (std::size_t i = 0; i < 32; ++i)
    CHECK(f[i] == static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / 32)));
}

TEST_CASE("rope: the YaRN ramp may end beyond the last pair, but at r - 1 at most") {
  // corr(1) = 16 ln(65536 / 2 pi) / (2 ln 10000) = 8.04, so the ramp runs from 5 to 9 over 8 pairs;
  // with 2^40 positions it would run from 11 to 23 and is cut at 15.
  floats f(8);
  rope_frequencies({.theta = 10000, .rotary = 16, .original_positions = 65536, .factor = 4},
                   f.data());
  for (std::size_t i = 0; i < 8; ++i) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 8);
    const double ramp = i <= 5 ? 0 : (static_cast<double>(i) - 5) / 4;
    CHECK(f[i] == doctest::Approx(plain / 4 * ramp + plain * (1 - ramp)).epsilon(1e-6));
  }
  rope_frequencies({.theta = 100,
                    .rotary = 16,
                    .original_positions = std::int64_t{1} << 40,
                    .factor = 4,
                    .beta_fast = 1e10},
                   f.data());
  const double low =
    std::floor(16 * std::log(0x1p40 / (6.283185307179586 * 1e10)) / (2 * std::log(100.0)));
  REQUIRE(low < 7);
  const double ramp = (7 - low) / (15 - low), plain = std::pow(100.0, -7.0 / 8);
  CHECK(f[7] == doctest::Approx(plain / 4 * ramp + plain * (1 - ramp)).epsilon(1e-6));
}

TEST_CASE("rope turns the last entries of each head by position times frequency") {
  const std::int64_t heads = 3, dim = 10;
  const std::int32_t rotary = 6;
  const floats frequency{1, .25F, 1e-3F};
  const ints position{0, 1, 77, 1000003, -1};
  const auto x = noise(1, 5 * heads * dim);
  const auto angles = on_every_team([&](const stream_ref& stream) {
    floats out(5 * 6);
    rope_angles_ref(stream, {.position = position.data(),
                             .frequency = frequency.data(),
                             .angles = out.data(),
                             .tokens = 5,
                             .rotary = rotary});
    return out;
  });
  const auto run = [&](const stream_ref& stream, bool inverse, bool bf16, floats in) {
    rope_ref(stream, {.x = in.data(),
                      .angles = angles.data(),
                      .tokens = 5,
                      .heads = heads,
                      .dim = dim,
                      .rotary = rotary,
                      .inverse = inverse,
                      .bf16 = bf16});
    return in;
  };
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 5 * heads * dim; ++i) {
    const auto d = i % dim, pair = (d - (dim - rotary)) / 2;
    if (d < dim - rotary) {
      expected.push_back(x[size(i)]);
      continue;
    }
    const auto p = position[size(i / dim / heads)];
    // The angle is the f32 product: at position 1000003 an exact one differs visibly.
    const double angle = p < 0 ? 0 : double{static_cast<float>(p) * frequency[size(pair)]};
    const bool is_even = (d - (dim - rotary)) % 2 == 0;
    const double even = x[size(is_even ? i : i - 1)], odd = x[size(is_even ? i + 1 : i)];
    expected.push_back(is_even ? even * std::cos(angle) - odd * std::sin(angle)
                               : even * std::sin(angle) + odd * std::cos(angle));
  }
  const auto y = on_every_team([&](const stream_ref& s) { return run(s, false, false, x); });
  CHECK(distance(y, expected) < 3e-7);
  CHECK(distance(run({}, true, false, y), x) < 5e-7);
  CHECK(rows_of(y, 0, heads, dim) == rows_of(x, 0, heads, dim));
  CHECK(rows_of(y, 4 * heads, heads, dim) == rows_of(x, 4 * heads, heads, dim));
  const auto rounded = run({}, false, true, x);
  for (std::int64_t i = 0; i < 5 * heads * dim; ++i)
    CHECK(rounded[size(i)] == (i % dim < dim - rotary ? y[size(i)] : bf16_round(y[size(i)])));
}

TEST_CASE(
  "rope: a product of two rotated vectors depends on the distance of their positions only") {
  const floats frequency{.9F, .01F};
  const auto product = [&](std::int32_t a, std::int32_t b) {
    const ints position{a, b};
    floats angles(8), x = noise(3, 8);
    rope_angles_ref({}, {.position = position.data(),
                         .frequency = frequency.data(),
                         .angles = angles.data(),
                         .tokens = 2,
                         .rotary = 4});
    rope_ref(
      {}, {.x = x.data(), .angles = angles.data(), .tokens = 2, .heads = 1, .dim = 4, .rotary = 4});
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += double{x[i]} * x[4 + i];
    return sum;
  };
  CHECK(std::fabs(product(7, 3) - product(104, 100)) < 1e-5);
  CHECK(std::fabs(product(7, 3) - product(104, 99)) > 1e-3);
}
