#include "moe_support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

double score_of(double logit) {
  return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::fabs(logit))));
}

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
