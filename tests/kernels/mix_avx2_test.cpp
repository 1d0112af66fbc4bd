// The AVX2 twins of the hyper-connection's ops against their references, bit for bit.
#if defined(__x86_64__)
#include "kernel_support.hpp"

#include <initializer_list>

#include "kernels/isa.hpp"
#include "mix_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const auto needs_avx2 = doctest::skip(!runs(isa::avx2));

constexpr std::initializer_list<std::int64_t> widths{1, 7, 8, 13, 33, 64, 129, 256, 300};

}  // namespace

TEST_CASE("hyper_split_avx2 has the reference's bits for any streams and iterations" * needs_avx2) {
  for (const std::int32_t n : {1, 2, 3, 4, 8})
    for (const std::int64_t tokens : {0, 1, 2, 3, 33})
      for (const std::int32_t iterations : {1, 2, 20}) {
        CAPTURE(n);
        const std::int64_t width = n * (n + 2);
        const auto z = noise(1, tokens * width, 4), base = noise(2, width), scale = noise(3, 3, 3);
        const auto run = [&](op<hyper_split_args> entry, const stream_ref& stream) {
          floats out(size(tokens * width), 9);
          entry(stream, {.z = z.data(),
                         .base = base.data(),
                         .scale = scale.data(),
                         .pre = out.data(),
                         .post = out.data() + tokens * n,
                         .comb = out.data() + tokens * n * 2,
                         .tokens = tokens,
                         .streams = n,
                         .iterations = iterations,
                         .hc_eps = 1e-6F});
          return out;
        };
        CHECK(
          same_bits(on_every_team([&](const stream_ref& s) { return run(hyper_split_avx2, s); }),
                    run(hyper_split_ref, {})));
      }
}

TEST_CASE("hyper_mix_avx2 has the reference's bits, however threads share the matrix" *
          needs_avx2) {
  for (const std::int32_t n : {1, 2, 3, 4, 5, 8})
    for (const auto dim : widths)
      for (const std::int64_t tokens : {0, 1, 2, 3, 4, 7, 16, 33}) {
        if (tokens > 7 && (dim > 129 || n > 4)) continue;
        CAPTURE(n);
        CAPTURE(dim);
        CAPTURE(tokens);
        const mix_world world(n, dim);
        const auto x = noise(1, tokens * n * dim, 3);
        const auto expected = world.mix(hyper_mix_ref, {}, x, false);
        for (const bool shares : {false, true})
          CHECK(same_bits(on_every_team([&](const stream_ref& s) {
                            return world.mix(hyper_mix_avx2, s, x, shares);
                          }),
                          expected));
      }
}

TEST_CASE("hyper_mix counts its matrix once and two operations per weight and token") {
  const mix_world world(4, 32);
  hyper_mix_args args;
  args.fn = &world.fn;
  CHECK(args.cost().bytes == 0);
  args.split.tokens = 3;
  CHECK(args.cost().flops == 2 * 3 * 24 * 128);
  CHECK(args.cost().bytes == 2 * 16 * 128 * 4);
}

TEST_CASE("collapse, post and mean have the reference's bits for any streams and width" *
          needs_avx2) {
  for (const std::int32_t n : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const auto dim : widths)
      for (const std::int64_t tokens : {0, 1, 5})
        for (const bool bf16 : {false, true}) {
          CAPTURE(n);
          CAPTURE(dim);
          const auto x = noise(1, tokens * n * dim), w = noise(2, tokens * n),
                     o = noise(3, tokens * dim), comb = noise(4, tokens * n * n);
          const auto collapsed = [&](op<collapse_args> entry, const stream_ref& stream) {
            floats y(size(tokens * dim), 9);
            entry(stream, {x.data(), w.data(), y.data(), tokens, n, dim, bf16});
            return y;
          };
          CHECK(same_bits(
            on_every_team([&](const stream_ref& s) { return collapsed(collapse_avx2, s); }),
            collapsed(collapse_ref, {})));
          const auto posted = [&](op<hyper_post_args> entry, const stream_ref& stream) {
            auto y = x;
            entry(stream, {y.data(), o.data(), w.data(), comb.data(), tokens, n, dim, bf16});
            return y;
          };
          CHECK(same_bits(
            on_every_team([&](const stream_ref& s) { return posted(hyper_post_avx2, s); }),
            posted(hyper_post_ref, {})));
          const auto averaged = [&](op<stream_mean_args> entry, const stream_ref& stream) {
            floats y(size(tokens * (dim + 2)), 9);
            entry(stream, {x.data(), y.data(), tokens, n, dim, dim + 2, bf16});
            return y;
          };
          CHECK(same_bits(
            on_every_team([&](const stream_ref& s) { return averaged(stream_mean_avx2, s); }),
            averaged(stream_mean_ref, {})));
        }
}
#endif
