#include "kernel_support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

struct routed {
  ints id;
  floats weight;
};

routed route(const stream_ref& stream, const test_batch& batch, const floats& logits,
             const floats& bias, std::int32_t k, bool normalise = true, float temperature = 1,
             float scale = 1.5F) {
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

double score_of(double logit) {
  return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::fabs(logit))));
}

/// Experts with random weights and a double-precision evaluation.
struct expert_world {
  std::int64_t dim = 40, inter = 35;
  std::int32_t count = 6;
  std::vector<floats> w1, w3, w2;
  std::vector<std::vector<std::byte>> panels;
  std::vector<expert_weights> experts;

  expert_world() {
    for (std::int32_t e = 0; e < count; ++e) {
      const auto seed = static_cast<std::uint64_t>(10 * e);
      w1.push_back(noise(seed + 1, inter * dim));
      w3.push_back(noise(seed + 2, inter * dim));
      w2.push_back(noise(seed + 3, dim * inter));
      experts.push_back(
        {pack(w1.back(), inter, dim), pack(w3.back(), inter, dim), pack(w2.back(), dim, inter)});
    }
  }

  packed_matrix pack(const floats& w, std::int64_t out, std::int64_t in) {
    panels.emplace_back(packed_bytes(panel_type::f32, out, in));
    return pack_matrix({dtype::f32, out, in, reinterpret_cast<const std::byte*>(w.data()), nullptr},
                       panels.back().data());
  }

  std::vector<double> in_double(std::int32_t expert, const floats& x, double weight,
                                double limit) const {
    const auto e = size(expert);
    std::vector<double> y(size(dim));
    for (std::int64_t i = 0; i < inter; ++i) {
      double gate = 0, up = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        gate += double{w1[e][size(i * dim + d)]} * x[size(d)];
        up += double{w3[e][size(i * dim + d)]} * x[size(d)];
      }
      if (limit > 0) {
        up = std::clamp(up, -limit, limit);
        gate = std::min(gate, limit);
      }
      const double a = gate / (1 + std::exp(-gate)) * up * weight;
      for (std::int64_t d = 0; d < dim; ++d) y[size(d)] += a * w2[e][size(d * inter + i)];
    }
    return y;
  }

  /// Per (token, choice) outputs; choices of padding stay 0.
  floats run(const stream_ref& stream, const floats& x, const routed& r, std::int32_t k,
             float limit, bool bf16 = false) const {
    const auto tokens = static_cast<std::int64_t>(x.size()) / dim;
    ints offset(size(count + 1)), order(size(tokens * k));
    group_by_expert_ref(stream, {.id = r.id.data(),
                                 .tokens = tokens,
                                 .k = k,
                                 .experts = count,
                                 .offset = offset.data(),
                                 .order = order.data()});
    floats hidden(size(tokens * k * 2 * inter)), y(size(tokens * k * dim));
    expert_ffn_ref(stream, {.experts = experts.data(),
                            .expert_count = count,
                            .x = x.data(),
                            .dim = dim,
                            .inter = inter,
                            .k = k,
                            .offset = offset.data(),
                            .order = order.data(),
                            .weight = r.weight.data(),
                            .hidden = hidden.data(),
                            .pair_y = y.data(),
                            .limit = limit,
                            .bf16 = bf16,
                            .quantise_hidden = bf16});
    return y;
  }
};

}  // namespace

TEST_CASE("route: scores of known logits, the factor also without normalisation") {
  test_batch batch;
  batch.row(0, 0, 1);
  const struct {
    float logit;
    double score, error;
  } table[] = {{0, .83255461, 1e-7},
               {1, 1.1459763, 1e-6},
               {-5, .08194723, 1e-7},
               {-20, 4.54e-5, 1e-7},
               {50, std::sqrt(50.0), 1e-6}};
  for (const auto& row : table) {
    const auto r = route({}, batch, {row.logit}, {0}, 1);
    CHECK(std::fabs(r.weight[0] - 1.5 * row.score) < 2 * row.error);
  }
  CHECK(route({}, batch, {0, 0}, {0, 0}, 2).weight == floats{.75F, .75F});
}

TEST_CASE(
  "route: the bias selects but does not weigh, ties go to the lower id, ids come ascending") {
  test_batch batch;
  batch.row(0, 0, 1);
  const auto biased = route({}, batch, {2, 1, 0, 1}, {0, 0, 5, 0}, 2);
  CHECK(biased.id == ints{0, 2});
  CHECK(biased.weight[0] / biased.weight[1] == doctest::Approx(score_of(2) / score_of(0)));
  CHECK(route({}, batch, {1, 3, 3, 3, 1}, {0, 0, 0, 0, 0}, 2).id == ints{1, 2});
  CHECK(route({}, batch, {1, 1, 1, 3, 1}, {0, 0, 0, 0, 0}, 3).id == ints{0, 1, 3});
}

TEST_CASE("route matches a stable sort in double for random logits, and routes padding nowhere") {
  const std::int32_t experts = 23;
  test_batch batch;
  batch.row(0, 0, 9).padding(3).row(1, 4, 8);
  const auto logits = noise(1, batch.tokens() * experts, 4), bias = noise(2, experts);
  for (const std::int32_t k : {1, 2, 6, 23}) {
    const auto r = route({}, batch, logits, bias, k, true, 0.7F, 2.5F);
    CHECK(on_every_team([&](const stream_ref& s) {
            return route(s, batch, logits, bias, k, true, .7F, 2.5F).weight;
          }) == r.weight);
    for (std::int64_t t = 0; t < batch.tokens(); ++t) {
      const ints got(r.id.begin() + t * k, r.id.begin() + (t + 1) * k);
      if (t >= 9 && t < 12) {
        CHECK(got == ints(size(k), -1));
        CHECK(rows_of(r.weight, t, 1, k) == floats(size(k), 0));
        continue;
      }
      const auto score = [&](std::int32_t e) {
        return score_of(double{logits[size(t * experts + e)]} / 0.7F);
      };
      ints order;
      for (std::int32_t e = 0; e < experts; ++e) order.push_back(e);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
        return score(a) + bias[size(a)] > score(b) + bias[size(b)];
      });
      order.resize(size(k));
      std::sort(order.begin(), order.end());
      CHECK(got == order);
      double sum = 0;
      for (const auto e : order) sum += score(e);
      for (std::int64_t i = 0; i < k; ++i)
        CHECK(r.weight[size(t * k + i)] ==
              doctest::Approx(2.5 * score(order[size(i)]) / (k > 1 ? sum : 1)).epsilon(1e-6));
    }
  }
}

TEST_CASE("group_by_expert lists each expert's pairs ascending and leaves out unrouted ones") {
  const ints id{2, 5, -1, -1, 0, 2, 2, 3, 0, 5};
  ints offset(7, 9), order(10, 9);
  group_by_expert_ref({}, {.id = id.data(),
                           .tokens = 5,
                           .k = 2,
                           .experts = 6,
                           .offset = offset.data(),
                           .order = order.data()});
  CHECK(offset == ints{0, 2, 2, 5, 6, 6, 8});
  CHECK(ints(order.begin(), order.begin() + 8) == ints{4, 8, 0, 5, 6, 7, 1, 9});
  group_by_expert_ref(
    {},
    {.id = nullptr, .tokens = 0, .k = 2, .experts = 6, .offset = offset.data(), .order = nullptr});
  CHECK(offset == ints(7, 0));
}

TEST_CASE("swiglu clamps up on both sides and gate only above, before silu") {
  const floats gate{5, -5, 1, 0}, up{3, 3, -9, 7}, weight{2};
  floats y(4);
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  swiglu_ref({}, {.gate = gate.data(),
                  .up = up.data(),
                  .weight = weight.data(),
                  .y = y.data(),
                  .rows = 1,
                  .inter = 4,
                  .limit = 2});
  CHECK(distance(y, std::vector<double>{2 * silu(2) * 2, 2 * silu(-5) * 2, 2 * silu(1) * -2, 0}) <
        1e-6);
  swiglu_ref({}, {.gate = gate.data(), .up = up.data(), .y = y.data(), .rows = 1, .inter = 4});
  CHECK(distance(y, std::vector<double>{silu(5) * 3, silu(-5) * 3, silu(1) * -9, 0}) < 1e-5);
}

TEST_CASE("swiglu reads interleaved halves of a wider product and may write over them") {
  auto both = noise(4, 3 * 10, 3);
  const auto before = both;
  floats y(15);
  swiglu_ref({}, {.gate = both.data(),
                  .up = both.data() + 5,
                  .y = y.data(),
                  .rows = 3,
                  .inter = 5,
                  .in_stride = 10,
                  .limit = 1,
                  .bf16 = true});
  for (std::size_t i = 0; i < 15; ++i) {
    const float g = std::min(bf16_round(before[i / 5 * 10 + i % 5]), 1.0F);
    const float u = std::clamp(bf16_round(before[i / 5 * 10 + 5 + i % 5]), -1.0F, 1.0F);
    CHECK(y[i] == bf16_round(g / (1.0F + std::exp(-g)) * u));
  }
  swiglu_ref({}, {.gate = both.data(),
                  .up = both.data() + 5,
                  .y = both.data(),
                  .rows = 3,
                  .inter = 5,
                  .in_stride = 10,
                  .y_stride = 10,
                  .limit = 1,
                  .bf16 = true});
  for (std::size_t i = 0; i < 15; ++i) CHECK(both[i / 5 * 10 + i % 5] == y[i]);
}

TEST_CASE("expert_ffn gives every routed pair its expert's output, alone as in any batch") {
  const expert_world world;
  const std::int32_t k = 2;
  test_batch batch;
  batch.row(0, 0, 17).padding(3).row(1, 4, 20);
  const auto tokens = batch.tokens();
  const auto x = noise(77, tokens * world.dim);
  const auto logits = noise(78, tokens * world.count, 3);
  const floats bias{0, 0, 0, -50, 0, 1};  // expert 3 gets nothing, expert 5 most
  const auto r = route({}, batch, logits, bias, k);
  for (const float limit : {0.0F, 0.5F}) {
    const auto y = on_every_team([&](const stream_ref& s) { return world.run(s, x, r, k, limit); });
    for (std::int64_t pair = 0; pair < tokens * k; ++pair) {
      const auto id = r.id[size(pair)];
      const auto got = rows_of(y, pair, 1, world.dim), row = rows_of(x, pair / k, 1, world.dim);
      if (id < 0)
        CHECK(got == floats(size(world.dim), 0));
      else
        CHECK(distance(got, world.in_double(id, row, r.weight[size(pair)], limit)) < 1e-4);
    }
    for (const bool bf16 : {false, true}) {
      const auto whole = bf16 ? world.run({}, x, r, k, limit, true) : y;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const routed one{{r.id.begin() + t * k, r.id.begin() + (t + 1) * k},
                         rows_of(r.weight, t, 1, k)};
        CHECK(same_bits(world.run({}, rows_of(x, t, 1, world.dim), one, k, limit, bf16),
                        rows_of(whole, t * k, k, world.dim)));
      }
    }
  }
}

TEST_CASE(
  "expert_ffn, released: hidden values pass through bf16 and Q8 before the second product") {
  const expert_world world;
  const auto x = noise(5, world.dim);
  const routed one{{4}, {.75F}};
  floats gate(35), up(35), y(40);
  linear_ref(
    {}, {.weight = &world.experts[4].w1, .x = x.data(), .y = gate.data(), .rows = 1, .bf16 = true});
  linear_ref(
    {}, {.weight = &world.experts[4].w3, .x = x.data(), .y = up.data(), .rows = 1, .bf16 = true});
  swiglu_ref({}, {.gate = gate.data(),
                  .up = up.data(),
                  .weight = one.weight.data(),
                  .y = gate.data(),
                  .rows = 1,
                  .inter = 35,
                  .limit = 2,
                  .bf16 = true});
  quantise_ref({},
               {.x = gate.data(), .y = gate.data(), .rows = 1, .dim = 35, .format = quantiser::q8});
  linear_ref(
    {}, {.weight = &world.experts[4].w2, .x = gate.data(), .y = y.data(), .rows = 1, .bf16 = true});
  CHECK(same_bits(world.run({}, x, one, 1, 2, true), y));
}

TEST_CASE("combine adds choices in order, the shared expert last, and skips unrouted pairs") {
  const ints id{0, 3, -1, -1};
  floats pairs{1e8F, -1e8F, 1, 1, std::numeric_limits<float>::quiet_NaN(), 0, 0, 0},
    shared{1, 2, 3, 4};
  const auto y = on_every_team([&](const stream_ref& stream) {
    floats out(4);
    combine_ref(stream, {.id = id.data(),
                         .pair_y = pairs.data(),
                         .shared = shared.data(),
                         .y = out.data(),
                         .tokens = 2,
                         .k = 2,
                         .dim = 2});
    return out;
  });
  // (1e8 + 1) + 1 loses both ones in f32; the other column is (-1e8 + 1) + 2.
  CHECK(y == floats{1e8F, -1e8F + 1 + 2, 3, 4});
  floats rounded(2);
  pairs[0] = 1;
  combine_ref({}, {.id = id.data(),
                   .pair_y = pairs.data(),
                   .y = rounded.data(),
                   .tokens = 1,
                   .k = 1,
                   .dim = 1,
                   .bf16 = true});
  CHECK(rounded[0] == 1);
}
