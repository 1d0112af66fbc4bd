/// What the int8 tests share: a matrix of any stored type, packed for int8 activations into memory
/// of exactly its size, and rows of codes.
#pragma once

#include <algorithm>
#include <memory>

#include "kernel_support.hpp"
#include "kernels/linear/int8_rows.hpp"
#include "kernels/linear/matrix_rows.hpp"
#include "kernels/linear/packed_int8.hpp"

namespace deepinfer::kernels {

using bytes = std::vector<std::byte>;

/// A stored matrix with its data: values around 1 in f32, bf16 or E4M3, or FP4 pairs.
struct int8_source {
  stored_matrix stored;
  bytes data, scale;

  int8_source(dtype type, std::int64_t out, std::int64_t in, std::uint64_t seed) {
    const bool is_fp4 = type == dtype::i8;
    const auto row = is_fp4 ? (in + 1) / 2 : in;
    const auto width = type == dtype::f32 ? 4 : type == dtype::bf16 ? 2 : 1;
    data.resize(size(out * row * width));
    for (std::int64_t i = 0; i < out * row; ++i) {
      const auto word = split_mix64(seed * 7919 + static_cast<std::uint64_t>(i));
      const auto value =
        static_cast<float>(static_cast<std::int32_t>(word >> 40) - (1 << 23)) * 0x1p-23F;
      const auto bf16 = bf16_encode(value);
      const auto byte = is_fp4 ? static_cast<std::uint8_t>(word) : e4m3_encode(value * 100);
      if (type == dtype::f32) std::memcpy(data.data() + 4 * i, &value, 4);
      if (type == dtype::bf16) std::memcpy(data.data() + 2 * i, &bf16, 2);
      if (width == 1) data[size(i)] = std::byte{byte};
    }
    const auto groups = (in + 31) / 32;
    if (width == 1) scale.resize(size(is_fp4 ? out * groups : (out + 31) / 32 * groups));
    for (std::size_t i = 0; i < scale.size(); ++i)
      scale[i] = std::byte{static_cast<std::uint8_t>(120 + split_mix64(seed + i) % 9)};
    stored = {type, out, in, data.data(), scale.empty() ? nullptr : scale.data()};
  }
};

/// Packed into a block of exactly packed_bytes, so that a read past it is seen.
struct int8_matrix {
  std::unique_ptr<std::byte[]> memory;
  packed_matrix packed;

  explicit int8_matrix(const stored_matrix& source) {
    const auto type = panel_type_of(source.type, packing::fast);
    memory = std::make_unique<std::byte[]>(packed_bytes(type, source.out, source.in));
    packed = pack_matrix(source, packing::fast, memory.get());
  }
};

/// Rows of codes and scales, with pointers to each row.
struct int8_input {
  std::int64_t rows, in;
  std::vector<std::int8_t> codes;
  floats scales;

  int8_input(std::int64_t row_count, std::int64_t dim)
    : rows(row_count),
      in(dim),
      codes(size(row_count * int8_padded(dim))),
      scales(size(row_count * int8_padded(dim) / int8_group)) {}

  std::vector<const std::int8_t*> code_rows() const {
    std::vector<const std::int8_t*> out;
    for (std::int64_t r = 0; r < rows; ++r) out.push_back(codes.data() + r * int8_padded(in));
    return out;
  }
  std::vector<const float*> scale_rows() const {
    std::vector<const float*> out;
    for (std::int64_t r = 0; r < rows; ++r)
      out.push_back(scales.data() + r * int8_padded(in) / int8_group);
    return out;
  }
};

/// x [rows, in] as int8.
inline int8_input int8_of(const floats& x, std::int64_t rows, std::int64_t in) {
  int8_input out(rows, in);
  to_int8_ref({}, {.x = x.data(),
                   .codes = out.codes.data(),
                   .scales = out.scales.data(),
                   .rows = rows,
                   .dim = in});
  return out;
}

using int8_product = decltype(&int8_matrix_rows_ref);

/// y [rows, out] of panels [begin, end); everything else keeps 7.
inline floats multiply(int8_product product, const packed_matrix& matrix, const int8_input& input,
                       std::int64_t begin, std::int64_t end) {
  floats y(size(input.rows * matrix.out), 7.0F);
  std::vector<float*> rows;
  for (std::int64_t r = 0; r < input.rows; ++r) rows.push_back(y.data() + r * matrix.out);
  const auto codes = input.code_rows();
  const auto scales = input.scale_rows();
  product(matrix, begin, end, codes.data(), scales.data(), rows.data(), input.rows);
  return y;
}

inline floats multiply(int8_product product, const packed_matrix& matrix, const int8_input& input) {
  return multiply(product, matrix, input, 0, matrix.panels());
}

/// Same bits, or both NaN.
inline bool same_values(const floats& a, const floats& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], 4) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

}  // namespace deepinfer::kernels
