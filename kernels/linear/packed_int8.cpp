#include "kernels/linear/packed_int8.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/formats.hpp"

namespace deepinfer::kernels {
namespace {

constexpr std::int32_t code_most = 64, code_offset = 64;

std::int64_t groups_of(std::int64_t in) {
  return (in + code_group - 1) / code_group;
}

std::size_t bytes_of(const int8_layout& layout, std::int64_t out, std::int64_t in) {
  return static_cast<std::size_t>((out + panel_width - 1) / panel_width * layout.stride(in));
}

/// Place of a weight within its group; outputs of i4 count modulo 8.
std::int64_t code_at(std::int64_t outputs, std::int64_t column, std::int64_t output) {
  return (column / 4 * outputs + output) * 4 + column % 4;
}

const std::uint8_t* panel_of(const packed_matrix& m, std::int64_t row) {
  const auto& layout = m.type == panel_type::i8 ? i8_layout : i4_layout;
  return reinterpret_cast<const std::uint8_t*>(m.data) + row / panel_width * layout.stride(m.in);
}

/// Of an i4 panel, scale not applied.
float fp4_value(const std::uint8_t* panel, std::int64_t column, std::int64_t output) {
  const auto* group = panel + i4_layout.codes_at(column / code_group);
  const auto cell = group[code_at(panel_width / 2, column % code_group, output % 8)];
  return e2m1_decode(static_cast<std::uint8_t>(output < 8 ? cell & 15 : cell >> 4));
}

/// Of an i4 panel, 2^n.
float e8m0_scale(const std::uint8_t* panel, std::int64_t group, std::int64_t output) {
  return e8m0_decode(panel[i4_layout.scales_at(group) + output]);
}

/// A group of weights under a scale: codes + offset, and the sum of their squared errors.
struct rounded_group {
  std::uint16_t scale = 0;
  std::uint8_t codes[code_group];
  double error = 0;
};

/// Loops without dependencies, so that compilers use vectors. |w / scale| <= 64 * (1 + 2^-8), as a
/// bf16 scale is that near: no code needs to be clamped.
void round_group(const float* w, std::uint16_t bf16_scale, rounded_group& to) {
  constexpr float whole = 0x1.8p23F;  // added, it leaves no bits for fractions: to nearest even
  constexpr std::int64_t lanes = 8;
  const float scale = bf16_decode(bf16_scale);
  float code[code_group], squares[lanes] = {};
  for (std::int64_t at = 0; at < code_group; at += lanes)
    for (std::int64_t i = 0; i < lanes; ++i) {
      const float exact = w[at + i] / scale;
      code[at + i] = (exact + whole) - whole;
      const float off = exact - code[at + i];
      squares[i] += off * off;
    }
  for (std::int64_t i = 0; i < code_group; ++i)
    to.codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(code[i]) + code_offset);
  double sum = 0;
  for (const float square : squares) sum += square;
  to.error = sum * scale * scale;
  to.scale = bf16_scale;
}

rounded_group encode_group(const float* w) {
  std::uint32_t word[code_group], most_bits = 0;  // bits of |w| are in the order of its values
  std::memcpy(word, w, sizeof(word));
  for (const auto bits : word) most_bits = std::max(most_bits, bits & 0x7fffffffu);
  const auto most = std::bit_cast<float>(most_bits);
  rounded_group even, power;
  if (!std::isfinite(most) || most < 0x1p-119F) {
    std::fill(even.codes, even.codes + code_group, std::uint8_t{code_offset});
    if (!std::isfinite(most)) even.scale = bf16_encode(std::numeric_limits<float>::quiet_NaN());
    return even;
  }
  round_group(w, bf16_encode(most / code_most), even);
  round_group(w, bf16_encode(pow2ceil(most / code_most)), power);
  return power.error < even.error ? power : even;
}

void widen_bf16_row(const stored_matrix& m, std::int64_t row, float* out) {
  const auto* from = m.data + row * m.in * 2;
  for (std::int64_t i = 0; i < m.in; ++i) {
    std::uint16_t code;
    std::memcpy(&code, from + 2 * i, sizeof(code));
    out[i] = bf16_decode(code);
  }
}

void widen_e4m3_row(const stored_matrix& m, std::int64_t row, float* out) {
  static const auto values = [] {
    std::array<float, 256> table;
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = e4m3_decode(static_cast<std::uint8_t>(i));
    return table;
  }();
  const auto* codes = reinterpret_cast<const std::uint8_t*>(m.data) + row * m.in;
  const auto* scales = reinterpret_cast<const std::uint8_t*>(m.scale);
  for (std::int64_t at = 0; at < m.in; at += code_group) {
    const auto group = row / code_group * groups_of(m.in) + at / code_group;
    const float scale = scales ? e8m0_decode(scales[group]) : 1.0F;
    const auto end = std::min(at + code_group, m.in);
    for (auto i = at; i < end; ++i) out[i] = values[codes[i]] * scale;
  }
}

/// W[row, :] like dequantise_row, without a choice per element.
void widen_row(const stored_matrix& m, std::int64_t row, float* out) {
  if (m.type == dtype::bf16) return widen_bf16_row(m, row, out);
  if (m.type == dtype::f8_e4m3) return widen_e4m3_row(m, row, out);
  dequantise_row(m, row, out);
}

/// The FP4 codes of W[row, 32 * group ..], 0 past the row's end.
struct fp4_group {
  std::uint8_t pairs[code_group / 2] = {};

  fp4_group(const stored_matrix& m, std::int64_t row, std::int64_t group) {
    if (row >= m.out) return;
    const auto count = std::min(code_group, m.in - group * code_group);
    const auto* from = m.data + row * ((m.in + 1) / 2) + group * (code_group / 2);
    std::memcpy(pairs, from, static_cast<std::size_t>((count + 1) / 2));
    if (count % 2) pairs[count / 2] &= 15;
  }
  /// Columns 4 * quad .. as the low nibbles of four bytes, the first one lowest.
  std::uint32_t quad(std::int64_t quad) const {
    std::uint32_t word = pairs[2 * quad] | std::uint32_t{pairs[2 * quad + 1]} << 16;
    return (word | word << 4) & 0x0f0f0f0fu;
  }
};

}  // namespace

std::size_t packed_i8_bytes(std::int64_t out, std::int64_t in) {
  return bytes_of(i8_layout, out, in);
}

std::size_t packed_i4_bytes(std::int64_t out, std::int64_t in) {
  return bytes_of(i4_layout, out, in);
}

void pack_i8(const stored_matrix& source, std::byte* memory) {
  const auto groups = groups_of(source.in);
  const auto stride = i8_layout.stride(source.in);
  std::vector<float> row(static_cast<std::size_t>(groups * code_group));
  for (std::int64_t first = 0; first < source.out; first += panel_width) {
    auto* panel = reinterpret_cast<std::uint8_t*>(memory) + first / panel_width * stride;
    std::memset(panel, 0, static_cast<std::size_t>(stride));
    for (std::int64_t o = 0; o < panel_width; ++o) {
      if (first + o < source.out)
        widen_row(source, first + o, row.data());
      else
        std::fill(row.begin(), row.end(), 0.0F);
      for (std::int64_t group = 0; group < groups; ++group) {
        const auto rounded = encode_group(row.data() + group * code_group);
        auto* cells = panel + i8_layout.codes_at(group);
        for (std::int64_t i = 0; i < code_group; i += 4)
          std::memcpy(cells + code_at(panel_width, i, o), rounded.codes + i, 4);
        std::memcpy(panel + i8_layout.scales_at(group) + o * 2, &rounded.scale, 2);
      }
    }
  }
}

void pack_i4(const stored_matrix& source, std::byte* memory) {
  constexpr auto half = panel_width / 2;
  const auto groups = groups_of(source.in);
  const auto stride = i4_layout.stride(source.in);
  const auto* exponents = reinterpret_cast<const std::uint8_t*>(source.scale);
  for (std::int64_t first = 0; first < source.out; first += panel_width) {
    auto* panel = reinterpret_cast<std::uint8_t*>(memory) + first / panel_width * stride;
    std::memset(panel, 0, static_cast<std::size_t>(stride));
    for (std::int64_t o = 0; o < half; ++o)
      for (std::int64_t group = 0; group < groups; ++group) {
        const fp4_group low(source, first + o, group), high(source, first + o + half, group);
        auto* cells = panel + i4_layout.codes_at(group);
        for (std::int64_t quad = 0; quad < code_group / 4; ++quad) {
          const auto word = low.quad(quad) | high.quad(quad) << 4;
          for (std::int64_t i = 0; i < 4; ++i)
            cells[code_at(half, 4 * quad + i, o)] = static_cast<std::uint8_t>(word >> 8 * i);
        }
      }
    for (auto o = first; o < std::min(first + panel_width, source.out); ++o)
      for (std::int64_t group = 0; group < groups; ++group)
        panel[i4_layout.scales_at(group) + o - first] =
          exponents ? exponents[o * groups + group] : 127;
  }
}

float int8_group_codes(const packed_matrix& m, std::int64_t row, std::int64_t group,
                       std::int32_t* codes) {
  const auto* panel = panel_of(m, row);
  const auto output = row % panel_width;
  if (m.type == panel_type::i8) {
    const auto* cells = panel + i8_layout.codes_at(group);
    for (std::int64_t i = 0; i < code_group; ++i)
      codes[i] = cells[code_at(panel_width, i, output)] - code_offset;
    std::uint16_t scale;
    std::memcpy(&scale, panel + i8_layout.scales_at(group) + output * 2, sizeof(scale));
    return bf16_decode(scale);
  }
  for (std::int64_t i = 0; i < code_group; ++i)
    codes[i] = static_cast<std::int32_t>(2.0F * fp4_value(panel, group * code_group + i, output));
  return e8m0_scale(panel, group, output) * 0.5F;
}

void unpack_i8_row(const packed_matrix& m, std::int64_t row, float* out) {
  for (std::int64_t at = 0; at < m.in; at += code_group) {
    std::int32_t codes[code_group];
    const float scale = int8_group_codes(m, row, at / code_group, codes);
    const auto count = std::min(code_group, m.in - at);
    for (std::int64_t i = 0; i < count; ++i) out[at + i] = static_cast<float>(codes[i]) * scale;
  }
}

void unpack_i4_row(const packed_matrix& m, std::int64_t row, float* out) {
  const auto* panel = panel_of(m, row);
  for (std::int64_t i = 0; i < m.in; ++i)
    out[i] =
      fp4_value(panel, i, row % panel_width) * e8m0_scale(panel, i / code_group, row % panel_width);
}

}  // namespace deepinfer::kernels
