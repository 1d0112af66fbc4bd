#include "kernels/moe/expert_ffn.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/common/quantise.hpp"
#include "kernels/linear/matrix_rows.hpp"
#include "kernels/linear/panel_product.hpp"

namespace deepinfer::kernels {
namespace {

void swiglu_row(const float* gate, const float* up, float weight, float limit, bool bf16, float* y,
                std::int64_t inter) {
  for (std::int64_t i = 0; i < inter; ++i) {
    float g = bf16 ? bf16_round(gate[i]) : gate[i];
    float u = bf16 ? bf16_round(up[i]) : up[i];
    if (limit > 0) {
      u = std::clamp(u, -limit, limit);
      g = std::min(g, limit);
    }
    const float a = g / (1.0F + std::exp(-g)) * u * weight;
    y[i] = bf16 ? bf16_round(a) : a;
  }
}

/// What a product reads of one row.
struct pair_input {
  const float* x;
  const std::int8_t* codes;
  const float* scales;
};

/// Where a pair of a routed expert, or a token of the shared one, has its rows.
struct pair_rows {
  const float* x;
  const std::int8_t* codes;
  const float* scales;
  float* hidden;  ///< [2, inter]
  std::int8_t* hidden8;
  float* hidden8_scales;
  float weight;
  float* y;
};

pair_rows rows_of(const expert_ffn_args& a, std::int64_t token, std::int64_t code_row) {
  const auto dim = int8_padded(a.dim), inter = int8_padded(a.inter);
  pair_rows rows = {};
  if (a.x) rows.x = a.x + token * a.dim;
  if (a.x8.codes) {
    rows.codes = a.x8.codes + token * dim;
    rows.scales = a.x8.scales + token * (dim / int8_group);
    rows.hidden8 = a.hidden8 + code_row * inter;
    rows.hidden8_scales = a.hidden8_scales + code_row * (inter / int8_group);
  }
  return rows;
}

pair_rows rows_of_pair(const expert_ffn_args& a, std::int64_t pair) {
  auto rows = rows_of(a, pair / a.k, pair);
  rows.hidden = a.hidden + pair * 2 * a.inter;
  rows.weight = a.weight[pair];
  rows.y = a.pair_y + pair * a.dim;
  return rows;
}

pair_rows rows_of_token(const expert_ffn_args& a, std::int64_t token) {
  auto rows = rows_of(a, token, a.tokens * a.k + token);
  rows.hidden = a.shared_hidden + token * 2 * a.inter;
  rows.weight = 1;
  rows.y = a.shared_y + token * a.dim;
  return rows;
}

/// Calls body(expert, count, row(i)) for the experts that have any rows.
template <class Body>
void for_experts(const expert_ffn_args& a, Body&& body) {
  for (std::int32_t expert = 0; expert < a.expert_count; ++expert) {
    const auto begin = a.offset[expert], end = a.offset[expert + 1];
    if (begin < end)
      body(a.experts[expert], std::int64_t{end} - begin,
           [&, begin](std::int64_t i) { return rows_of_pair(a, a.order[begin + i]); });
  }
  if (a.shared && a.tokens > 0)
    body(*a.shared, a.tokens, [&](std::int64_t token) { return rows_of_token(a, token); });
}

/// y(i) = panels [begin, end) of one matrix times row i, f32 x(i) or int8 codes(i) and scales(i).
template <class Read, class Write>
void product_of_rows(const packed_matrix& m, std::int64_t begin, std::int64_t end,
                     std::int64_t count, bool bf16, Read&& read, Write&& write) {
  for (auto panel = begin; panel < end; ++panel) {
    const auto first = panel * panel_width;
    const auto width = std::min(panel_width, m.out - first);
    const auto round = [&](float* y) {
      for (std::int64_t at = 0; at < width && bf16; ++at) y[at] = bf16_round(y[at]);
    };
    if (reads_int8(m.type)) {
      for (std::int64_t i = 0; i < count; ++i) {
        const pair_input in = read(i);
        float* y = write(i);
        int8_matrix_rows_ref(m, panel, panel + 1, &in.codes, &in.scales, &y, 1);
        round(y + first);
      }
      continue;
    }
    panel_product(
      m, panel, count, [&](std::int64_t i) { return read(i).x; },
      [&](std::int64_t i, const float* sums) {
        float* y = write(i) + first;
        std::copy(sums, sums + width, y);
        round(y);
      });
  }
}

/// The activation of one row, in place, and what w2 reads instead of it.
void activate(const expert_ffn_args& a, const packed_matrix& w2, const pair_rows& row) {
  float* act = row.hidden;
  swiglu_row(act, act + a.inter, row.weight, a.limit, a.bf16, act, a.inter);
  if (a.quantise_hidden)
    quantise_ref({}, {.x = act, .y = act, .rows = 1, .dim = a.inter, .format = quantiser::q8});
  if (reads_int8(w2.type))
    to_int8_ref(
      {},
      {.x = act, .codes = row.hidden8, .scales = row.hidden8_scales, .rows = 1, .dim = a.inter});
}

}  // namespace

void swiglu_ref(const stream_ref& stream, const swiglu_args& a) {
  const auto in_stride = a.in_stride ? a.in_stride : a.inter;
  const auto y_stride = a.y_stride ? a.y_stride : a.inter;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      swiglu_row(a.gate + row * in_stride, a.up + row * in_stride, a.weight ? a.weight[row] : 1.0F,
                 a.limit, a.bf16, a.y + row * y_stride, a.inter);
  });
}

void expert_ffn_ref(const stream_ref& stream, const expert_ffn_args& a) {
  const auto panels_of = [](std::int64_t out) { return (out + panel_width - 1) / panel_width; };
  // Threads share out the outputs, not the experts: work stays even however tokens are routed.
  stream.for_ranges(panels_of(a.inter), [&](std::int64_t begin, std::int64_t end) {
    for_experts(a, [&](const expert_weights& e, std::int64_t count, auto&& row) {
      const auto input = [&](std::int64_t i) {
        const auto it = row(i);
        return pair_input{it.x, it.codes, it.scales};
      };
      product_of_rows(e.w1, begin, end, count, a.bf16, input,
                      [&](std::int64_t i) { return row(i).hidden; });
      product_of_rows(e.w3, begin, end, count, a.bf16, input,
                      [&](std::int64_t i) { return row(i).hidden + a.inter; });
    });
  });
  for_experts(a, [&](const expert_weights& e, std::int64_t count, auto&& row) {
    stream.for_ranges(count, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i) activate(a, e.w2, row(i));
    });
  });
  stream.for_ranges(panels_of(a.dim), [&](std::int64_t begin, std::int64_t end) {
    for_experts(a, [&](const expert_weights& e, std::int64_t count, auto&& row) {
      const auto input = [&](std::int64_t i) {
        const auto it = row(i);
        return pair_input{it.hidden, it.hidden8, it.hidden8_scales};
      };
      product_of_rows(e.w2, begin, end, count, a.bf16, input,
                      [&](std::int64_t i) { return row(i).y; });
    });
  });
}

void combine_ref(const stream_ref& stream, const combine_args& a) {
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      float* y = a.y + token * a.dim;
      for (std::int64_t d = 0; d < a.dim; ++d) {
        float sum = 0;
        for (auto pair = token * a.k; pair < (token + 1) * a.k; ++pair)
          if (a.id[pair] >= 0) sum += a.pair_y[pair * a.dim + d];
        if (a.shared) sum += a.shared[token * a.dim + d];
        y[d] = a.bf16 ? bf16_round(sum) : sum;
      }
    }
  });
}

}  // namespace deepinfer::kernels
