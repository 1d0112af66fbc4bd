#include "kernels/linear/fused_product.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deepinfer::kernels {
namespace {

constexpr std::int64_t partial_inputs = 128;
constexpr std::int64_t rows_together = 16;  ///< rows that pass over a run while it is in cache

/// total[0..16) += the partial sums of `count` inputs.
using run_product = void (*)(const float* weight, const float* x, std::int64_t count, float* total);

void run_of_any(const float* weight, const float* x, std::int64_t count, float* total) {
  float sum[panel_width] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t l = 0; l < panel_width; ++l)
      sum[l] = std::fma(x[i], weight[i * panel_width + l], sum[l]);
  for (std::int64_t l = 0; l < panel_width; ++l) total[l] += sum[l];
}

#if defined(__x86_64__)
[[gnu::target("fma")]] void run_by_instruction(const float* weight, const float* x,
                                               std::int64_t count, float* total) {
  static_assert(panel_width == 16);
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < count; ++i) {
    const __m256 value = _mm256_broadcast_ss(x + i);
    const float* w = weight + i * panel_width;
    low = _mm256_fmadd_ps(value, _mm256_loadu_ps(w), low);
    high = _mm256_fmadd_ps(value, _mm256_loadu_ps(w + 8), high);
  }
  _mm256_storeu_ps(total, _mm256_add_ps(_mm256_loadu_ps(total), low));
  _mm256_storeu_ps(total + 8, _mm256_add_ps(_mm256_loadu_ps(total + 8), high));
}
#endif

run_product product_of_this_machine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma")) return run_by_instruction;
#endif
  return run_of_any;
}

}  // namespace

void fused_product(const fused_product_args& a, std::int64_t panel) {
  static const auto add_run = product_of_this_machine();
  DI_CHECK(a.weight->type == panel_type::f32, "a fused product needs f32 weights");
  const std::int64_t in = a.weight->in, out = a.weight->out;
  const auto* weight = reinterpret_cast<const float*>(a.weight->data) + panel * in * panel_width;
  const auto output = panel * panel_width, width = std::min(panel_width, out - output);
  for (std::int64_t first = 0; first < a.rows; first += rows_together) {
    const auto count = std::min(rows_together, a.rows - first);
    float total[rows_together][panel_width] = {};
    for (std::int64_t at = 0; at < in; at += partial_inputs)
      for (std::int64_t r = 0; r < count; ++r)
        add_run(weight + at * panel_width, a.x + (first + r) * in + at,
                std::min(partial_inputs, in - at), total[r]);
    for (std::int64_t r = 0; r < count; ++r)
      std::copy(total[r], total[r] + width, a.y + (first + r) * out + output);
  }
}

}  // namespace deepinfer::kernels
