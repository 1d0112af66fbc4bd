#include "kernel_support.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "tests/support/golden_file.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

struct split_result {
  floats pre, post, comb;
  floats all() const {
    auto out = pre;
    out.insert(out.end(), post.begin(), post.end());
    out.insert(out.end(), comb.begin(), comb.end());
    return out;
  }
};

split_result split(const stream_ref& stream, const floats& z, const floats& base,
                   const floats& scale, std::int32_t n, std::int32_t iterations, float eps) {
  const auto tokens = static_cast<std::int64_t>(z.size()) / (n * (n + 2));
  split_result r{floats(size(tokens * n)), floats(size(tokens * n)), floats(size(tokens * n * n))};
  hyper_split_ref(stream, {.z = z.data(),
                           .base = base.data(),
                           .scale = scale.data(),
                           .pre = r.pre.data(),
                           .post = r.post.data(),
                           .comb = r.comb.data(),
                           .tokens = tokens,
                           .streams = n,
                           .iterations = iterations,
                           .hc_eps = eps});
  return r;
}

/// The definition, for one token, in double.
struct mix_in_double {
  std::vector<double> pre, post, comb;

  mix_in_double(const std::vector<double>& z, const floats& base, const floats& scale,
                std::size_t n, int iterations, double eps) {
    const auto value = [&](std::size_t i, std::size_t part) {
      return z[i] * scale[part] + base[i];
    };
    for (std::size_t j = 0; j < n; ++j) {
      pre.push_back(1 / (1 + std::exp(-value(j, 0))) + eps);
      post.push_back(2 / (1 + std::exp(-value(n + j, 1))));
    }
    comb.resize(n * n);
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k) sum += std::exp(value(2 * n + j * n + k, 2));
      for (std::size_t k = 0; k < n; ++k)
        comb[j * n + k] = std::exp(value(2 * n + j * n + k, 2)) / sum + eps;
    }
    scale_lines(n, n, 1, eps);
    for (int i = 1; i < iterations; ++i) {
      scale_lines(n, 1, n, eps);
      scale_lines(n, n, 1, eps);
    }
  }

private:
  void scale_lines(std::size_t n, std::size_t along, std::size_t across, double eps) {
    for (std::size_t line = 0; line < n; ++line) {
      double sum = eps;
      for (std::size_t i = 0; i < n; ++i) sum += comb[line * across + i * along];
      for (std::size_t i = 0; i < n; ++i) comb[line * across + i * along] /= sum;
    }
  }
};

}  // namespace

TEST_CASE(
  "sinkhorn: the published matrix after the first column step and after twenty iterations") {
  floats z(24, 0);
  const floats logits{.5F,   -1,  .25F, 0,     1.5F, 0,   -.5F, .75F,
                      -.25F, .5F, 2,    -1.5F, 0,    .1F, .2F,  .3F};
  std::copy(logits.begin(), logits.end(), z.begin() + 8);
  const floats base(24, 0), scale(3, 1);
  const auto first = split({}, z, base, scale, 4, 1, 1e-6F),
             last = split({}, z, base, scale, 4, 20, 1e-6F);
  CHECK(distance({first.comb.begin(), first.comb.begin() + 4},
                 std::vector<double>{.313984, .140701, .217987, .290145}) < 1e-6);
  CHECK(
    distance(last.comb, std::vector<double>{.330231, .146231, .211615, .311922, .436720, .193386,
                                            .048632, .321261, .074327, .312267, .580240, .033164,
                                            .158720, .348114, .159512, .333653}) < 1e-6);
  CHECK(last.pre[0] == doctest::Approx(0.5 + 1e-6));
  CHECK(last.post[3] == doctest::Approx(1.0));
}

TEST_CASE("hyper_split is within 1e-6 of the release's kernel") {
  const golden_file ops(DI_SOURCE_DIR "/tests/golden/model/v41-a-fp8/ops.safetensors");
  const auto z = ops.floats("sinkhorn.z"), base = ops.floats("sinkhorn.base"),
             scale = ops.floats("sinkhorn.scale");
  const auto r = split({}, z, base, scale, 4, 20, 1e-6F);
  CHECK(distance(r.pre, ops.floats("sinkhorn.pre")) < 1e-6);
  CHECK(distance(r.post, ops.floats("sinkhorn.post")) < 1e-6);
  CHECK(distance(r.comb, ops.floats("sinkhorn.comb")) < 1e-6);
}

TEST_CASE(
  "hyper_mix matches double precision for 1 to 8 streams, on every team, alone as batched") {
  for (const std::int32_t n : {1, 2, 4, 8}) {
    const std::int64_t dim = 33, tokens = 6, flat = n * dim, width = n * (n + 2);
    CAPTURE(n);
    const auto x = noise(1, tokens * flat, 3), fn = noise(2, width * flat, .3F),
               base = noise(3, width), scale = noise(4, 3, 2);
    std::vector<std::byte> panels(packed_bytes(panel_type::f32, width, flat));
    const auto matrix =
      pack_matrix({dtype::f32, width, flat, reinterpret_cast<const std::byte*>(fn.data()), nullptr},
                  packing::exact, panels.data());
    const auto run = [&](const stream_ref& stream, const floats& in) {
      const auto count = static_cast<std::int64_t>(in.size()) / flat;
      split_result r{floats(size(count * n)), floats(size(count * n)), floats(size(count * n * n))};
      floats z(size(count * width));
      hyper_mix_ref(stream, {.x = in.data(),
                             .fn = &matrix,
                             .z = z.data(),
                             .dim = dim,
                             .rms_eps = 1e-20F,
                             .split = {.base = base.data(),
                                       .scale = scale.data(),
                                       .pre = r.pre.data(),
                                       .post = r.post.data(),
                                       .comb = r.comb.data(),
                                       .tokens = count,
                                       .streams = n,
                                       .iterations = 5,
                                       .hc_eps = 1e-5F}});
      return r.all();
    };
    const auto whole = on_every_team([&](const stream_ref& s) { return run(s, x); });
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<double> z(size(width));
      double square = 0;
      for (std::int64_t i = 0; i < flat; ++i) square += std::pow(x[size(t * flat + i)], 2);
      for (std::int64_t o = 0; o < width; ++o)
        for (std::int64_t i = 0; i < flat; ++i)
          z[size(o)] += double{fn[size(o * flat + i)]} * x[size(t * flat + i)] /
                        std::sqrt(square / static_cast<double>(flat));
      const mix_in_double expected(z, base, scale, size(n), 5, 1e-5);
      CHECK(distance(rows_of(whole, t, 1, n), expected.pre) < 1e-5);
      CHECK(distance(rows_of(whole, tokens + t, 1, n), expected.post) < 1e-5);
      const floats comb(whole.begin() + 2 * tokens * n, whole.end());
      CHECK(distance(rows_of(comb, t, 1, n * n), expected.comb) < 1e-5);
      auto alone = rows_of(whole, t, 1, n), posts = rows_of(whole, tokens + t, 1, n),
           combs = rows_of(comb, t, 1, n * n);
      alone.insert(alone.end(), posts.begin(), posts.end());
      alone.insert(alone.end(), combs.begin(), combs.end());
      CHECK(same_bits(run({}, rows_of(x, t, 1, flat)), alone));
    }
  }
}

TEST_CASE("twenty sinkhorn iterations leave rows and columns that sum to 1 within 1e-3") {
  const auto z = noise(9, 50 * 24, 2);
  const floats base(24, 0), scale(3, 1);
  const auto comb = split({}, z, base, scale, 4, 20, 1e-6F).comb;
  for (std::size_t t = 0; t < 50; ++t)
    for (std::size_t i = 0; i < 4; ++i) {
      double row = 0, column = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        row += comb[t * 16 + i * 4 + k];
        column += comb[t * 16 + k * 4 + i];
      }
      CHECK(std::fabs(row - 1) < 1e-3);
      CHECK(std::fabs(column - 1) < 1e-3);
    }
}

TEST_CASE("collapse weighs the streams, post mixes them over the first index of comb") {
  const std::int64_t tokens = 5, dim = 21;
  for (const std::int32_t n : {1, 3, 4}) {
    const auto x = noise(1, tokens * n * dim), w = noise(2, tokens * n), o = noise(3, tokens * dim),
               comb = noise(4, tokens * n * n);
    std::vector<double> sums(size(tokens * dim)), mixed(size(tokens * n * dim));
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t d = 0; d < dim; ++d)
        for (std::int64_t j = 0; j < n; ++j) {
          const double xj = x[size((t * n + j) * dim + d)];
          sums[size(t * dim + d)] += w[size(t * n + j)] * xj;
          mixed[size((t * n + j) * dim + d)] += double{w[size(t * n + j)]} * o[size(t * dim + d)];
          for (std::int64_t k = 0; k < n; ++k)
            mixed[size((t * n + k) * dim + d)] += comb[size((t * n + j) * n + k)] * xj;
        }
    const auto collapsed = on_every_team([&](const stream_ref& stream) {
      floats y(size(tokens * dim));
      collapse_ref(stream, {.x = x.data(),
                            .weight = w.data(),
                            .y = y.data(),
                            .tokens = tokens,
                            .streams = n,
                            .dim = dim});
      return y;
    });
    CHECK(distance(collapsed, sums) < 1e-6);
    const auto run = [&](const stream_ref& stream, bool bf16) {
      auto y = x;
      hyper_post_ref(stream, {.x = y.data(),
                              .o = o.data(),
                              .post = w.data(),
                              .comb = comb.data(),
                              .tokens = tokens,
                              .streams = n,
                              .dim = dim,
                              .bf16 = bf16});
      return y;
    };
    const auto y = on_every_team([&](const stream_ref& s) { return run(s, false); });
    CHECK(distance(y, mixed) < 1e-6);
    auto rounded = y;
    for (auto& v : rounded) v = bf16_round(v);
    CHECK(run({}, true) == rounded);
  }
}

TEST_CASE("weights 1,0,0,0 collapse to the first stream, bit for bit") {
  const auto x = noise(1, 2 * 4 * 8);
  const floats w{1, 0, 0, 0, 1, 0, 0, 0};
  floats y(16);
  collapse_ref({}, {.x = x.data(), .weight = w.data(), .y = y.data(), .tokens = 2, .dim = 8});
  CHECK(rows_of(y, 0, 1, 8) == rows_of(x, 0, 1, 8));
  CHECK(rows_of(y, 1, 1, 8) == rows_of(x, 4, 1, 8));
}

TEST_CASE("stream_mean averages the streams into a strided place") {
  const auto x = noise(1, 3 * 4 * 5);
  const auto y = on_every_team([&](const stream_ref& stream) {
    floats out(3 * 12, 9);
    stream_mean_ref(
      stream,
      {.x = x.data(), .y = out.data() + 5, .tokens = 3, .dim = 5, .y_stride = 12, .bf16 = true});
    return out;
  });
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t d = 0; d < 12; ++d) {
      if (d < 5 || d >= 10) {
        CHECK(y[t * 12 + d] == 9);
        continue;
      }
      float sum = 0;
      for (std::size_t s = 0; s < 4; ++s) sum += x[(t * 4 + s) * 5 + d - 5];
      CHECK(y[t * 12 + d] == bf16_round(sum / 4));
    }
}
