#include <algorithm>

#include "kernels/common/exp_avx2.hpp"
#include "kernels/common/quantise.hpp"
#include "kernels/common/vector_avx2.hpp"
#include "kernels/linear/matrix_rows.hpp"
#include "kernels/moe/expert_ffn.hpp"

namespace deepinfer::kernels {
namespace {

/// What a row's activation does besides silu(gate) * up.
struct swiglu_form {
  float weight;
  float limit;
  bool bf16;
};

void swiglu_row(const float* gate, const float* up, const swiglu_form& form, float* y,
                std::int64_t count) {
  const __m256 one = _mm256_set1_ps(1.0F), limit = _mm256_set1_ps(form.limit);
  const __m256 weight = _mm256_set1_ps(form.weight), sign = _mm256_set1_ps(-0.0F);
  for_vectors(0, count, [&](std::int64_t i, auto lanes) {
    __m256 g = rounded_if(form.bf16, lanes.load(gate + i));
    __m256 u = rounded_if(form.bf16, lanes.load(up + i));
    if (form.limit > 0) {
      u = _mm256_max_ps(_mm256_xor_ps(limit, sign), _mm256_min_ps(limit, u));
      g = _mm256_min_ps(limit, g);
    }
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_xor_ps(g, sign))));
    lanes.store(y + i, rounded_if(form.bf16, _mm256_mul_ps(_mm256_mul_ps(silu, u), weight)));
  });
}

void round_row(float* y, std::int64_t count) {
  for_vectors(0, count, [&](std::int64_t i, auto lanes) {
    lanes.store(y + i, round_to_bf16(lanes.load(y + i)));
  });
}

/// The rows of up to matrix_rows_most pairs of one expert.
struct pair_block {
  const float* x[matrix_rows_most];
  const std::int8_t* codes[matrix_rows_most];
  const float* scales[matrix_rows_most];
  float* hidden[matrix_rows_most];  ///< [2, inter]
  std::int8_t* hidden8[matrix_rows_most];
  float* hidden8_scales[matrix_rows_most];
  float weight[matrix_rows_most];
  float* y[matrix_rows_most];
  std::int64_t rows;
};

/// Row r of the block: token `token`, and row `code_row` of the int8 scratch.
void point_to(const expert_ffn_args& a, std::int64_t token, std::int64_t code_row,
              pair_block& block, std::int64_t r) {
  const auto dim = int8_padded(a.dim), inter = int8_padded(a.inter);
  block.x[r] = a.x ? a.x + token * a.dim : nullptr;
  if (!a.x8.codes) return;
  block.codes[r] = a.x8.codes + token * dim;
  block.scales[r] = a.x8.scales + token * (dim / int8_group);
  block.hidden8[r] = a.hidden8 + code_row * inter;
  block.hidden8_scales[r] = a.hidden8_scales + code_row * (inter / int8_group);
}

/// Calls body(expert, block) for all rows of all experts, each expert's one after the other.
template <class Body>
void for_blocks(const expert_ffn_args& a, pair_block& block, Body&& body) {
  for (std::int32_t expert = 0; expert < a.expert_count; ++expert) {
    const std::int64_t end = a.offset[expert + 1];
    for (std::int64_t first = a.offset[expert]; first < end; first += matrix_rows_most) {
      block.rows = std::min(matrix_rows_most, end - first);
      for (std::int64_t r = 0; r < block.rows; ++r) {
        const std::int64_t pair = a.order[first + r];
        point_to(a, pair / a.k, pair, block, r);
        block.hidden[r] = a.hidden + pair * 2 * a.inter;
        block.weight[r] = a.weight[pair];
        block.y[r] = a.pair_y + pair * a.dim;
      }
      body(a.experts[expert], block);
    }
  }
  if (!a.shared) return;
  for (std::int64_t first = 0; first < a.tokens; first += matrix_rows_most) {
    block.rows = std::min(matrix_rows_most, a.tokens - first);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const auto token = first + r;
      point_to(a, token, a.tokens * a.k + token, block, r);
      block.hidden[r] = a.shared_hidden + token * 2 * a.inter;
      block.weight[r] = 1;
      block.y[r] = a.shared_y + token * a.dim;
    }
    body(*a.shared, block);
  }
}

void multiply(const packed_matrix& m, std::int64_t begin, std::int64_t end, const float* const* x,
              const std::int8_t* const* codes, const float* const* scales, float* const* y,
              std::int64_t rows) {
  if (reads_int8(m.type))
    int8_matrix_rows_avx2(m, begin, end, codes, scales, y, rows);
  else
    matrix_rows_avx2(m, begin, end, x, y, rows);
}

/// Columns [first, last) of the activations; both ends lie between groups of 32.
void activate(const expert_ffn_args& a, const packed_matrix& w2, std::int64_t first,
              std::int64_t last, const pair_block& block) {
  const auto count = last - first;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    float* act = block.hidden[r] + first;
    swiglu_row(act, act + a.inter, {block.weight[r], a.limit, a.bf16}, act, count);
    if (a.quantise_hidden)
      quantise_avx2({}, {.x = act, .y = act, .rows = 1, .dim = count, .format = quantiser::q8});
    if (reads_int8(w2.type))
      to_int8_avx2({}, {.x = act,
                        .codes = block.hidden8[r] + first,
                        .scales = block.hidden8_scales[r] + first / int8_group,
                        .rows = 1,
                        .dim = count});
  }
}

/// Threads share out the outputs in groups of 32, not the experts: work stays even however tokens
/// are routed, and a thread has all columns that a scale of the activations covers.
void hidden_of(const expert_ffn_args& a, std::int64_t begin, std::int64_t end) {
  const auto first = begin * int8_group, last = std::min(end * int8_group, a.inter);
  const auto from = first / panel_width, to = (last + panel_width - 1) / panel_width;
  pair_block block;
  for_blocks(a, block, [&](const expert_weights& e, const pair_block& it) {
    float* up[matrix_rows_most];
    for (std::int64_t r = 0; r < it.rows; ++r) up[r] = it.hidden[r] + a.inter;
    multiply(e.w1, from, to, it.x, it.codes, it.scales, it.hidden, it.rows);
    multiply(e.w3, from, to, it.x, it.codes, it.scales, up, it.rows);
    activate(a, e.w2, first, last, it);
  });
}

void outputs_of(const expert_ffn_args& a, std::int64_t begin, std::int64_t end) {
  const auto first = begin * panel_width, last = std::min(end * panel_width, a.dim);
  pair_block block;
  for_blocks(a, block, [&](const expert_weights& e, const pair_block& it) {
    multiply(e.w2, begin, end, it.hidden, it.hidden8, it.hidden8_scales, it.y, it.rows);
    for (std::int64_t r = 0; r < it.rows && a.bf16; ++r) round_row(it.y[r] + first, last - first);
  });
}

}  // namespace

void swiglu_avx2(const stream_ref& stream, const swiglu_args& a) {
  const auto in_stride = a.in_stride ? a.in_stride : a.inter;
  const auto y_stride = a.y_stride ? a.y_stride : a.inter;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      swiglu_row(a.gate + row * in_stride, a.up + row * in_stride,
                 {a.weight ? a.weight[row] : 1.0F, a.limit, a.bf16}, a.y + row * y_stride, a.inter);
  });
}

void expert_ffn_avx2(const stream_ref& stream, const expert_ffn_args& a) {
  stream.for_ranges((a.inter + int8_group - 1) / int8_group,
                    [&](std::int64_t begin, std::int64_t end) { hidden_of(a, begin, end); });
  stream.for_ranges((a.dim + panel_width - 1) / panel_width,
                    [&](std::int64_t begin, std::int64_t end) { outputs_of(a, begin, end); });
}

}  // namespace deepinfer::kernels
