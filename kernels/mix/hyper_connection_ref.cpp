#include "kernels/mix/hyper_connection.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "kernels/common/lanes.hpp"
#include "kernels/linear/fused_product.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

void normalise_rows(float* m, std::int32_t n, float eps) {
  for (std::int32_t j = 0; j < n; ++j) {
    float sum = 0;
    for (std::int32_t k = 0; k < n; ++k) sum += m[j * n + k];
    for (std::int32_t k = 0; k < n; ++k) m[j * n + k] /= sum + eps;
  }
}

void normalise_columns(float* m, std::int32_t n, float eps) {
  for (std::int32_t k = 0; k < n; ++k) {
    float sum = 0;
    for (std::int32_t j = 0; j < n; ++j) sum += m[j * n + k];
    for (std::int32_t j = 0; j < n; ++j) m[j * n + k] /= sum + eps;
  }
}

void softmax_row(float* row, std::int32_t n, float eps) {
  const float top = *std::max_element(row, row + n);
  float sum = 0;
  for (std::int32_t k = 0; k < n; ++k) {
    row[k] = std::exp(row[k] - top);
    sum += row[k];
  }
  for (std::int32_t k = 0; k < n; ++k) row[k] = row[k] / sum + eps;
}

/// Splits one token's z; z may be the token's own comb memory or any other.
void split_token(const hyper_split_args& a, const float* z, std::int64_t token) {
  const auto n = a.streams;
  float* pre = a.pre + token * n;
  float* post = a.post + token * n;
  float* comb = a.comb + token * n * n;
  for (std::int32_t j = 0; j < n; ++j) {
    pre[j] = sigmoid(z[j] * a.scale[0] + a.base[j]) + a.hc_eps;
    post[j] = 2.0F * sigmoid(z[n + j] * a.scale[1] + a.base[n + j]);
  }
  for (std::int32_t i = 0; i < n * n; ++i) comb[i] = z[2 * n + i] * a.scale[2] + a.base[2 * n + i];
  for (std::int32_t j = 0; j < n; ++j) softmax_row(comb + j * n, n, a.hc_eps);
  normalise_columns(comb, n, a.hc_eps);
  for (std::int32_t i = 1; i < a.iterations; ++i) {
    normalise_rows(comb, n, a.hc_eps);
    normalise_columns(comb, n, a.hc_eps);
  }
}

}  // namespace

void hyper_split_ref(const stream_ref& stream, const hyper_split_args& a) {
  const std::int64_t width = (2 + a.streams) * a.streams;
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) split_token(a, a.z + token * width, token);
  });
}

void check_streams(std::int32_t streams) {
  DI_CHECK(streams >= 1 && streams <= max_streams, "{} streams, at most {}", streams, max_streams);
}

void check_hyper_mix(const hyper_mix_args& a) {
  const auto streams = a.split.streams;
  const std::int64_t width = (2 + streams) * streams, flat = streams * a.dim;
  check_streams(streams);
  DI_CHECK(a.fn->type == panel_type::f32, "a mix matrix has f32 weights");
  DI_CHECK(a.fn->out == width && a.fn->in == flat, "mix matrix is [{}, {}], streams need [{}, {}]",
           a.fn->out, a.fn->in, width, flat);
}

work_cost hyper_mix_args::cost() const {
  if (split.tokens == 0) return {};
  return {.bytes = static_cast<std::int64_t>(fn->bytes()),
          .flops = 2 * split.tokens * fn->out * fn->in};
}

void hyper_mix_ref(const stream_ref& stream, const hyper_mix_args& a) {
  const auto& split = a.split;
  if (split.tokens == 0) return;
  const std::int64_t width = (2 + split.streams) * split.streams;
  const auto flat = split.streams * a.dim;
  check_hyper_mix(a);
  const fused_product_args product{a.fn, a.x, a.z, split.tokens};
  stream.for_ranges(a.fn->panels(), [&](std::int64_t begin, std::int64_t end) {
    for (auto panel = begin; panel < end; ++panel) fused_product(product, panel);
  });
  stream.for_ranges(split.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      float* z = a.z + token * width;
      const float mean = sum_of_squares(a.x + token * flat, flat) / static_cast<float>(flat);
      const float factor = 1.0F / std::sqrt(mean + a.rms_eps);
      for (std::int64_t i = 0; i < width; ++i) z[i] *= factor;
      split_token(split, z, token);
    }
  });
}

void collapse_ref(const stream_ref& stream, const collapse_args& a) {
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      const float* weight = a.weight + token * a.streams;
      const float* x = a.x + token * a.streams * a.dim;
      float* y = a.y + token * a.dim;
      for (std::int64_t d = 0; d < a.dim; ++d) y[d] = weight[0] * x[d];
      for (std::int32_t s = 1; s < a.streams; ++s)
        for (std::int64_t d = 0; d < a.dim; ++d) y[d] += weight[s] * x[s * a.dim + d];
      if (a.bf16)
        for (std::int64_t d = 0; d < a.dim; ++d) y[d] = bf16_round(y[d]);
    }
  });
}

void hyper_post_ref(const stream_ref& stream, const hyper_post_args& a) {
  const auto n = a.streams;
  check_streams(n);
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      const float* post = a.post + token * n;
      const float* comb = a.comb + token * n * n;
      const float* o = a.o + token * a.dim;
      float* x = a.x + token * n * a.dim;
      for (std::int64_t d = 0; d < a.dim; ++d) {
        float before[max_streams];
        for (std::int32_t j = 0; j < n; ++j) before[j] = x[j * a.dim + d];
        for (std::int32_t k = 0; k < n; ++k) {
          float mixed = comb[k] * before[0];
          for (std::int32_t j = 1; j < n; ++j) mixed += comb[j * n + k] * before[j];
          const float value = post[k] * o[d] + mixed;
          x[k * a.dim + d] = a.bf16 ? bf16_round(value) : value;
        }
      }
    }
  });
}

void stream_mean_ref(const stream_ref& stream, const stream_mean_args& a) {
  const auto y_stride = a.y_stride ? a.y_stride : a.dim;
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for (auto token = begin; token < end; ++token) {
      const float* x = a.x + token * a.streams * a.dim;
      float* y = a.y + token * y_stride;
      for (std::int64_t d = 0; d < a.dim; ++d) {
        float sum = x[d];
        for (std::int32_t s = 1; s < a.streams; ++s) sum += x[s * a.dim + d];
        const float mean = sum / static_cast<float>(a.streams);
        y[d] = a.bf16 ? bf16_round(mean) : mean;
      }
    }
  });
}

}  // namespace deepinfer::kernels
