#include "kernels/linear/packed_matrix.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/common/formats.hpp"
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

packed_matrix pack_matrix(const stored_matrix& source, std::byte* memory) {
  DI_CHECK(source.type == dtype::f32 || source.type == dtype::bf16 ||
             source.type == dtype::f8_e4m3 || source.type == dtype::i8,
           "a matrix of type {} cannot be packed", name_of(source.type));
  const auto type = panel_type_of(source.type);
  if (type == panel_type::f32)
    fill_panels(source, reinterpret_cast<float*>(memory), [](float value) { return value; });
  else
    fill_panels(source, reinterpret_cast<std::uint16_t*>(memory), bf16_encode);
  return {type, source.out, source.in, memory};
}

void dequantise_row(const stored_matrix& source, std::int64_t row, float* out) {
  for (std::int64_t column = 0; column < source.in; ++column)
    out[column] = dequantise(source, row, column);
}

}  // namespace deepinfer::kernels
