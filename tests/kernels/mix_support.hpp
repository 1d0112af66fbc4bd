/// Random weights of a hyper-connection's mix and its call on any streams.
#pragma once

#include "kernel_support.hpp"

namespace deepinfer::kernels {

struct mix_world {
  mix_world(std::int32_t stream_count, std::int64_t width)
    : n(stream_count),
      dim(width),
      values(noise(21, outputs() * n * dim, .3F)),
      base(noise(22, outputs())),
      scale(noise(23, 3, 2)),
      panels(packed_bytes(panel_type::f32, outputs(), n * dim)),
      fn(pack_matrix({dtype::f32, outputs(), n * dim,
                      reinterpret_cast<const std::byte*>(values.data()), nullptr},
                     packing::exact, panels.data())) {}
  mix_world(const mix_world&) = delete;
  mix_world& operator=(const mix_world&) = delete;

  std::int64_t outputs() const { return (n + 2) * n; }

  /// pre, post and comb of all tokens, one after the other.
  floats mix(op<hyper_mix_args> entry, const stream_ref& stream, const floats& x,
             bool shares) const {
    const auto tokens = static_cast<std::int64_t>(x.size()) / (n * dim);
    floats out(size(tokens * outputs()), 9), z(size(tokens * outputs())),
      partial(size(shares ? tokens * mix_partial_floats(n, dim) : 0));
    entry(stream, args(tokens, x.data(), z.data(), out.data(), shares ? partial.data() : nullptr));
    return out;
  }

  hyper_mix_args args(std::int64_t tokens, const float* x, float* z, float* out,
                      float* partial) const {
    return {.x = x,
            .fn = &fn,
            .z = z,
            .dim = dim,
            .rms_eps = 1e-20F,
            .split = {.base = base.data(),
                      .scale = scale.data(),
                      .pre = out,
                      .post = out + tokens * n,
                      .comb = out + tokens * n * 2,
                      .tokens = tokens,
                      .streams = n,
                      .iterations = 20,
                      .hc_eps = 1e-6F},
            .partial = partial};
  }

  std::int32_t n;
  std::int64_t dim;
  floats values, base, scale;
  std::vector<std::byte> panels;
  packed_matrix fn;
};

}  // namespace deepinfer::kernels
