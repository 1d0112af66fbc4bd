#include "kernels/common/vector_avx2.hpp"
#include "kernels/linear/head.hpp"

namespace deepinfer::kernels {

void confidence_avx2(const stream_ref& stream, const confidence_args& a) {
  const auto x_stride = a.x_stride ? a.x_stride : a.dim;
  const auto e_stride = a.e_stride ? a.e_stride : a.rank;
  const auto z_stride = a.z_stride ? a.z_stride : 1;
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      a.z[row * z_stride] = vector_dot(a.weight, a.x + row * x_stride, a.dim) +
                            vector_dot(a.weight + a.dim, a.e + row * e_stride, a.rank);
  });
}

}  // namespace deepinfer::kernels
