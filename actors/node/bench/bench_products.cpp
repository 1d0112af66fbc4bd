// Products with packed weights: linear, and the experts of a layer.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_kernels.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

using kernels::packed_matrix;

constexpr std::size_t line_bytes = 64;

std::size_t whole_lines(std::size_t bytes) {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

/// How a type of weights is stored and packed.
struct weight_kind {
  dtype stored = dtype::f32;
  kernels::packing how = kernels::packing::exact;
};

weight_kind kind_of(const std::string& type) {
  if (type == "bf16") return {dtype::bf16, kernels::packing::exact};
  if (type == "e4m3") return {dtype::f8_e4m3, kernels::packing::exact};
  if (type == "e2m1") return {dtype::i8, kernels::packing::exact};
  if (type == "i8") return {dtype::f8_e4m3, kernels::packing::fast};
  if (type == "i4") return {dtype::i8, kernels::packing::fast};
  return {};
}

/// A random matrix as a checkpoint stores it: ordinary numbers of a few powers of two.
struct random_matrix {
  std::vector<std::uint8_t> data, scale;
  kernels::stored_matrix view;

  random_matrix(dtype type, std::int64_t out, std::int64_t in) {
    const auto groups = (in + 31) / 32;
    const auto cells = out * in;
    std::int64_t bytes = cells * static_cast<std::int64_t>(size_of(type)), scales = 0;
    if (type == dtype::i8) bytes = cells / 2, scales = out * groups;
    if (type == dtype::f8_e4m3) scales = (out + 31) / 32 * groups;
    data.resize(static_cast<std::size_t>(bytes));
    scale.resize(static_cast<std::size_t>(scales));
    fill(type);
    for (std::size_t i = 0; i < scale.size(); ++i)
      scale[i] = static_cast<std::uint8_t>(120 + split_mix64(i) % 4);
    view = {type, out, in, reinterpret_cast<const std::byte*>(data.data()),
            scale.empty() ? nullptr : reinterpret_cast<const std::byte*>(scale.data())};
  }

  std::int64_t bytes() const { return static_cast<std::int64_t>(data.size() + scale.size()); }

private:
  void fill(dtype type) {
    const auto width = type == dtype::i8 ? 1 : size_of(type);
    for (std::size_t i = 0; i < data.size() / width; ++i) {
      const auto word = split_mix64(i);
      auto bits = static_cast<std::uint32_t>(word);
      const auto exponent = static_cast<std::uint32_t>(120 + (word >> 40) % 8);
      if (type == dtype::f32) bits = (bits & 0x807fffffu) | exponent << 23;
      if (type == dtype::bf16) bits = (bits & 0x807fu) | exponent << 7;
      if (type == dtype::f8_e4m3) bits = (bits & 0xb7u) | 0x20u;  // no NaN, no subnormal
      std::memcpy(data.data() + i * width, &bits, width);
    }
  }
};

std::vector<float> random_rows(std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(2 * unit_real(static_cast<std::uint32_t>(split_mix64(i + 1))) - 1);
  return out;
}

/// Rows as a product reads them: f32, and int8 where its weights want that.
struct product_input {
  std::vector<float> x;
  std::vector<std::int8_t> codes;
  std::vector<float> scales;

  product_input(const kernels::ops& ops, std::int64_t rows, std::int64_t dim, bool as_int8)
    : x(random_rows(rows * dim)) {
    if (!as_int8) return;
    const auto padded = kernels::int8_padded(dim);
    codes.resize(static_cast<std::size_t>(rows * padded));
    scales.resize(static_cast<std::size_t>(rows * padded / kernels::int8_group));
    ops.to_int8({}, {x.data(), codes.data(), scales.data(), rows, dim});
  }
  kernels::int8_rows x8() const { return {codes.data(), scales.data()}; }
};

/// `copies` of one packed matrix, each at a place of its own.
struct matrix_copies {
  huge_memory memory;
  std::vector<packed_matrix> each;
  std::int64_t stored_bytes = 0;

  static result<matrix_copies> make(const weight_kind& kind, std::int64_t out, std::int64_t in,
                                    std::int64_t least_copies) {
    const random_matrix random(kind.stored, out, in);
    const auto size = kernels::packed_bytes(kernels::panel_type_of(kind.stored, kind.how), out, in);
    const auto stride = whole_lines(size);
    const auto copies =
      std::max(static_cast<std::size_t>(least_copies), (rotated_bytes + stride - 1) / stride);
    matrix_copies made;
    DI_TRY(made.memory, huge_memory::map(copies * stride));
    auto* at = made.memory.data();
    const auto first = kernels::pack_matrix(random.view, kind.how, at);
    for (std::size_t i = 0; i < copies; ++i, at += stride) {
      if (i > 0) std::memcpy(at, made.memory.data(), size);
      made.each.push_back(first);
      made.each.back().data = at;
    }
    made.stored_bytes = random.bytes();
    return made;
  }
};

struct linear_data {
  matrix_copies weights;
  product_input input;
  std::vector<float> y;
};

result<kernel_case> make_linear(const kernels::ops& ops, const std::string& type,
                                std::int64_t rows) {
  constexpr std::int64_t out = 2048, in = 2048;
  DI_TRY(auto weights, matrix_copies::make(kind_of(type), out, in, 1));
  const bool as_int8 = kernels::reads_int8(weights.each.front().type);
  auto data = std::make_shared<linear_data>(
    linear_data{std::move(weights), product_input(ops, rows, in, as_int8),
                std::vector<float>(static_cast<std::size_t>(rows * out))});
  kernel_case it;
  it.name = kernels::linear_args::op_name;
  it.type = type;
  it.shape = fmt::format("{} x {}", out, in);
  it.rows = rows;
  it.calls = static_cast<std::int64_t>(data->weights.each.size());
  it.packed_bytes = static_cast<std::int64_t>(data->weights.each.front().bytes());
  it.stored_bytes = data->weights.stored_bytes;
  it.run = [&ops, data, rows](const stream_ref& stream, std::int64_t call) {
    kernels::linear_args args;
    args.weight = &data->weights.each[static_cast<std::size_t>(call) % data->weights.each.size()];
    args.x = data->input.x.data();
    args.x8 = data->input.x8();
    args.y = data->y.data();
    args.rows = rows;
    ops.linear(stream, args);
  };
  return it;
}

constexpr std::int32_t expert_count = 64, experts_per_token = 6;
constexpr std::int64_t expert_dim = 1024, expert_inter = 512;

/// Tokens' choices of one call, grouped by expert.
struct routing {
  std::vector<std::int32_t> id, offset, order;

  routing(const kernels::ops& ops, std::int64_t rows, std::uint64_t seed)
    : offset(expert_count + 1),
      order(static_cast<std::size_t>(rows * experts_per_token)) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<std::int32_t> chosen;
      while (chosen.size() < experts_per_token) {
        const auto expert = static_cast<std::int32_t>(split_mix64(++seed) % expert_count);
        if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end())
          chosen.push_back(expert);
      }
      std::sort(chosen.begin(), chosen.end());
      id.insert(id.end(), chosen.begin(), chosen.end());
    }
    ops.group_by_expert(
      {}, {id.data(), rows, experts_per_token, expert_count, offset.data(), order.data()});
  }
  std::int64_t experts_used() const {
    std::int64_t used = 0;
    for (std::size_t e = 0; e < expert_count; ++e) used += offset[e + 1] > offset[e] ? 1 : 0;
    return used;
  }
};

struct expert_data {
  expert_data(const kernels::ops& ops, matrix_copies up_and_gate, matrix_copies down,
              std::int64_t rows, bool as_int8)
    : w13(std::move(up_and_gate)),
      w2(std::move(down)),
      input(ops, rows, expert_dim, as_int8),
      weight(static_cast<std::size_t>(rows * experts_per_token), 0.5F),
      hidden(weight.size() * 2 * expert_inter),
      pair_y(weight.size() * expert_dim),
      hidden8(as_int8 ? static_cast<std::size_t>(rows * (experts_per_token + 1) * expert_inter)
                      : 0),
      hidden8_scales(hidden8.size() / kernels::int8_group) {
    const auto count = std::min(w13.each.size() / 2, w2.each.size());
    for (std::size_t i = 0; i + expert_count <= count; i += expert_count)
      for (std::size_t e = i; e < i + expert_count; ++e)
        experts.push_back({w13.each[2 * e], w13.each[2 * e + 1], w2.each[e]});
  }

  matrix_copies w13, w2;
  product_input input;
  std::vector<float> weight, hidden, pair_y;
  std::vector<std::int8_t> hidden8;
  std::vector<float> hidden8_scales;
  std::vector<kernels::expert_weights> experts;  ///< whole layers, one after the other
  std::vector<routing> routings;
};

void run_experts(const kernels::ops& ops, expert_data& data, const stream_ref& stream,
                 std::int64_t call) {
  const auto at = static_cast<std::size_t>(call);
  const auto layers = data.experts.size() / expert_count;
  const auto& chosen = data.routings[at % data.routings.size()];
  kernels::expert_ffn_args args;
  args.experts = data.experts.data() + at % layers * expert_count;
  args.expert_count = expert_count;
  args.x = data.input.x.data();
  args.x8 = data.input.x8();
  args.dim = expert_dim;
  args.inter = expert_inter;
  args.k = experts_per_token;
  args.offset = chosen.offset.data();
  args.order = chosen.order.data();
  args.weight = data.weight.data();
  args.hidden = data.hidden.data();
  args.hidden8 = data.hidden8.data();
  args.hidden8_scales = data.hidden8_scales.data();
  args.pair_y = data.pair_y.data();
  args.limit = 10;
  ops.expert_ffn(stream, args);
}

result<kernel_case> make_experts(const kernels::ops& ops, const std::string& type,
                                 std::int64_t rows) {
  const auto kind = kind_of(type);
  DI_TRY(auto w13, matrix_copies::make(kind, expert_inter, expert_dim, 4 * expert_count));
  DI_TRY(auto w2, matrix_copies::make(kind, expert_dim, expert_inter, 2 * expert_count));
  const bool as_int8 = kernels::reads_int8(w2.each.front().type);
  const auto packed =
    static_cast<std::int64_t>(2 * w13.each.front().bytes() + w2.each.front().bytes());
  const auto stored = 2 * w13.stored_bytes + w2.stored_bytes;
  auto data = std::make_shared<expert_data>(ops, std::move(w13), std::move(w2), rows, as_int8);
  const auto a_call = packed * std::min<std::int64_t>(expert_count, rows * experts_per_token);
  const auto calls = std::max<std::int64_t>(2, static_cast<std::int64_t>(rotated_bytes) / a_call);
  std::int64_t used = 0;
  for (std::int64_t call = 0; call < calls; ++call) {
    data->routings.emplace_back(ops, rows, static_cast<std::uint64_t>(call) << 32);
    used += data->routings.back().experts_used();
  }
  kernel_case it;
  it.name = kernels::expert_ffn_args::op_name;
  it.type = type;
  it.shape = fmt::format("{} of {} experts, {} x {}", experts_per_token, expert_count, expert_inter,
                         expert_dim);
  it.rows = rows;
  it.calls = calls;
  it.packed_bytes = packed * used / calls;
  it.stored_bytes = stored * used / calls;
  it.run = [&ops, data](const stream_ref& stream, std::int64_t call) {
    run_experts(ops, *data, stream, call);
  };
  return it;
}

}  // namespace

const std::vector<std::string>& weight_types() {
  static const std::vector<std::string> types{"f32", "bf16", "e4m3", "e2m1", "i8", "i4"};
  return types;
}

std::vector<case_source> product_cases(const kernels::ops& ops, std::span<const std::string> types,
                                       std::span<const std::int32_t> rows) {
  std::vector<case_source> out;
  for (const auto make : {make_linear, make_experts})
    for (const auto& type : types)
      for (const auto count : rows)
        out.push_back(
          {make == make_linear ? kernels::linear_args::op_name : kernels::expert_ffn_args::op_name,
           [&ops, make, type, count] { return make(ops, type, count); }});
  return out;
}

}  // namespace deepinfer
