#include "kernels/linear/packed_e2m1.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/common/formats.hpp"

namespace deepinfer::kernels {
namespace {

constexpr auto scale_of_one = std::byte{127};

void pack_panel(const stored_matrix& m, std::int64_t first, std::byte* to) {
  const auto groups = e2m1_groups(m.in), row_bytes = (m.in + 1) / 2;
  auto* scales = to + groups * e2m1_group_bytes;
  std::memset(to, 0, static_cast<std::size_t>(groups * e2m1_group_bytes));
  std::fill(scales, scales + groups * panel_width, scale_of_one);
  const auto rows = std::min(panel_width, m.out - first);
  for (std::int64_t o = 0; o < rows; ++o) {
    const auto* codes = m.data + (first + o) * row_bytes;
    for (std::int64_t i = 0; i < m.in; ++i) {
      const auto code = i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & std::byte{15};
      const auto place = place_of_e2m1(o, i);
      to[place.byte] |= place.high ? code << 4 : code;
    }
    if (m.scale)
      for (std::int64_t g = 0; g < groups; ++g)
        scales[g * panel_width + o] = m.scale[(first + o) * groups + g];
  }
}

}  // namespace

std::size_t packed_e2m1_bytes(std::int64_t out, std::int64_t in) {
  return static_cast<std::size_t>((out + panel_width - 1) / panel_width * e2m1_panel_bytes(in));
}

void pack_e2m1(const stored_matrix& source, std::byte* memory) {
  for (std::int64_t first = 0; first < source.out; first += panel_width)
    pack_panel(source, first, memory + first / panel_width * e2m1_panel_bytes(source.in));
}

void unpack_e2m1_row(const packed_matrix& m, std::int64_t row, float* out) {
  const auto* panel = m.data + row / panel_width * e2m1_panel_bytes(m.in);
  const auto* scales = panel + e2m1_groups(m.in) * e2m1_group_bytes;
  for (std::int64_t i = 0; i < m.in; ++i) {
    const auto place = place_of_e2m1(row, i);
    const auto pair = static_cast<std::uint8_t>(panel[place.byte]);
    const auto code = static_cast<std::uint8_t>(place.high ? pair >> 4 : pair & 15);
    const auto scale = scales[i / e2m1_group * panel_width + row % panel_width];
    out[i] = e2m1_decode(code) * e8m0_decode(static_cast<std::uint8_t>(scale));
  }
}

}  // namespace deepinfer::kernels
