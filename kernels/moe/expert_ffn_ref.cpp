#include "kernels/moe/expert_ffn.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/common/quantise.hpp"
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

/// One matrix of one expert, panels [begin, end), for the pairs of that expert.
template <class Row, class Out>
void product_of_pairs(const packed_matrix& m, std::int64_t begin, std::int64_t end,
                      std::int64_t pairs, bool bf16, Row&& row, Out&& out) {
  for (auto panel = begin; panel < end; ++panel) {
    const auto first = panel * panel_width;
    const auto width = std::min(panel_width, m.out - first);
    panel_product(m, panel, pairs, row, [&](std::int64_t i, const float* sums) {
      float* y = out(i) + first;
      for (std::int64_t at = 0; at < width; ++at) y[at] = bf16 ? bf16_round(sums[at]) : sums[at];
    });
  }
}

/// Calls body(expert, its pairs, how many) for the experts that have any.
template <class Body>
void for_experts(const expert_ffn_args& a, Body&& body) {
  for (std::int32_t expert = 0; expert < a.expert_count; ++expert) {
    const auto begin = a.offset[expert], end = a.offset[expert + 1];
    if (begin < end) body(a.experts[expert], a.order + begin, std::int64_t{end} - begin);
  }
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
  if (a.expert_count == 0 || a.offset[a.expert_count] == 0) return;
  const auto hidden = [&](std::int64_t pair, std::int64_t part) {
    return a.hidden + (pair * 2 + part) * a.inter;
  };
  // Threads share out the outputs, not the experts: work stays even however tokens are routed.
  stream.for_ranges(a.experts[0].w1.panels(), [&](std::int64_t begin, std::int64_t end) {
    for_experts(a, [&](const expert_weights& e, const std::int32_t* pairs, std::int64_t count) {
      const auto x = [&](std::int64_t i) { return a.x + pairs[i] / a.k * a.dim; };
      product_of_pairs(e.w1, begin, end, count, a.bf16, x,
                       [&](std::int64_t i) { return hidden(pairs[i], 0); });
      product_of_pairs(e.w3, begin, end, count, a.bf16, x,
                       [&](std::int64_t i) { return hidden(pairs[i], 1); });
    });
  });
  stream.for_ranges(a.offset[a.expert_count], [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto pair = a.order[i];
      float* act = hidden(pair, 0);
      swiglu_row(act, hidden(pair, 1), a.weight[pair], a.limit, a.bf16, act, a.inter);
      if (!a.quantise_hidden) continue;
      quantise_ref({}, {.x = act, .y = act, .rows = 1, .dim = a.inter, .format = quantiser::q8});
    }
  });
  stream.for_ranges(a.experts[0].w2.panels(), [&](std::int64_t begin, std::int64_t end) {
    for_experts(a, [&](const expert_weights& e, const std::int32_t* pairs, std::int64_t count) {
      product_of_pairs(
        e.w2, begin, end, count, a.bf16, [&](std::int64_t i) { return hidden(pairs[i], 0); },
        [&](std::int64_t i) { return a.pair_y + pairs[i] * a.dim; });
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
