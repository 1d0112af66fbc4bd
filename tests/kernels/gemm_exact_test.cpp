#include "kernel_support.hpp"

#include <cmath>

#include "kernels/linear/matrix_rows.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

/// A random matrix of one panel type, in memory of exactly its size.
struct world {
  std::vector<std::byte> stored_data, stored_scale, memory;
  stored_matrix stored;
  packed_matrix packed;

  world(panel_type type, std::int64_t out, std::int64_t in, std::uint64_t seed) {
    const bool is_fp4 = type == panel_type::e2m1;
    const auto storage = is_fp4 ? dtype::i8 : type == panel_type::bf16 ? dtype::bf16 : dtype::f32;
    const auto element = type == panel_type::f32 ? 4 : type == panel_type::bf16 ? 2 : 1;
    const auto columns = is_fp4 ? (in + 1) / 2 : in;
    for (std::int64_t i = 0; i < out * columns; ++i) {
      const auto bits = split_mix64(seed + size(i));
      const float value = static_cast<float>(bits >> 40) * 0x1p-23F - 1.0F;
      const auto whole = std::bit_cast<std::uint32_t>(value);
      const auto code =
        is_fp4 ? static_cast<std::uint32_t>(bits & 255) : whole >> (element == 2 ? 16 : 0);
      for (int b = 0; b < element; ++b)
        stored_data.push_back(static_cast<std::byte>(code >> (8 * b) & 255));
    }
    if (is_fp4)
      for (std::int64_t i = 0; i < out * ((in + 31) / 32); ++i)
        stored_scale.push_back(static_cast<std::byte>(122 + (i * 5) % 9));
    stored = {storage, out, in, stored_data.data(), is_fp4 ? stored_scale.data() : nullptr};
    memory.resize(packed_bytes(type, out, in));
    packed = pack_matrix(stored, packing::exact, memory.data());
  }
  world(const world&) = delete;

  std::vector<double> in_double(const floats& x, std::int64_t rows) const {
    std::vector<double> y(size(rows * stored.out));
    floats w(size(stored.in));
    for (std::int64_t o = 0; o < stored.out; ++o) {
      dequantise_row(stored, o, w.data());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < stored.in; ++i)
          y[size(r * stored.out + o)] += double{w[size(i)]} * x[size(r * stored.in + i)];
    }
    return y;
  }
  /// The largest sum of |w x|.
  double largest_terms(const floats& x, std::int64_t rows) const {
    double most = 0;
    floats w(size(stored.in));
    for (std::int64_t o = 0; o < stored.out; ++o) {
      dequantise_row(stored, o, w.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < stored.in; ++i)
          sum += std::fabs(double{w[size(i)]} * x[size(r * stored.in + i)]);
        most = std::max(most, sum);
      }
    }
    return most;
  }
  floats by_plain_loop(const floats& x, std::int64_t rows) const {
    floats y(size(rows * stored.out)), w(size(stored.in));
    for (std::int64_t o = 0; o < stored.out; ++o) {
      dequantise_row(stored, o, w.data());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t i = 0; i < stored.in; ++i)
          y[size(r * stored.out + o)] += w[size(i)] * x[size(r * stored.in + i)];
    }
    return y;
  }
  /// Panels [begin, end) for rows of their own memory.
  floats run(const floats& x, std::int64_t rows, std::int64_t begin, std::int64_t end) const {
    floats y(size(rows * stored.out), 7);
    std::vector<floats> own;
    std::vector<const float*> from;
    std::vector<float*> to;
    for (std::int64_t r = 0; r < rows; ++r) {
      own.push_back(rows_of(x, r, 1, stored.in));
      to.push_back(y.data() + r * stored.out);
    }
    for (const auto& row : own) from.push_back(row.data());
    matrix_rows_avx2(packed, begin, end, from.data(), to.data(), rows);
    return y;
  }
};

constexpr panel_type exact_types[] = {panel_type::f32, panel_type::bf16, panel_type::e2m1};

double root_mean_square(const floats& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(a.size(), 1)));
}

}  // namespace

TEST_CASE("AVX2 products of ragged shapes err at most twice as much as a plain f32 loop") {
  if (!runs(isa::avx2)) return;
  for (const auto type : exact_types)
    for (const std::int64_t out : {1, 15, 16, 17, 33, 100, 129})
      for (const std::int64_t in : {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 128, 129, 260, 513}) {
        const world w(type, out, in, size(out * 1000 + in));
        for (const std::int64_t rows : {0, 1, 2, 3, 5, 8, 33, 64}) {
          if (rows > 8 && in * out > 5000 && out != 33) continue;
          CAPTURE(static_cast<int>(type));
          CAPTURE(out);
          CAPTURE(in);
          CAPTURE(rows);
          const auto x = noise(size(in + rows), rows * in);
          const auto expected = w.in_double(x, rows);
          const auto got = w.run(x, rows, 0, w.packed.panels());
          const auto plain = w.by_plain_loop(x, rows);
          REQUIRE(distance(got, expected) <=
                  2 * distance(plain, expected) + 0x1p-24 * w.largest_terms(x, rows));
          // Of a handful of sums, the plain ones may be exact by chance.
          if (got.size() >= 64)
            REQUIRE(root_mean_square(got, expected) <= 2 * root_mean_square(plain, expected));
        }
      }
}

TEST_CASE("AVX2 products: a row's bits depend neither on its company nor on the range of panels") {
  if (!runs(isa::avx2)) return;
  for (const auto type : exact_types)
    for (const std::int64_t in : {7, 300}) {
      const std::int64_t out = 149, panels = 10;
      const world w(type, out, in, 9);
      const auto x = noise(3, 64 * in);
      const auto whole = w.run(x, 64, 0, panels);
      CHECK(w.run({}, 0, 0, panels).empty());
      for (std::int64_t rows = 1; rows <= 33; ++rows) {
        CAPTURE(rows);
        const auto first = 64 - rows;
        CHECK(same_bits(w.run(rows_of(x, first, rows, in), rows, 0, panels),
                        rows_of(whole, first, rows, out)));
      }
      for (const std::int64_t rows : {1, 2, 3, 7, 12})
        for (std::int64_t begin = 0; begin <= panels; ++begin)
          for (std::int64_t end = begin; end <= panels; ++end) {
            const auto y = w.run(x, rows, begin, end);
            for (std::int64_t r = 0; r < rows; ++r)
              for (std::int64_t o = 0; o < out; ++o) {
                const bool inside = o / 16 >= begin && o / 16 < end;
                REQUIRE(y[size(r * out + o)] == (inside ? whole[size(r * out + o)] : 7));
              }
          }
    }
}

TEST_CASE("AVX2 products of FP4 have the reference's bits: the order is one of fused additions") {
  if (!runs(isa::avx2)) return;
  for (const std::int64_t in : {1, 4, 31, 32, 70, 160, 257}) {
    const world w(panel_type::e2m1, 50, in, 4);
    for (const std::int64_t rows : {1, 2, 3, 6, 9}) {
      const auto x = noise(8, rows * in, 3);
      floats expected(size(rows * 50));
      linear_args args;
      args.weight = &w.packed;
      args.x = x.data();
      args.y = expected.data();
      args.rows = rows;
      linear_ref({}, args);
      CHECK(same_bits(w.run(x, rows, 0, 4), expected));
    }
  }
}

TEST_CASE("FP4 products with the extreme scales: 2^-127, 2^127 and NaN, one output each") {
  const std::int64_t in = 64;
  std::vector<std::byte> codes(3 * 32, std::byte{0x22});  // ones
  const std::byte low{0}, high{254}, bad{255}, one{127};
  const std::vector<std::byte> scales{low, low, high, one, one, bad};
  std::vector<std::byte> memory(packed_bytes(panel_type::e2m1, 3, in));
  const auto m =
    pack_matrix({dtype::i8, 3, in, codes.data(), scales.data()}, packing::exact, memory.data());
  for (const bool twin : {false, true})
    for (const std::int64_t rows : {1, 4}) {
      if (twin && !runs(isa::avx2)) continue;
      floats x(size(rows * in), 0.0F), y(size(rows * 3));
      for (std::int64_t r = 0; r < rows; ++r) x[size(r * in)] = x[size(r * in + 1)] = 0.5F;
      linear_args args;
      args.weight = &m;
      args.x = x.data();
      args.y = y.data();
      args.rows = rows;
      (twin ? linear_avx2 : linear_ref)({}, args);
      for (std::int64_t r = 0; r < rows; ++r) {
        CHECK(y[size(3 * r)] == 0x1p-127F);
        CHECK(y[size(3 * r + 1)] == 0x1p127F);
        CHECK(std::isnan(y[size(3 * r + 2)]));
      }
    }
}

TEST_CASE("a NaN or an infinity in one row shows in that row only") {
  if (!runs(isa::avx2)) return;
  for (const auto type : exact_types) {
    const world w(type, 20, 40, 2);
    auto x = noise(1, 5 * 40);
    const auto clean = w.run(x, 5, 0, 2);
    x[2 * 40 + 39] = std::numeric_limits<float>::quiet_NaN();
    const auto y = w.run(x, 5, 0, 2);
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t o = 0; o < 20; ++o) {
        const auto i = size(r * 20 + o);
        if (r == 2)
          CHECK(std::isnan(y[i]));
        else
          CHECK(y[i] == clean[i]);
      }
  }
}
