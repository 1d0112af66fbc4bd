#include "kernel_support.hpp"

#include <bit>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"
#include "kernels/linear/matrix_rows.hpp"
#include "tests/support/golden_file.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

/// A matrix as stored, with its memory, and its packed form.
struct matrix {
  stored_matrix stored;
  std::vector<std::byte> data, scale, panels;
  packed_matrix packed;

  matrix(dtype type, std::int64_t out, std::int64_t in, std::uint64_t seed) {
    const auto values = noise(seed, out * in);
    const bool is_fp8 = type == dtype::f8_e4m3, is_fp4 = type == dtype::i8;
    if (type == dtype::f32) store(values);
    if (type == dtype::bf16) {
      std::vector<std::uint16_t> half;
      for (const float v : values) half.push_back(bf16_encode(v));
      store(half);
    }
    if (is_fp8)
      for (const float v : values) data.push_back(std::byte{e4m3_encode(v * 448)});
    if (is_fp4)
      for (std::int64_t i = 0; i < out * (in / 2); ++i)
        data.push_back(static_cast<std::byte>(split_mix64(seed + size(i)) & 255));
    const auto scales = (is_fp8 ? (out + 31) / 32 : is_fp4 ? out : 0) * ((in + 31) / 32);
    for (std::int64_t i = 0; i < scales; ++i)
      scale.push_back(static_cast<std::byte>(115 + (i * 5) % 11));
    stored = {type, out, in, data.data(), scale.empty() ? nullptr : scale.data()};
    pack();
  }

  matrix(const golden_file& file, const std::string& name, bool is_fp4) {
    const auto& shape = file.shape(name + ".weight");
    stored = {is_fp4 ? dtype::i8 : dtype::f8_e4m3, shape[0], is_fp4 ? shape[1] * 2 : shape[1],
              file.bytes(name + ".weight"), file.bytes(name + ".scale")};
    pack();
  }

  matrix(const matrix&) = delete;

  float at(std::int64_t row, std::int64_t column) const {
    floats whole(size(stored.in));
    dequantise_row(stored, row, whole.data());
    return whole[size(column)];
  }

private:
  template <class T>
  void store(const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    data.assign(bytes, bytes + values.size() * sizeof(T));
  }
  void pack() {
    panels.assign(packed_bytes(panel_type_of(stored.type), stored.out, stored.in), std::byte{0xff});
    packed = pack_matrix(stored, packing::exact, panels.data());
  }
};

using linear_function = void (*)(const stream_ref&, const linear_args&);

linear_args linear_of(const packed_matrix& w, const float* x, float* y, std::int64_t rows) {
  linear_args args;
  args.weight = &w;
  args.x = x;
  args.y = y;
  args.rows = rows;
  return args;
}

floats product(const stream_ref& stream, const packed_matrix& w, const floats& x, bool bf16 = false,
               linear_function linear = linear_ref) {
  const auto rows = static_cast<std::int64_t>(x.size()) / w.in;
  floats y(size(rows * w.out));
  auto args = linear_of(w, x.data(), y.data(), rows);
  args.bf16 = bf16;
  linear(stream, args);
  return y;
}

/// The linears of this machine.
std::vector<linear_function> linears() {
  std::vector<linear_function> all{linear_ref};
  if (runs(isa::avx2)) all.push_back(linear_avx2);
  return all;
}

std::vector<double> product_in_double(const stored_matrix& w, const floats& x) {
  std::vector<double> y;
  floats weight(size(w.in));
  const auto rows = static_cast<std::int64_t>(x.size()) / w.in;
  y.resize(size(rows * w.out));
  for (std::int64_t o = 0; o < w.out; ++o) {
    dequantise_row(w, o, weight.data());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < w.in; ++i)
        y[size(r * w.out + o)] += double{weight[size(i)]} * x[size(r * w.in + i)];
  }
  return y;
}

}  // namespace

TEST_CASE("packing keeps every value of every storage type, and pads the last panel with zeros") {
  for (const auto type : {dtype::f32, dtype::bf16, dtype::f8_e4m3, dtype::i8}) {
    const matrix m(type, 37, 70, 5);
    CAPTURE(name_of(type));
    CHECK(m.packed.panels() == 3);
    CHECK(m.packed.type == panel_type_of(type));
    floats row(70);
    for (std::int64_t o = 0; o < 37; ++o) {
      unpack_row(m.packed, o, row.data());
      for (std::int64_t i = 0; i < 70; ++i) REQUIRE(row[size(i)] == m.at(o, i));
    }
    for (std::int64_t o = 37; o < 48; ++o) {
      unpack_row(m.packed, o, row.data());
      CHECK(row == floats(70, 0.0F));
    }
  }
}

TEST_CASE("FP4 weights take 4 bits and a byte per 32, and keep every code and scale") {
  CHECK(packed_bytes(panel_type::e2m1, 32, 64) == 32 * 64 / 2 + 32 * 64 / 32);
  CHECK(packed_bytes(panel_type::e2m1, 1, 1) == 16 * 32 / 2 + 16);
  std::vector<std::byte> codes, scales;
  for (int scale = 0; scale < 256; ++scale) {
    for (int i = 0; i < 8; ++i) codes.push_back(static_cast<std::byte>(2 * i + (2 * i + 1) * 16));
    scales.push_back(static_cast<std::byte>(scale));
  }
  const stored_matrix stored{dtype::i8, 256, 16, codes.data(), scales.data()};
  std::vector<std::byte> memory(packed_bytes(panel_type::e2m1, 256, 16));
  const auto packed = pack_matrix(stored, packing::exact, memory.data());
  floats got(16), expected(16);
  for (std::int64_t row = 0; row < 256; ++row) {
    unpack_row(packed, row, got.data());
    dequantise_row(stored, row, expected.data());
    if (row < 255)
      CHECK(same_bits(got, expected));
    else
      for (const float v : got) CHECK(v != v);
  }
}

TEST_CASE(
  "stored values are code times scale: 32x32 blocks for FP8, the low nibble first for FP4") {
  const matrix fp8(dtype::f8_e4m3, 40, 70, 1), fp4(dtype::i8, 3, 70, 2);
  const auto code = [](const matrix& m, std::int64_t i) {
    return static_cast<std::uint8_t>(m.data[size(i)]);
  };
  const auto scale = [](const matrix& m, std::int64_t i) {
    return std::ldexp(1.0F, static_cast<int>(m.scale[size(i)]) - 127);
  };
  CHECK(fp8.at(33, 69) == e4m3_decode(code(fp8, 33 * 70 + 69)) * scale(fp8, 1 * 3 + 2));
  CHECK(fp8.at(31, 32) == e4m3_decode(code(fp8, 31 * 70 + 32)) * scale(fp8, 0 * 3 + 1));
  CHECK(fp4.at(2, 40) == e2m1_decode(code(fp4, 2 * 35 + 20) & 15) * scale(fp4, 2 * 3 + 1));
  CHECK(fp4.at(2, 41) == e2m1_decode(code(fp4, 2 * 35 + 20) >> 4) * scale(fp4, 2 * 3 + 1));
}

TEST_CASE("stored data may start at an odd address, as in a mapped file") {
  const matrix m(dtype::bf16, 5, 9, 3);
  auto shifted = m.data;
  shifted.insert(shifted.begin(), std::byte{});
  auto stored = m.stored;
  stored.data = shifted.data() + 1;
  auto panels = m.panels;
  std::fill(panels.begin(), panels.end(), std::byte{});
  pack_matrix(stored, packing::exact, panels.data());
  CHECK(panels == m.panels);
}

TEST_CASE("linear matches double precision for ragged shapes and all storage types") {
  const struct {
    dtype type;
    std::int64_t out, in, rows;
  } table[] = {{dtype::f32, 1, 1, 1},      {dtype::f32, 17, 129, 5},    {dtype::bf16, 16, 128, 16},
               {dtype::bf16, 50, 300, 35}, {dtype::f8_e4m3, 33, 64, 3}, {dtype::i8, 20, 260, 18}};
  for (const auto& row : table) {
    CAPTURE(row.in);
    const matrix m(row.type, row.out, row.in, 11);
    const auto x = noise(12, row.rows * row.in);
    const auto expected = product_in_double(m.stored, x);
    double size_of_terms = 0;
    for (std::int64_t i = 0; i < row.in; ++i) size_of_terms += std::fabs(m.at(0, i));
    for (const auto linear : linears()) {
      const auto y =
        on_every_team([&](const stream_ref& s) { return product(s, m.packed, x, false, linear); });
      CHECK(distance(y, expected) <= 1e-6 * (size_of_terms + 1));
    }
  }
}

TEST_CASE("linear: a row alone has the bits it has in any batch") {
  for (const auto type : {dtype::f32, dtype::bf16, dtype::i8})
    for (const auto linear : linears()) {
      const matrix m(type, 45, 334, 3);
      const auto x = noise(4, 71 * 334);
      const auto y = product({}, m.packed, x, false, linear);
      for (std::int64_t row = 0; row < 71; ++row)
        CHECK(same_bits(product({}, m.packed, rows_of(x, row, 1, 334), false, linear),
                        rows_of(y, row, 1, 45)));
      for (std::int64_t rows = 2; rows <= 33; ++rows)
        CHECK(same_bits(product({}, m.packed, rows_of(x, 7, rows, 334), false, linear),
                        rows_of(y, 7, rows, 45)));
    }
}

TEST_CASE("linear: strides, accumulation and one rounding") {
  for (const auto linear : linears())
    for (const std::int64_t rows : {0, 1, 3, 70}) {
      const matrix m(dtype::f32, 178, 20, 3);
      const auto x = noise(4, rows * 20);
      const auto plain = product({}, m.packed, x, false, linear);
      auto rounded = plain;
      for (auto& v : rounded) v = bf16_round(v);
      CHECK(product({}, m.packed, x, true, linear) == rounded);

      const auto before = noise(6, rows * 190);
      floats wide(size(rows * 25), 9);
      auto y = before;
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy(x.begin() + r * 20, x.begin() + (r + 1) * 20, wide.begin() + r * 25);
      auto args = linear_of(m.packed, wide.data(), y.data(), rows);
      args.x_stride = 25;
      args.y_stride = 190;
      args.accumulate = true;
      linear({}, args);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t o = 0; o < 190; ++o)
          REQUIRE(y[size(r * 190 + o)] ==
                  before[size(r * 190 + o)] + (o < 178 ? plain[size(r * 178 + o)] : 0));
      args.bf16 = true;
      y = before;
      linear({}, args);
      for (std::int64_t r = 0; r < rows; ++r)
        CHECK(y[size(r * 190 + 177)] ==
              bf16_round(before[size(r * 190 + 177)] + plain[size(r * 178 + 177)]));
    }
}

TEST_CASE("products given together have the results they have alone, whatever their sizes") {
  const matrix a(dtype::bf16, 50, 33, 1), b(dtype::f32, 7, 64, 2), c(dtype::i8, 130, 96, 3);
  const auto xa = noise(5, 4 * 33), xb = noise(6, 9 * 64), xc = noise(7, 96);
  for (std::size_t which = 0; which < linears().size(); ++which) {
    const auto together = which ? linears_avx2 : linears_ref;
    const auto linear = linears()[which];
    const auto y = on_every_team([&](const stream_ref& stream) {
      floats out(4 * 50 + 9 * 7 + 130 + 3, 3);
      linear_args all[] = {linear_of(a.packed, xa.data(), out.data(), 4),
                           linear_of(b.packed, xb.data(), out.data() + 200, 9),
                           linear_of(a.packed, nullptr, nullptr, 0),
                           linear_of(c.packed, xc.data(), out.data() + 263, 1)};
      linears_args args;
      args.products = all;
      args.count = 4;
      together(stream, args);
      args.count = 0;
      together(stream, args);
      CHECK(linears_args{all, 4}.cost().flops == 2 * (4 * 50 * 33 + 9 * 7 * 64 + 130 * 96));
      return out;
    });
    CHECK(rows_of(y, 0, 1, 200) == product({}, a.packed, xa, false, linear));
    CHECK(rows_of(y, 200, 63, 1) == product({}, b.packed, xb, false, linear));
    CHECK(rows_of(y, 263, 130, 1) == product({}, c.packed, xc, false, linear));
    CHECK(rows_of(y, 393, 3, 1) == floats(3, 3));
  }
}

TEST_CASE("a product's cost is its packed bytes once and two operations per weight and row") {
  const matrix m(dtype::i8, 32, 64, 1);
  auto args = linear_of(m.packed, nullptr, nullptr, 5);
  CHECK(args.cost().bytes == 32 * 34);
  CHECK(args.cost().flops == 2 * 5 * 32 * 64);
  CHECK(args.cost().int8_ops == 0);
  auto fast = m.packed;
  fast.type = panel_type::i4;
  args.weight = &fast;
  CHECK(args.cost().int8_ops == 2 * 5 * 32 * 64);
  CHECK(args.cost().flops == 0);
  args.rows = 0;
  CHECK(args.cost().bytes == 0);
  const packed_matrix both[] = {m.packed, m.packed};
  grouped_linear_args grouped;
  grouped.weights = both;
  grouped.groups = 2;
  grouped.rows = 5;
  CHECK(grouped.cost().bytes == 2 * 32 * 34);
  CHECK(grouped.cost().flops == 4 * 5 * 32 * 64);
}

TEST_CASE("grouped linear gives each group its own matrix and inputs") {
  for (std::size_t which = 0; which < linears().size(); ++which) {
    const auto grouped = which ? grouped_linear_avx2 : grouped_linear_ref;
    const auto linear = linears()[which];
    const matrix a(dtype::bf16, 50, 20, 1), b(dtype::bf16, 50, 20, 2);
    const packed_matrix both[] = {a.packed, b.packed};
    grouped_linear_args none;
    none.weights = both;
    none.groups = 2;
    grouped({}, none);
    for (const std::int64_t rows : {1, 7, 65})
      for (const bool bf16 : {false, true}) {
        const auto x = noise(5, rows * 40);
        const auto y = on_every_team([&](const stream_ref& stream) {
          floats out(size(rows * 100));
          grouped_linear_args args;
          args.weights = both;
          args.groups = 2;
          args.x = x.data();
          args.y = out.data();
          args.rows = rows;
          args.bf16 = bf16;
          grouped(stream, args);
          return out;
        });
        for (std::int64_t r = 0; r < rows; ++r) {
          CHECK(rows_of(y, 2 * r, 1, 50) ==
                product({}, a.packed, rows_of(x, 2 * r, 1, 20), bf16, linear));
          CHECK(rows_of(y, 2 * r + 1, 1, 50) ==
                product({}, b.packed, rows_of(x, 2 * r + 1, 1, 20), bf16, linear));
        }
      }
  }
}

TEST_CASE("int8 products read codes and scales of their rows, groups padded on their own") {
  const matrix m(dtype::i8, 50, 40, 3);
  std::vector<std::byte> memory(packed_bytes(panel_type::i4, 50, 40));
  const auto packed = pack_matrix(m.stored, packing::fast, memory.data());
  const packed_matrix both[] = {packed, packed};
  const std::int64_t rows = 70, padded = int8_padded(40);
  const auto x = noise(9, rows * 2 * 40);
  std::vector<std::int8_t> codes(size(rows * 2 * padded));
  floats scales(size(rows * 2 * padded / int8_group));
  to_int8_ref(
    {},
    {.x = x.data(), .codes = codes.data(), .scales = scales.data(), .rows = rows * 2, .dim = 40});
  floats expected(size(rows * 2 * 50));
  for (std::int64_t r = 0; r < rows * 2; ++r) {
    const auto* c = codes.data() + r * padded;
    const float* s = scales.data() + r * (padded / int8_group);
    float* y = expected.data() + r * 50;
    int8_matrix_rows_ref(packed, 0, 4, &c, &s, &y, 1);
  }
  for (std::size_t which = 0; which < linears().size(); ++which) {
    const auto grouped = on_every_team([&](const stream_ref& stream) {
      floats y(expected.size());
      grouped_linear_args args;
      args.weights = both;
      args.groups = 2;
      args.y = y.data();
      args.rows = rows;
      args.x8 = {codes.data(), scales.data()};
      (which ? grouped_linear_avx2 : grouped_linear_ref)(stream, args);
      return y;
    });
    CHECK(same_bits(grouped, expected));
    const auto added = on_every_team([&](const stream_ref& stream) {
      floats y(expected.size(), 1);
      auto args = linear_of(packed, nullptr, y.data(), rows * 2);
      args.x8 = {codes.data(), scales.data()};
      args.accumulate = true;
      linears()[which](stream, args);
      return y;
    });
    for (std::size_t i = 0; i < added.size(); ++i) REQUIRE(added[i] == 1 + expected[i]);
  }
}

TEST_CASE(
  "linear with quantised inputs is within one bf16 step of the release's FP8 and FP4 products") {
  const std::string folder = DI_SOURCE_DIR "/tests/golden/model/v41-a-fp8/";
  const golden_file ops(folder + "ops.safetensors"), model(folder + "model.safetensors");
  const struct {
    const char* result;
    const char* weight;
    bool is_fp4;
  } table[] = {{"gemm.fp8.layers.2.attn.wq_a", "layers.2.attn.wq_a", false},
               {"gemm.fp4.layers.2.ffn.experts.0.w1", "layers.2.ffn.experts.0.w1", true}};
  for (const auto& row : table) {
    const matrix m(model, row.weight, row.is_fp4);
    auto x = ops.floats("gemm.x");
    quantise_ref(
      {}, {.x = x.data(), .y = x.data(), .rows = 9, .dim = m.stored.in, .format = quantiser::q8});
    const auto y = product({}, m.packed, x, true), expected = ops.floats(row.result);
    REQUIRE(y.size() == expected.size());
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(bf16_steps(y[i], expected[i]) <= 1);
  }
}

TEST_CASE("dot adds in sixteen lanes and a fixed tree, whatever the length") {
  for (const std::int64_t count : {0, 1, 15, 16, 17, 47, 512}) {
    const auto a = noise(1, count), b = noise(2, count);
    float lane[16] = {};
    for (std::int64_t i = 0; i < count; ++i) lane[i % 16] += a[size(i)] * b[size(i)];
    for (int width = 8; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    CHECK(dot(a.data(), b.data(), count) == lane[0]);
  }
}
