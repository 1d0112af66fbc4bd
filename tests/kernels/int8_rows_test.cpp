#include "int8_support.hpp"

#include "kernels/isa.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const auto needs_avx2 = doctest::skip(!runs(isa::avx2));
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct outcome {
  std::vector<std::int8_t> codes;
  floats scales;
};

/// Storage of exactly the size an op may touch, filled with other values before.
outcome encode(decltype(&to_int8_ref) op, const stream_ref& stream, const floats& x,
               std::int64_t rows, std::int64_t dim, std::int64_t stride = 0) {
  outcome out{std::vector<std::int8_t>(size(rows * int8_padded(dim)), std::int8_t{55}),
              floats(size(rows * int8_padded(dim) / int8_group), -3.0F)};
  op(stream, {.x = x.data(),
              .codes = out.codes.data(),
              .scales = out.scales.data(),
              .rows = rows,
              .dim = dim,
              .x_stride = stride});
  return out;
}

/// A group of 32 of each awkward kind, one row each.
floats awkward_groups() {
  floats x;
  const auto add = [&](auto&& value) {
    for (int i = 0; i < 32; ++i) x.push_back(value(i));
  };
  add([](int) { return 0.0F; });
  add([](int) { return -0.0F; });
  add([](int i) { return i % 2 ? 1.0F : -1.0F; });
  add([](int i) { return i == 17 ? 1e30F : static_cast<float>(i); });
  add([](int i) { return i == 31 ? std::numeric_limits<float>::max() : -1.0F; });
  add([](int i) { return static_cast<float>(i) * 1e-40F; });
  add([](int i) { return i == 3 ? int8_smallest : -0.3F * int8_smallest; });
  add([](int i) { return i == 3 ? 0.9999F * int8_smallest : 0.0F; });
  add([](int i) { return i == 8 ? nan : 2.0F; });
  add([](int i) { return i == 31 ? -nan : 0.0F; });
  add([](int i) { return i == 0 ? infinity : 2.0F; });
  add([](int i) { return i == 16 ? -infinity : 0.0F; });
  add([](int i) { return i == 0 ? 127.0F : static_cast<float>(i) + 0.5F; });  // ties
  add([](int i) { return i == 0 ? -127.0F : -static_cast<float>(i) - 0.5F; });
  return x;
}

}  // namespace

TEST_CASE("to_int8 holds every value within half a scale, and the largest as 127") {
  for (const std::int64_t dim : {1, 31, 32, 33, 100, 129}) {
    const std::int64_t rows = 5;
    const auto x = noise(static_cast<std::uint64_t>(dim), rows * dim, 3);
    const auto groups = int8_padded(dim) / int8_group;
    const auto out = on_every_team(
      [&](const stream_ref& s) { return encode(to_int8_ref, s, x, rows, dim).codes; });
    const auto scales = encode(to_int8_ref, {}, x, rows, dim).scales;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < groups * int8_group; ++i) {
        const double code = out[size(r * groups * int8_group + i)];
        const double scale = scales[size(r * groups + i / int8_group)];
        if (i >= dim) {
          CHECK(code == 0);
          continue;
        }
        CHECK(std::fabs(x[size(r * dim + i)] - code * scale) <= scale * (0.5 + 0x1p-15));
        CHECK(std::fabs(code) <= 127);
      }
    for (std::int64_t g = 0; g < rows * groups; ++g) {
      int most = 0;
      for (std::int64_t i = 0; i < int8_group; ++i)
        most = std::max(most, std::abs(int{out[size(g * int8_group + i)]}));
      CHECK(most == 127);
    }
  }
}

TEST_CASE("to_int8 rounds ties to even, and shows what is not finite as a scale of NaN") {
  const auto x = awkward_groups();
  const auto rows = static_cast<std::int64_t>(x.size()) / 32;
  const auto out = encode(to_int8_ref, {}, x, rows, 32);
  const auto codes = [&](std::int64_t row) { return out.codes.data() + row * 32; };
  for (const std::int64_t row : {0, 1, 5, 7}) {
    CHECK(out.scales[size(row)] == 0);
    CHECK(std::all_of(codes(row), codes(row) + 32, [](int code) { return code == 0; }));
  }
  CHECK(out.scales[2] == 1.0F / 127);
  CHECK(codes(2)[0] == -127);
  CHECK(codes(2)[1] == 127);
  CHECK(codes(3)[17] == 127);
  CHECK(codes(3)[31] == 0);
  CHECK(codes(4)[31] == 127);
  CHECK(out.scales[6] > 0);
  CHECK(codes(6)[3] == 127);
  CHECK(codes(6)[4] == -38);
  for (const std::int64_t row : {8, 9, 10, 11}) {
    CHECK(std::isnan(out.scales[size(row)]));
    CHECK(std::all_of(codes(row), codes(row) + 32, [](int code) { return code == 0; }));
  }
  CHECK(out.scales[12] == 1);
  for (int i = 1; i < 32; ++i) {
    CHECK(codes(12)[i] == (i % 2 ? i + 1 : i));
    CHECK(codes(13)[i] == -codes(12)[i]);
  }
}

TEST_CASE("to_int8 in AVX2 gives the reference's bits" * needs_avx2) {
  for (std::int64_t rows = 0; rows <= 9; ++rows)
    for (const std::int64_t dim : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 512}) {
      // The last row ends with the storage.
      const auto stride = dim + (rows % 2 ? 5 : 0);
      const auto x = noise(static_cast<std::uint64_t>(rows * 999 + dim),
                           rows ? (rows - 1) * stride + dim : 0, 7);
      const auto reference = encode(to_int8_ref, {}, x, rows, dim, stride);
      threads_team three(3);
      for (const auto& stream : {stream_ref{}, stream_ref{&three}}) {
        const auto twin = encode(to_int8_avx2, stream, x, rows, dim, stride);
        CHECK(twin.codes == reference.codes);
        CHECK(same_values(twin.scales, reference.scales));
      }
    }
  const auto x = awkward_groups();
  for (const std::int64_t dim : {32, 64}) {
    const auto rows = static_cast<std::int64_t>(x.size()) / dim;
    const auto reference = encode(to_int8_ref, {}, x, rows, dim);
    const auto twin = encode(to_int8_avx2, {}, x, rows, dim);
    CHECK(twin.codes == reference.codes);
    CHECK(same_values(twin.scales, reference.scales));
  }
}
