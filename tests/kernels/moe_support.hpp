/// Routing as the tests of routers and experts call it.
#pragma once

#include "kernel_support.hpp"

namespace deepinfer::kernels {

struct routed {
  ints id;
  floats weight;
};

inline routed route(const stream_ref& stream, const test_batch& batch, const floats& logits,
                    const floats& bias, std::int32_t k, bool normalise = true,
                    float temperature = 1, float scale = 1.5F) {
  routed r{ints(size(batch.tokens() * k), 9), floats(size(batch.tokens() * k), 9)};
  route_ref(stream, {.batch = batch.view(),
                     .logits = logits.data(),
                     .bias = bias.data(),
                     .experts = static_cast<std::int32_t>(bias.size()),
                     .k = k,
                     .temperature = temperature,
                     .scale = scale,
                     .normalise = normalise,
                     .id = r.id.data(),
                     .weight = r.weight.data()});
  return r;
}

}  // namespace deepinfer::kernels
