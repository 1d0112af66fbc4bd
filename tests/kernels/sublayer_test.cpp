// The fused op between two sublayers: the same bits as its steps one after the other.
#if defined(__x86_64__)
#include "kernel_support.hpp"

#include <initializer_list>

#include "kernels/isa.hpp"
#include "kernels/mix/sublayer.hpp"
#include "mix_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const auto needs_avx2 = doctest::skip(!runs(isa::avx2));

/// Which steps a call has.
struct steps {
  bool combine = true, post = true, tap = true, mix = true, input = true, gate = true;
};

/// A block's weights and one step's inputs; every buffer has exactly the size that is documented.
struct sublayer_world {
  static constexpr std::int32_t n = 4, k = 3, experts = 21;
  std::int64_t tokens, dim;
  bool bf16;
  mix_world weights;
  test_batch batch;
  floats norm_weight, router_bias, router_values;
  std::vector<std::byte> router_panels;
  packed_matrix router;
  ints pair_id;
  floats pairs, shared, old_streams, old_pre, old_post, old_comb;

  sublayer_world(std::int64_t count, std::int64_t width, bool rounds)
    : tokens(count),
      dim(width),
      bf16(rounds),
      weights(n, width),
      norm_weight(noise(31, dim)),
      router_bias(noise(32, experts, .1F)),
      router_values(noise(33, experts * dim)),
      router_panels(packed_bytes(panel_type::f32, experts, dim)),
      router(pack_matrix({dtype::f32, experts, dim,
                          reinterpret_cast<const std::byte*>(router_values.data()), nullptr},
                         packing::exact, router_panels.data())),
      pair_id(size(tokens * k)),
      pairs(noise(34, tokens * k * dim)),
      shared(noise(35, tokens * dim)),
      old_streams(noise(36, tokens * n * dim)),
      old_pre(noise(37, tokens * n)),
      old_post(noise(38, tokens * n)),
      old_comb(noise(39, tokens * n * n)) {
    for (std::size_t i = 0; i < pair_id.size(); ++i)
      pair_id[i] = i % 7 == 4 ? -1 : static_cast<std::int32_t>(i);
    const auto padding = static_cast<std::int32_t>(tokens / 4);
    batch.row(1, 3, static_cast<std::int32_t>(tokens) - padding).padding(padding);
  }

  /// Runs one call, by `run(stream, args)`; all that it wrote, as bytes.
  template <class Run>
  std::vector<std::byte> results(const stream_ref& stream, const steps& with, bool shares,
                                 Run&& run) const {
    auto streams = old_streams;
    floats out(size(tokens * dim), 9), taps(size(tokens * (2 * dim)), 9),
      mixed(size(tokens * weights.outputs()), 9), z(size(tokens * weights.outputs())),
      partial(size(tokens * mix_partial_floats(n, dim))), hidden(out.size(), 9),
      rounded(out.size(), 9), scales(size(tokens * int8_padded(dim) / int8_group), 9),
      logits(size(tokens * experts), 9), weight(size(tokens * k), 9);
    std::vector<std::int8_t> codes(size(tokens * int8_padded(dim)), 9);
    ints id(size(tokens * k), 9);
    const combine_args combine{
      pair_id.data(), pairs.data(), shared.data(), out.data(), tokens, k, dim, bf16};
    const hyper_post_args post{streams.data(),
                               with.combine ? out.data() : shared.data(),
                               old_post.data(),
                               old_comb.data(),
                               tokens,
                               n,
                               dim,
                               bf16};
    const stream_mean_args tap{streams.data(), taps.data() + dim, tokens, n, dim, 2 * dim, bf16};
    const auto mix = weights.args(tokens, streams.data(), z.data(), mixed.data(),
                                  shares ? partial.data() : nullptr);
    const collapse_args collapse{
      streams.data(), old_pre.data(), hidden.data(), tokens, n, dim, bf16};
    const rms_norm_args norm{
      hidden.data(), norm_weight.data(), hidden.data(), tokens, dim, 0, 0, 1e-6F, bf16};
    const quantise_args quantise{hidden.data(), rounded.data(), tokens, dim, quantiser::q8};
    const to_int8_args to_int8{hidden.data(), codes.data(), scales.data(), tokens, dim};
    linear_args gate;
    gate.weight = &router;
    gate.x = hidden.data();
    gate.y = logits.data();
    gate.rows = tokens;
    const route_args route{.batch = batch.view(),
                           .logits = logits.data(),
                           .bias = router_bias.data(),
                           .experts = experts,
                           .k = k,
                           .id = id.data(),
                           .weight = weight.data()};
    sublayer_args args;
    args.tokens = tokens;
    if (with.combine) args.combine = &combine;
    if (with.post) args.post = &post;
    if (with.tap) args.tap = &tap;
    if (with.mix) args.mix = &mix;
    if (with.input) {
      args.collapse = &collapse;
      args.norm = &norm;
      args.quantise = &quantise;
      args.to_int8 = &to_int8;
    }
    if (with.gate) {
      args.gate = &gate;
      args.route = &route;
    }
    run(stream, args);
    std::vector<std::byte> all;
    const auto add = [&all](const auto& values) {
      const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
      all.insert(all.end(), bytes, bytes + values.size() * sizeof(values[0]));
    };
    add(streams), add(out), add(taps), add(mixed), add(hidden), add(rounded), add(scales);
    add(codes), add(logits), add(weight), add(id);
    return all;
  }
};

void one_by_one(const stream_ref& stream, const sublayer_args& a) {
  if (a.combine) combine_avx2(stream, *a.combine);
  if (a.post) hyper_post_avx2(stream, *a.post);
  if (a.tap) stream_mean_avx2(stream, *a.tap);
  if (a.mix) hyper_mix_avx2(stream, *a.mix);
  if (a.collapse) collapse_avx2(stream, *a.collapse);
  if (a.norm) rms_norm_avx2(stream, *a.norm);
  if (a.quantise) quantise_avx2(stream, *a.quantise);
  if (a.to_int8) to_int8_avx2(stream, *a.to_int8);
  if (a.gate) linear_avx2(stream, *a.gate);
  if (a.route) route_avx2(stream, *a.route);
}

void check_fused(const sublayer_world& world, const steps& with) {
  const auto expected = world.results({}, with, false, one_by_one);
  for (const bool shares : {false, true})
    CHECK(same_bits(on_every_team([&](const stream_ref& s) {
                      return world.results(s, with, shares, sublayer_avx2);
                    }),
                    expected));
}

}  // namespace

TEST_CASE("a fused sublayer step has the bits of its ops one by one, for any tokens and width" *
          needs_avx2) {
  for (const std::int64_t tokens : {0, 1, 2, 3, 4, 5, 16, 17, 33, 70})
    for (const std::int64_t dim : {64, 128, 21, 256, 384, 200}) {
      if (tokens > 17 && dim > 128) continue;
      CAPTURE(tokens);
      CAPTURE(dim);
      for (const bool bf16 : {false, true}) check_fused({tokens, dim, bf16}, {});
    }
}

TEST_CASE("a fused sublayer step leaves out any of its steps" * needs_avx2) {
  for (const std::int64_t tokens : {1, 5})
    for (int left_out = 0; left_out < 64; ++left_out) {
      CAPTURE(left_out);
      steps with;
      with.combine = !(left_out & 1);
      with.post = !(left_out & 2);
      with.tap = !(left_out & 4);
      with.mix = !(left_out & 8);
      with.input = !(left_out & 16);
      with.gate = with.input && !(left_out & 32);
      check_fused({tokens, 128, false}, with);
      check_fused({tokens, 40, false}, with);
    }
}

TEST_CASE("the reference of a sublayer step calls the references in order") {
  const sublayer_world world(3, 40, true);
  steps with;
  const auto by_ops = [](const stream_ref& stream, const sublayer_args& a) {
    combine_ref(stream, *a.combine);
    hyper_post_ref(stream, *a.post);
    stream_mean_ref(stream, *a.tap);
    hyper_mix_ref(stream, *a.mix);
    collapse_ref(stream, *a.collapse);
    rms_norm_ref(stream, *a.norm);
    quantise_ref(stream, *a.quantise);
    to_int8_ref(stream, *a.to_int8);
    linear_ref(stream, *a.gate);
    route_ref(stream, *a.route);
  };
  CHECK(same_bits(
    on_every_team([&](const stream_ref& s) { return world.results(s, with, false, sublayer_ref); }),
    world.results({}, with, false, by_ops)));
}

TEST_CASE("a sublayer step counts the mix and the router, each once") {
  const sublayer_world world(3, 40, false);
  world.results({}, {}, false, [](const stream_ref&, const sublayer_args& a) {
    const auto cost = a.cost();
    CHECK(cost.bytes == a.mix->cost().bytes + a.gate->cost().bytes);
    CHECK(cost.flops == a.mix->cost().flops + a.gate->cost().flops);
  });
  CHECK(sublayer_args{}.cost().bytes == 0);
}
#endif
