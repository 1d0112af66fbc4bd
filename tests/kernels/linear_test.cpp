#include "kernel_support.hpp"

#include <bit>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"
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
    packed = pack_matrix(stored, panels.data());
  }
};

floats product(const stream_ref& stream, const packed_matrix& w, const floats& x,
               bool bf16 = false) {
  const auto rows = static_cast<std::int64_t>(x.size()) / w.in;
  floats y(size(rows * w.out));
  linear_ref(stream, {.weight = &w, .x = x.data(), .y = y.data(), .rows = rows, .bf16 = bf16});
  return y;
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
    for (std::int64_t column = 0; column < 70; ++column)
      for (std::int64_t row = 0; row < 48; ++row) {
        const auto cell = ((row / 16) * 70 + column) * 16 + row % 16;
        const float packed =
          m.packed.type == panel_type::f32
            ? reinterpret_cast<const float*>(m.packed.data)[cell]
            : bf16_decode(reinterpret_cast<const std::uint16_t*>(m.packed.data)[cell]);
        REQUIRE(packed == (row < 37 ? m.at(row, column) : 0));
      }
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
  pack_matrix(stored, panels.data());
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
    const auto y = on_every_team([&](const stream_ref& s) { return product(s, m.packed, x); });
    CHECK(distance(y, expected) <= 1e-6 * (size_of_terms + 1));
  }
}

TEST_CASE("linear: a row alone has the bits it has in any batch") {
  const matrix m(dtype::bf16, 45, 333, 3);
  const auto x = noise(4, 39 * 333);
  const auto y = product({}, m.packed, x);
  for (std::int64_t row = 0; row < 39; ++row)
    CHECK(same_bits(product({}, m.packed, rows_of(x, row, 1, 333)), rows_of(y, row, 1, 45)));
  CHECK(same_bits(product({}, m.packed, rows_of(x, 7, 20, 333)), rows_of(y, 7, 20, 45)));
}

TEST_CASE("linear: strides, accumulation and one rounding") {
  const matrix m(dtype::f32, 18, 20, 3);
  const auto x = noise(4, 3 * 20);
  const auto plain = product({}, m.packed, x);
  auto rounded = plain;
  for (auto& v : rounded) v = bf16_round(v);
  CHECK(product({}, m.packed, x, true) == rounded);

  floats wide(3 * 25, 9), y(3 * 30, 0.5F);
  for (std::int64_t r = 0; r < 3; ++r)
    std::copy(x.begin() + r * 20, x.begin() + (r + 1) * 20, wide.begin() + r * 25);
  linear_ref({}, {.weight = &m.packed,
                  .x = wide.data(),
                  .y = y.data(),
                  .rows = 3,
                  .x_stride = 25,
                  .y_stride = 30,
                  .accumulate = true});
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t o = 0; o < 30; ++o)
      CHECK(y[size(r * 30 + o)] == (o < 18 ? 0.5F + plain[size(r * 18 + o)] : 0.5F));
}

TEST_CASE("grouped linear gives each group its own matrix and inputs") {
  const matrix a(dtype::bf16, 18, 20, 1), b(dtype::bf16, 18, 20, 2);
  const packed_matrix both[] = {a.packed, b.packed};
  const auto x = noise(5, 7 * 40);
  const auto y = on_every_team([&](const stream_ref& stream) {
    floats out(7 * 36);
    grouped_linear_ref(stream,
                       {.weights = both, .groups = 2, .x = x.data(), .y = out.data(), .rows = 7});
    return out;
  });
  for (std::int64_t r = 0; r < 7; ++r) {
    CHECK(rows_of(y, 2 * r, 1, 18) == product({}, a.packed, rows_of(x, 2 * r, 1, 20)));
    CHECK(rows_of(y, 2 * r + 1, 1, 18) == product({}, b.packed, rows_of(x, 2 * r + 1, 1, 20)));
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
