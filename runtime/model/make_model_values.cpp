#include "runtime/model/make_model_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "kernels/common/formats.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

// Root mean square of what the codes say before their scale.
constexpr double fp4_rms = 2.9261749776799064;  // sqrt(68.5 / 8) of 0 .5 1 1.5 2 3 4 6
constexpr double fp8_rms = 112;                 // largest drawn: 387, of 448
constexpr std::int32_t byte_sum_steps = 4 * 255 + 1;

/// Deviation of a sum of `count` uniform numbers in [0, levels).
double sum_deviation(double count, double levels) {
  return std::sqrt(count * (levels * levels - 1) / 12);
}

/// The code of every sum of four bytes.
const std::array<std::uint8_t, byte_sum_steps>& fp8_codes() {
  static const auto table = [] {
    std::array<std::uint8_t, byte_sum_steps> codes{};
    const auto step = fp8_rms / sum_deviation(4, 256);
    for (std::int32_t sum = 0; sum < byte_sum_steps; ++sum)
      codes[static_cast<std::size_t>(sum)] =
        kernels::e4m3_encode(static_cast<float>((sum - 510) * step));
    return codes;
  }();
  return table;
}

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0;
  for (const char c : name) hash = split_mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

double gain_of(std::string_view name) {
  struct row {
    std::string_view ending;
    double gain;
  };
  constexpr row rows[] = {
    {"attn.wq_b.weight", 2.5}, {"attn.wo_b.weight", 1.5}, {".w2.weight", 2.0}};
  if (name == "head.weight") return 4.0;
  for (const auto& row : rows)
    if (name.ends_with(row.ending)) return row.gain;
  return 1.0;
}

/// Tables of rows that are looked up, not multiplied.
bool is_table(std::string_view name) {
  return name.ends_with("embed.weight");
}

/// Vectors and everything else that is no matrix; `out` is left alone for matrices.
bool set_vector(std::string_view name, random_tensor& out) {
  const auto set = [&out](double mean, double deviation) {
    out.mean = mean;
    out.deviation = deviation;
    return true;
  };
  if (name.ends_with("_base")) {
    out.law = value_law::mixing_base;
    return true;
  }
  if (name.ends_with("_scale")) return set(0.5, 0);
  if (name.ends_with("attn_sink")) return set(0, 0.5);
  if (name.ends_with("gate.bias") || name.ends_with("gate.bias_vl")) return set(0, 0);
  if (name.ends_with("q_weight") || name.ends_with("k_weight")) return set(1, 0.1);
  if (name.ends_with("norm.weight")) return set(1, 0.1);
  return false;
}

dtype type_of(storage_rule rule) {
  switch (rule) {
  case storage_rule::plain: return dtype::bf16;
  case storage_rule::f32: return dtype::f32;
  case storage_rule::fp8: return dtype::f8_e4m3;
  case storage_rule::fp4: return dtype::i8;
  case storage_rule::scale: return dtype::f8_e8m0;
  }
  return dtype::f32;
}

/// Root mean square that the values of a matrix or table should have.
double matrix_deviation(const expected_tensor& tensor) {
  if (is_table(tensor.name)) return 1.0;
  const auto inputs = tensor.shape.back() * (tensor.rule == storage_rule::fp4 ? 2 : 1);
  return gain_of(tensor.name) / std::sqrt(static_cast<double>(inputs));
}

}  // namespace

std::vector<random_tensor> random_tensors(const model_config& config) {
  std::vector<random_tensor> out;
  const auto expected = expected_tensors(config);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& tensor = expected[i];
    random_tensor made{.name = tensor.name, .type = type_of(tensor.rule), .shape = tensor.shape};
    if (tensor.rule == storage_rule::scale) {
      const auto& weight = expected[i - 1];
      DI_CHECK(weight.name == tensor.name.substr(0, tensor.name.size() - 5) + "weight",
               "{} after {}", tensor.name, weight.name);
      made.law = value_law::powers;
      made.deviation =
        matrix_deviation(weight) / (weight.rule == storage_rule::fp4 ? fp4_rms : fp8_rms);
    } else if (tensor.rule == storage_rule::fp8 || tensor.rule == storage_rule::fp4) {
      made.law = value_law::codes;
    } else if (!set_vector(tensor.name, made)) {
      made.deviation = matrix_deviation(tensor);
    }
    out.push_back(std::move(made));
  }
  return out;
}

random_values::random_values(const random_tensor& tensor, std::uint64_t seed)
  : tensor_(tensor),
    state_(split_mix64(seed) ^ hash_of(tensor.name)) {}

std::uint64_t random_values::next() {
  const auto word = split_mix64(state_);
  state_ += 0x9E3779B97F4A7C15u;
  return word;
}

/// Four uniform 16-bit numbers make one; at most 3.47 in size.
double random_values::next_normal() {
  static const auto step = 1 / sum_deviation(4, 65536);
  const auto word = next();
  const auto sum = static_cast<std::int64_t>((word & 0xFFFF) + ((word >> 16) & 0xFFFF) +
                                             ((word >> 32) & 0xFFFF) + (word >> 48));
  return static_cast<double>(sum - 2 * 65535) * step;
}

void random_values::fill(std::span<std::byte> out) {
  switch (tensor_.type) {
  case dtype::bf16: return fill_bf16(out);
  case dtype::f32:
    return tensor_.law == value_law::mixing_base ? fill_mixing_base(out) : fill_f32(out);
  case dtype::f8_e4m3: return fill_fp8(out);
  case dtype::i8: return fill_fp4(out);
  case dtype::f8_e8m0: return fill_powers(out);
  default: DI_CHECK(false, "{}: type {}", tensor_.name, name_of(tensor_.type));
  }
}

void random_values::fill_bf16(std::span<std::byte> out) {
  for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint16_t)) {
    const auto value = tensor_.mean + tensor_.deviation * next_normal();
    const auto code = kernels::bf16_encode(static_cast<float>(value));
    std::memcpy(out.data() + at, &code, sizeof code);
  }
}

void random_values::fill_f32(std::span<std::byte> out) {
  for (std::size_t at = 0; at < out.size(); at += sizeof(float)) {
    const auto value = static_cast<float>(tensor_.mean + tensor_.deviation * next_normal());
    std::memcpy(out.data() + at, &value, sizeof value);
  }
}

void random_values::fill_fp8(std::span<std::byte> out) {
  const auto& codes = fp8_codes();
  for (std::size_t at = 0; at < out.size(); at += 2) {
    const auto word = next();
    // Sums of four alternate bytes each: four times 255 fits the top 16 bits of the product.
    const auto pairs = (word & 0x00FF00FF00FF00FFu), others = ((word >> 8) & 0x00FF00FF00FF00FFu);
    const auto sum_of = [](std::uint64_t four) { return (four * 0x0001000100010001u) >> 48; };
    out[at] = std::byte{codes[sum_of(pairs)]};
    if (at + 1 < out.size()) out[at + 1] = std::byte{codes[sum_of(others)]};
  }
}

void random_values::fill_fp4(std::span<std::byte> out) {
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= out.size(); at += sizeof(std::uint64_t)) {
    const auto word = next();
    std::memcpy(out.data() + at, &word, sizeof word);
  }
  if (at == out.size()) return;
  const auto word = next();
  std::memcpy(out.data() + at, &word, out.size() - at);
}

/// s^2 is 4^e with chance 1 - p and 4^(e+1) with chance p, so that its mean is deviation^2.
void random_values::fill_powers(std::span<std::byte> out) {
  constexpr int bias = 127;
  const auto below = std::floor(std::log2(tensor_.deviation));
  const auto over = tensor_.deviation / std::exp2(below);
  const auto chance = (over * over - 1) / 3;
  const auto border = static_cast<std::uint64_t>(std::clamp(chance, 0.0, 1.0) * 65536);
  const auto low = static_cast<std::uint8_t>(static_cast<int>(below) + bias);
  std::uint64_t word = 0;
  for (std::size_t at = 0; at < out.size(); ++at) {
    if (at % 4 == 0) word = next();
    const auto is_high = ((word >> (16 * (at % 4))) & 0xFFFF) < border;
    out[at] = std::byte{static_cast<std::uint8_t>(low + (is_high ? 1 : 0))};
  }
}

/// [pre | post | combination, S x S]: collapse and post weights that differ between streams, and a
/// combination in which a stream keeps about two thirds of itself.
void random_values::fill_mixing_base(std::span<std::byte> out) {
  const auto rows = static_cast<std::int64_t>(out.size() / sizeof(float));
  std::int64_t streams = 1;
  while ((streams + 2) * streams < rows) ++streams;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto in_matrix = row - 2 * streams;
    const auto is_diagonal = in_matrix >= 0 && in_matrix % (streams + 1) == 0;
    const auto value = static_cast<float>((is_diagonal ? 2.0 : 0.0) + 0.7 * next_normal());
    std::memcpy(out.data() + static_cast<std::size_t>(row) * sizeof value, &value, sizeof value);
  }
}

}  // namespace deepinfer
