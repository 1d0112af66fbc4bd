#include "kernels/common/row_table.hpp"

#include <algorithm>

#include "kernels/common/formats.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

void read_row(const row_table& table, std::int64_t row, float* out) {
  const auto dim = table.dim, first = row * dim, first_scale = row * ((dim + 31) / 32);
  for (std::int64_t i = 0; i < dim; ++i) {
    if (table.type == dtype::f32)
      out[i] = stored_element<float>(table.data, first + i);
    else if (table.type == dtype::bf16)
      out[i] = bf16_decode(stored_element<std::uint16_t>(table.data, first + i));
    else
      out[i] = e4m3_decode(stored_element<std::uint8_t>(table.data, first + i)) *
               e8m0_decode(stored_element<std::uint8_t>(table.scale, first_scale + i / 32));
  }
}

}  // namespace

void check_lookup(const lookup_args& a) {
  const auto& table = *a.table;
  DI_CHECK(table.type == dtype::f32 || table.type == dtype::bf16 ||
             (table.type == dtype::f8_e4m3 && table.scale != nullptr),
           "a row table of type {} with{} scale", name_of(table.type), table.scale ? "" : "out");
  for (std::int64_t i = 0; i < a.count; ++i) {
    const std::int64_t row = a.index64 ? a.index64[i] : a.index32[i];
    DI_CHECK(row < table.rows, "row {} of a table of {}", row, table.rows);
  }
}

void lookup_ref(const stream_ref& stream, const lookup_args& a) {
  if (a.count == 0) return;
  check_lookup(a);
  const auto& table = *a.table;
  stream.for_ranges(a.count, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      float* out = a.y + i * a.copies * table.dim;
      const std::int64_t row = a.index64 ? a.index64[i] : a.index32[i];
      if (row < 0)
        std::fill(out, out + table.dim, 0.0F);
      else
        read_row(table, row, out);
      if (a.bf16)
        for (std::int64_t d = 0; d < table.dim; ++d) out[d] = bf16_round(out[d]);
      for (std::int64_t copy = 1; copy < a.copies; ++copy)
        std::copy(out, out + table.dim, out + copy * table.dim);
      if (a.first_only)
        for (std::int64_t copy = 0; copy < a.copies; ++copy)
          a.first_only[i * a.copies + copy] = copy == 0 ? 1.0F : 0.0F;
    }
  });
}

void gather_ref(const stream_ref& stream, const gather_args& a) {
  stream.for_ranges(a.count, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      float* out = a.y + i * a.dim;
      if (a.index[i] < 0) {
        std::fill(out, out + a.dim, 0.0F);
        continue;
      }
      const float* x = a.x + std::int64_t{a.index[i]} * a.dim;
      std::copy(x, x + a.dim, out);
    }
  });
}

}  // namespace deepinfer::kernels
