#include "kernels/linear/head.hpp"

#include "kernels/common/lanes.hpp"

namespace deepinfer::kernels {

void confidence_ref(const stream_ref& stream, const confidence_args& a) {
  const auto x_stride = a.x_stride ? a.x_stride : a.dim;
  const auto e_stride = a.e_stride ? a.e_stride : a.rank;
  const auto z_stride = a.z_stride ? a.z_stride : 1;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      a.z[row * z_stride] = dot(a.weight, a.x + row * x_stride, a.dim) +
                            dot(a.weight + a.dim, a.e + row * e_stride, a.rank);
  });
}

void argmax_ref(const stream_ref& stream, const argmax_args& a) {
  const auto x_stride = a.x_stride ? a.x_stride : a.dim;
  const auto id_stride = a.id_stride ? a.id_stride : 1;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      const float* x = a.x + row * x_stride;
      std::int64_t best = -1;
      for (std::int64_t i = 0; i < a.dim; ++i)
        if (x[i] == x[i] && (best < 0 || x[i] > x[best])) best = i;
      a.id[row * id_stride] = static_cast<std::int32_t>(best < 0 ? 0 : best);
    }
  });
}

}  // namespace deepinfer::kernels
