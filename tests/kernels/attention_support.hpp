/// What the tests of attention, indexer and compressed memory share: an op's definition and its
/// twins that run here, and the yardstick of their rounding.
#pragma once

#include "kernel_support.hpp"
#include "kernels/attention/attend_rows.hpp"
#include "kernels/attention/memory_rows.hpp"
#include "kernels/attention/select_rows.hpp"
#include "kernels/isa.hpp"

#if defined(__x86_64__)
#define DI_TWINS(name)                                                                             \
  deepinfer::kernels::twins_that_run({name##_ref, name##_avx2}, {"reference", "avx2"})
#else
#define DI_TWINS(name) deepinfer::kernels::twins_that_run({name##_ref}, {"reference"})
#endif

namespace deepinfer::kernels {

inline const float unset = std::numeric_limits<float>::quiet_NaN();
inline const float infinity = std::numeric_limits<float>::infinity();

template <class Args>
struct named_twin {
  const char* name;
  void (*run)(const stream_ref&, const Args&);

  void operator()(const stream_ref& stream, const Args& args) const { run(stream, args); }
};

/// DI_TWINS(pool): pool_ref, then pool_avx2 where the machine has it.
template <class Args>
std::vector<named_twin<Args>>
twins_that_run(std::initializer_list<void (*)(const stream_ref&, const Args&)> twins,
               std::initializer_list<const char*> names) {
  std::vector<named_twin<Args>> out;
  for (std::size_t i = 0; i < twins.size(); ++i)
    if (i == 0 || runs(isa::avx2)) out.push_back({names.begin()[i], twins.begin()[i]});
  return out;
}

/// Softmax attention of one head over `rows` in numbers of type T: a plain loop, entry by entry.
template <class T>
std::vector<T> plain_attention(const float* q, const std::vector<const float*>& rows, float sink,
                               float scale, std::int64_t dim) {
  std::vector<T> logit, o(size(dim));
  T top = static_cast<T>(sink), sum = 0;
  for (const float* row : rows) {
    T product = 0;
    for (std::int64_t d = 0; d < dim; ++d) product += static_cast<T>(q[d]) * static_cast<T>(row[d]);
    logit.push_back(static_cast<T>(scale) * product);
    top = std::max(top, logit.back());
  }
  for (const T it : logit) sum += std::exp(it - top);
  sum += std::exp(static_cast<T>(sink) - top);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::int64_t d = 0; d < dim; ++d)
      o[size(d)] += std::exp(logit[i] - top) * static_cast<T>(rows[i][d]);
  for (auto& it : o) it = rows.empty() ? T(0) : it / sum;
  return o;
}

/// Largest distances from numbers in double, of a twin's and of a plain loop's f32 results.
struct rounding_check {
  double twin = 0, plain = 0;

  void add(const floats& got, const floats& in_plain_f32, const std::vector<double>& exact) {
    twin = std::max(twin, distance(got, exact));
    plain = std::max(plain, distance(in_plain_f32, exact));
  }
  bool holds() const { return twin <= 2 * plain; }
};

}  // namespace deepinfer::kernels
