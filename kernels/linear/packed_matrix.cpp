#include "kernels/linear/packed_matrix.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/common/formats.hpp"
#include "kernels/linear/packed_e2m1.hpp"
#include "kernels/linear/packed_int8.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

float dequantise(const stored_matrix& m, std::int64_t row, std::int64_t column) {
  const auto groups = (m.in + 31) / 32;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(m.data);
  const auto* scales = reinterpret_cast<const std::uint8_t*>(m.scale);
  switch (m.type) {
  case dtype::f32: return stored_element<float>(m.data, row * m.in + column);
  case dtype::bf16: return bf16_decode(stored_element<std::uint16_t>(m.data, row * m.in + column));
  case dtype::f8_e4m3: {
    const float scale = scales ? e8m0_decode(scales[row / 32 * groups + column / 32]) : 1.0F;
    return e4m3_decode(codes[row * m.in + column]) * scale;
  }
  default: {
    const float scale = scales ? e8m0_decode(scales[row * groups + column / 32]) : 1.0F;
    const auto pair = codes[row * ((m.in + 1) / 2) + column / 2];
    return e2m1_decode(static_cast<std::uint8_t>(column % 2 ? pair >> 4 : pair & 15)) * scale;
  }
  }
}

template <class Cell, class Encode>
void fill_panels(const stored_matrix& m, Cell* cells, Encode encode) {
  const auto panels = (m.out + panel_width - 1) / panel_width;
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    Cell* to = cells + panel * m.in * panel_width;
    const auto rows = std::min(panel_width, m.out - panel * panel_width);
    if (rows < panel_width)
      std::memset(to, 0, static_cast<std::size_t>(m.in * panel_width) * sizeof(Cell));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < m.in; ++column)
        to[column * panel_width + row] = encode(dequantise(m, panel * panel_width + row, column));
  }
}

}  // namespace

std::size_t packed_matrix::bytes() const {
  return packed_bytes(type, out, in);
}

std::size_t packed_bytes(panel_type type, std::int64_t out, std::int64_t in) {
  const auto rows = (out + panel_width - 1) / panel_width * panel_width;
  switch (type) {
  case panel_type::f32: return static_cast<std::size_t>(rows * in) * sizeof(float);
  case panel_type::bf16: return static_cast<std::size_t>(rows * in) * sizeof(std::uint16_t);
  case panel_type::e2m1: return packed_e2m1_bytes(out, in);
  case panel_type::i8: return packed_i8_bytes(out, in);
  case panel_type::i4: return packed_i4_bytes(out, in);
  }
  return 0;
}

packed_matrix pack_matrix(const stored_matrix& source, packing how, std::byte* memory) {
  DI_CHECK(source.type == dtype::f32 || source.type == dtype::bf16 ||
             source.type == dtype::f8_e4m3 || source.type == dtype::i8,
           "a matrix of type {} cannot be packed", name_of(source.type));
  const auto type = panel_type_of(source.type, how);
  switch (type) {
  case panel_type::f32:
    fill_panels(source, reinterpret_cast<float*>(memory), [](float value) { return value; });
    break;
  case panel_type::bf16:
    fill_panels(source, reinterpret_cast<std::uint16_t*>(memory), bf16_encode);
    break;
  case panel_type::e2m1: pack_e2m1(source, memory); break;
  case panel_type::i8: pack_i8(source, memory); break;
  case panel_type::i4: pack_i4(source, memory); break;
  }
  return {type, source.out, source.in, memory};
}

void dequantise_row(const stored_matrix& source, std::int64_t row, float* out) {
  for (std::int64_t column = 0; column < source.in; ++column)
    out[column] = dequantise(source, row, column);
}

void unpack_row(const packed_matrix& m, std::int64_t row, float* out) {
  const auto cell = [&](std::int64_t column) {
    return (row / panel_width * m.in + column) * panel_width + row % panel_width;
  };
  switch (m.type) {
  case panel_type::f32:
    for (std::int64_t i = 0; i < m.in; ++i)
      out[i] = reinterpret_cast<const float*>(m.data)[cell(i)];
    break;
  case panel_type::bf16:
    for (std::int64_t i = 0; i < m.in; ++i)
      out[i] = bf16_decode(reinterpret_cast<const std::uint16_t*>(m.data)[cell(i)]);
    break;
  case panel_type::e2m1: unpack_e2m1_row(m, row, out); break;
  case panel_type::i8: unpack_i8_row(m, row, out); break;
  case panel_type::i4: unpack_i4_row(m, row, out); break;
  }
}

}  // namespace deepinfer::kernels
