// Lookup, gather, norm, confidence, arg-max: the row-wise ops.
#include "kernel_support.hpp"

#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

TEST_CASE("lookup: a row of any storage comes back as f32, copied, and id -1 as zeros") {
  const std::int64_t rows = 5, dim = 40;
  const auto values = noise(1, rows * dim);
  std::vector<std::uint16_t> half;
  for (const float v : values) half.push_back(bf16_encode(v));
  std::vector<std::uint8_t> codes, scales;
  for (std::int64_t i = 0; i < rows * dim; ++i) codes.push_back(e4m3_encode(values[size(i)] * 400));
  for (std::int64_t i = 0; i < rows * 2; ++i) scales.push_back(static_cast<std::uint8_t>(120 + i));
  const row_table tables[] = {
    {dtype::f32, reinterpret_cast<const std::byte*>(values.data()), nullptr, rows, dim},
    {dtype::bf16, reinterpret_cast<const std::byte*>(half.data()), nullptr, rows, dim},
    {dtype::f8_e4m3, reinterpret_cast<const std::byte*>(codes.data()),
     reinterpret_cast<const std::byte*>(scales.data()), rows, dim}};
  const ints id32{4, -1, 0, 4};
  const std::vector<std::int64_t> id64{4, -1, 0, 4};
  for (const auto& table : tables) {
    floats expected;
    for (const auto id : id32)
      for (int copy = 0; copy < 3; ++copy)
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto at = size(id * dim + d);
          const float v =
            id < 0                     ? 0
            : table.type == dtype::f32 ? values[at]
            : table.type == dtype::bf16
              ? bf16_round(values[at])
              : e4m3_decode(codes[at]) * std::ldexp(1.0F, scales[size(id * 2 + d / 32)] - 127);
          expected.push_back(v);
        }
    const auto run = [&](const stream_ref& stream, bool wide) {
      floats y(expected.size(), 9);
      lookup_ref(stream, {.table = &table,
                          .index32 = wide ? nullptr : id32.data(),
                          .index64 = wide ? id64.data() : nullptr,
                          .y = y.data(),
                          .count = 4,
                          .copies = 3});
      return y;
    };
    CHECK(on_every_team([&](const stream_ref& s) { return run(s, false); }) == expected);
    CHECK(run({}, true) == expected);
  }
  floats y(size(dim));
  lookup_ref(
    {}, {.table = &tables[0], .index32 = id32.data(), .y = y.data(), .count = 1, .bf16 = true});
  CHECK(y[3] == bf16_round(values[size(4 * dim + 3)]));
}

TEST_CASE("gather picks rows in any order, with repeats, and -1 gives zeros") {
  const auto x = noise(2, 6 * 5);
  const ints index{5, 0, -1, 5};
  const auto y = on_every_team([&](const stream_ref& stream) {
    floats out(4 * 5, 7);
    gather_ref(stream,
               {.x = x.data(), .index = index.data(), .y = out.data(), .count = 4, .dim = 5});
    return out;
  });
  CHECK(rows_of(y, 0, 1, 5) == rows_of(x, 5, 1, 5));
  CHECK(rows_of(y, 1, 1, 5) == rows_of(x, 0, 1, 5));
  CHECK(rows_of(y, 2, 1, 5) == floats(5, 0));
  CHECK(rows_of(y, 3, 1, 5) == rows_of(x, 5, 1, 5));
}

TEST_CASE("rms_norm matches double precision for any width, strided, and rounds once") {
  for (const std::int64_t dim : {1, 15, 16, 17, 100, 1280}) {
    const std::int64_t rows = 5, stride = dim + 3;
    const auto x = noise(3, rows * stride, 4), weight = noise(4, dim);
    std::vector<double> expected;
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t d = 0; d < dim; ++d) sum += std::pow(x[size(r * stride + d)], 2);
      for (std::int64_t d = 0; d < dim; ++d)
        expected.push_back(weight[size(d)] * x[size(r * stride + d)] /
                           std::sqrt(sum / static_cast<double>(dim) + 1e-6));
    }
    const auto run = [&](const stream_ref& stream, bool bf16) {
      floats y(size(rows * dim));
      rms_norm_ref(stream, {.x = x.data(),
                            .weight = weight.data(),
                            .y = y.data(),
                            .rows = rows,
                            .dim = dim,
                            .x_stride = stride,
                            .eps = 1e-6F,
                            .bf16 = bf16});
      return y;
    };
    const auto y = on_every_team([&](const stream_ref& s) { return run(s, false); });
    CHECK(distance(y, expected) < 4e-6);
    auto rounded = y;
    for (auto& v : rounded) v = bf16_round(v);
    CHECK(run({}, true) == rounded);
  }
}

TEST_CASE("rms_norm: an all-zero row stays zero even with the release's eps of 1e-20") {
  const floats weight(8, 1);
  floats x(8, 0);
  rms_norm_ref(
    {},
    {.x = x.data(), .weight = weight.data(), .y = x.data(), .rows = 1, .dim = 8, .eps = 1e-20F});
  CHECK(x == floats(8, 0));
}

TEST_CASE("rms_norm: strided output leaves what lies between rows alone") {
  const auto x = noise(3, 8), weight = noise(5, 4);
  floats y(12, 7);
  rms_norm_ref({}, {.x = x.data(),
                    .weight = weight.data(),
                    .y = y.data(),
                    .rows = 2,
                    .dim = 4,
                    .y_stride = 6,
                    .eps = 1e-6F});
  CHECK(y[4] == 7);
  CHECK(y[5] == 7);
  CHECK(y[6] != 7);
}

TEST_CASE("confidence is the dot product with the row, then with its embedding") {
  const std::int64_t rows = 4, dim = 37, rank = 19;
  const auto w = noise(1, dim + rank), x = noise(2, rows * dim), e = noise(3, rows * 2 * rank);
  std::vector<double> expected;
  for (std::int64_t r = 0; r < rows; ++r) {
    double z = 0;
    for (std::int64_t d = 0; d < dim; ++d) z += double{w[size(d)]} * x[size(r * dim + d)];
    for (std::int64_t d = 0; d < rank; ++d)
      z += double{w[size(dim + d)]} * e[size(r * 2 * rank + d)];
    expected.push_back(z);
  }
  const auto z = on_every_team([&](const stream_ref& stream) {
    floats out(4);
    confidence_ref(stream, {.weight = w.data(),
                            .x = x.data(),
                            .e = e.data(),
                            .z = out.data(),
                            .rows = rows,
                            .dim = dim,
                            .rank = rank,
                            .e_stride = 2 * rank});
    return out;
  });
  CHECK(distance(z, expected) < 1e-5);
}

TEST_CASE("argmax: ties go to the lowest id, NaN never wins, a row of NaN gives 0") {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  const floats x{1, 5, 5, 2, nan, -1, nan, -1, nan, nan, nan, nan, -inf, -inf, inf, inf};
  const auto id = on_every_team([&](const stream_ref& stream) {
    ints out(8, 9);
    argmax_ref(stream, {.x = x.data(), .id = out.data(), .rows = 4, .dim = 4, .id_stride = 2});
    return out;
  });
  CHECK(id == ints{1, 9, 1, 9, 0, 9, 2, 9});
}
