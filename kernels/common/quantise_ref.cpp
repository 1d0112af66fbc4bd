#include "kernels/common/quantise.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"

namespace deepinfer::kernels {
namespace {

float largest(const float* x, std::int64_t count) {
  float top = 0;
  for (std::int64_t i = 0; i < count; ++i) top = std::max(top, std::fabs(x[i]));
  return top;
}

// The constants 1/448 and 1/6 are f32 factors; only the memory format divides.
float scale_of(quantiser format, float amax) {
  switch (format) {
  case quantiser::q8: return pow2ceil(std::max(amax, 1e-4F) * (1.0F / 448.0F));
  case quantiser::q4_index: return pow2ceil(std::max(amax, 6.0F * 0x1p-126F) * (1.0F / 6.0F));
  case quantiser::q4_memory:
    return e4m3_decode(e4m3_encode(std::min(std::max(amax, 6.0F * 0x1p-9F) / 6.0F, 448.0F)));
  case quantiser::none: break;
  }
  return 1.0F;
}

}  // namespace

float quantise_group(quantiser format, const float* x, float* y, std::int64_t count) {
  const float scale = scale_of(format, largest(x, count));
  if (format == quantiser::q8) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = std::clamp(x[i] / scale, -448.0F, 448.0F);
      y[i] = e4m3_decode(e4m3_encode(value)) * scale;
    }
  } else if (format == quantiser::none) {
    std::copy(x, x + count, y);
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = std::clamp(x[i] / scale, -6.0F, 6.0F);
      y[i] = e2m1_decode(e2m1_encode(value)) * scale;
    }
  }
  return scale;
}

void quantise_ref(const stream_ref& stream, const quantise_args& a) {
  const auto group = group_of(a.format);
  stream.for_ranges(a.rows, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row)
      for (std::int64_t at = 0; at < a.dim; at += group)
        quantise_group(a.format, a.x + row * a.dim + at, a.y + row * a.dim + at,
                       std::min(group, a.dim - at));
  });
}

}  // namespace deepinfer::kernels
