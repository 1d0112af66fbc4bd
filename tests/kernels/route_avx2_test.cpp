// The AVX2 twin of route: the reference's bits, although most experts are judged by rough scores.
#if defined(__x86_64__)
#include "kernel_support.hpp"

#include <cmath>
#include <limits>

#include "kernels/isa.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const auto needs_avx2 = doctest::skip(!runs(isa::avx2));

struct routed {
  ints id;
  floats weight;
};

routed route(op<route_args> entry, const stream_ref& stream, const test_batch& batch,
             const floats& logits, const floats& bias, std::int32_t k, bool normalise = true,
             float temperature = 1) {
  routed r{ints(size(batch.tokens() * k), 9), floats(size(batch.tokens() * k), 9)};
  entry(stream, {.batch = batch.view(),
                 .logits = logits.data(),
                 .bias = bias.data(),
                 .experts = static_cast<std::int32_t>(bias.size()),
                 .k = k,
                 .temperature = temperature,
                 .scale = 2.5F,
                 .normalise = normalise,
                 .id = r.id.data(),
                 .weight = r.weight.data()});
  return r;
}

/// True where both choose the same experts with the same bits as weights.
bool agree(const test_batch& batch, const floats& logits, const floats& bias, std::int32_t k,
           bool normalise = true, float temperature = 1) {
  const auto expected = route(route_ref, {}, batch, logits, bias, k, normalise, temperature);
  const auto got = route(route_avx2, {}, batch, logits, bias, k, normalise, temperature);
  return got.id == expected.id && same_bits(got.weight, expected.weight);
}

}  // namespace

TEST_CASE("route_avx2 chooses and weighs like the reference, on every team, padding nowhere" *
          needs_avx2) {
  test_batch batch;
  batch.row(0, 0, 9).padding(3).row(1, 4, 21);
  for (const std::int32_t experts : {1, 2, 7, 8, 9, 23, 64, 250, 256})
    for (const std::int32_t k : {1, 2, 6, 23, 64}) {
      if (k > experts) continue;
      CAPTURE(experts);
      CAPTURE(k);
      for (const float spread : {.001F, 1.0F, 30.0F}) {
        const auto logits = noise(1, batch.tokens() * experts, spread),
                   bias = noise(2, experts, .2F);
        CHECK(agree(batch, logits, bias, k));
        CHECK(agree(batch, logits, bias, k, false, .37F));
        const auto run = [&](const stream_ref& s) {
          return route(route_avx2, s, batch, logits, bias, k);
        };
        const auto ids = on_every_team([&](const stream_ref& s) { return run(s).id; });
        CHECK(on_every_team([&](const stream_ref& s) { return run(s).weight; }).size() ==
              ids.size());
      }
    }
}

TEST_CASE("route_avx2 keeps the reference's order where scores differ in the last bit or tie" *
          needs_avx2) {
  test_batch batch;
  batch.row(0, 0, 8).row(1, 0, 8);
  const std::int32_t experts = 96;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const float centre = noise(seed, 1, 12)[0];
    floats logits(size(batch.tokens() * experts)), bias(size(experts));
    const auto pick = noise(seed + 100, batch.tokens() * experts);
    for (std::size_t i = 0; i < logits.size(); ++i)
      logits[i] = pick[i] < -.5F  ? std::nextafter(centre, -100.0F)
                  : pick[i] < .5F ? centre
                                  : std::nextafter(centre, 100.0F);
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = seed % 2 && i % 3 == 0 ? 1e-7F : 0;
    for (const std::int32_t k : {1, 6, 40}) CHECK(agree(batch, logits, bias, k));
  }
}

TEST_CASE("route_avx2 follows the reference for large biases, infinities and NaN" * needs_avx2) {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  test_batch batch;
  batch.row(0, 0, 5);
  const std::int32_t experts = 37;
  for (const float scale : {1.0F, 1e4F, 1e30F}) {
    auto bias = noise(3, experts, scale);
    auto logits = noise(4, 5 * experts, 4);
    CHECK(agree(batch, logits, bias, 6));
    const float odd[] = {inf, -inf, nan, 3e38F, -3e38F, 100, -200, 0.0F, -0.0F};
    for (std::size_t i = 0; i < logits.size(); i += 4) logits[i] = odd[i / 4 % 9];
    CHECK(agree(batch, logits, bias, 6));
    bias[3] = inf;
    bias[8] = -inf;
    bias[30] = nan;
    CHECK(agree(batch, logits, bias, 6));
  }
}
#endif
