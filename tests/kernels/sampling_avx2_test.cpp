// The AVX2 twins of sampling against their references. Where equality is the contract, the data are
// made of what could break it: ties, borders, exact fractions, extremes of f32.
#if defined(__x86_64__)

#include <doctest/doctest.h>

#include "kernels/linear/head.hpp"
#include "kernels/sampling/row_steps.hpp"
#include "tests/kernels/sampling_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

class dice {
public:
  explicit dice(std::uint32_t seed) : random_(seed) {}
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_()) % limit; }
  bool chance(std::uint32_t percent) { return below(100) < percent; }
  float real(float low, float high) {
    return low + (high - low) * (static_cast<float>(random_() >> 8) * 0x1p-24f);
  }
  float normal() { return normal_(random_); }
  template <class T, std::size_t n>
  T one_of(const T (&list)[n]) {
    return list[below(static_cast<std::uint32_t>(n))];
  }

private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

enum class shape { normal, flat, equal, few_values, spikes, rising, signed_zeros, huge, close };
constexpr shape shapes[] = {shape::normal,       shape::flat,   shape::equal,
                            shape::few_values,   shape::spikes, shape::rising,
                            shape::signed_zeros, shape::huge,   shape::close};

void fill(dice& random, shape kind, float* x, std::int32_t vocab) {
  const float scale = random.one_of({0.001f, 0.5f, 1.0f, 3.0f, 8.0f});
  const float base = random.real(-30.0f, 30.0f);
  for (std::int32_t id = 0; id < vocab; ++id) {
    switch (kind) {
    case shape::normal: x[id] = scale * random.normal(); break;
    case shape::flat: x[id] = base + random.real(0.0f, scale); break;
    case shape::equal: x[id] = base; break;
    case shape::few_values: x[id] = base + scale * static_cast<float>(random.below(5)); break;
    case shape::spikes: x[id] = random.below(50) == 0 ? base + 7.0f : base; break;
    case shape::rising: x[id] = base + scale * 0.01f * static_cast<float>(id); break;
    case shape::signed_zeros: x[id] = random.one_of({0.0f, -0.0f, -0.0f, 1e-40f, -1e-40f}); break;
    case shape::huge: x[id] = random.real(-3e38f, 3e38f); break;
    // Logits near zero beside a large one: many of them are equal once the peak is subtracted.
    case shape::close: x[id] = id % 37 == 5 ? 12.0f : 1e-7f * random.normal(); break;
    }
  }
}

slot_sampling any_sampling(dice& random, std::int32_t vocab) {
  slot_sampling s;
  s.temperature = random.one_of({1.0f, 1.0f, 0.7f, 2.0f, 0.05f, 2e-5f, 1e9f, 0.0f});
  s.top_p = random.one_of(
    {0.95f, 0.95f, 0.5f, 0.25f, 0.75f, 0.1f, 0.9f, 0.99999f, 0x1.fffffep-1f, 1e-30f, 1.0f, 1.0f});
  if (random.chance(25)) s.top_p = random.real(0.01f, 1.0f);
  if (random.chance(30)) s.min_p = random.one_of({1.0f, 0.5f, 0.05f, 1e-6f});
  if (random.chance(30))
    s.top_k = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocab) + 2));
  if (random.chance(10)) s.top_k = static_cast<std::int32_t>(random.below(50));
  s.logprobs = static_cast<std::int32_t>(random.below(8)) - 2;
  s.seed = std::uint64_t{random.below(~0u)} << 32 | random.below(~0u);
  s.prompt_tokens = 1;
  return s;
}

void fill_batch(dice& random, sample_batch& batch) {
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    auto* x = batch.row_logits(row);
    fill(random, random.one_of(shapes), x, batch.vocab);
    if (random.chance(20))
      for (std::int32_t id = 0; id < batch.vocab; ++id)
        if (random.chance(60)) x[id] = -infinite;
    const auto i = static_cast<std::size_t>(row);
    batch.sampling[i] = any_sampling(random, batch.vocab);
    batch.positions[i] = 1 + static_cast<std::int32_t>(random.below(1u << 20));
  }
}

/// Sizes around every tail: of a vector, of a group, of eight groups.
constexpr std::int32_t ragged[] = {1,  2,  3,  7,  8,   9,   15,  16,  17,  31,  32,
                                   33, 63, 64, 65, 255, 256, 257, 258, 289, 1000};

row_view view_of(const std::vector<float>& x, std::vector<float>& maxima) {
  const auto vocab = static_cast<std::int32_t>(x.size());
  maxima.assign(static_cast<std::size_t>(group_count(vocab)), -5.0f);
  const auto top = find_peak_avx2(x.data(), vocab, maxima.data());
  return {x.data(), maxima.data(), vocab, top};
}

}  // namespace

TEST_CASE("the AVX2 twin samples the reference's ids in 120,000 random rows, ties included") {
  if (!runs(isa::avx2)) return;
  dice random(20);
  std::size_t ok = 0;
  for (int round = 0; round < 700; ++round) {
    sample_batch batch(200, random.one_of(ragged));
    fill_batch(random, batch);
    CAPTURE(round);
    batch.run(3);
    for (const auto status : batch.status) ok += status == sample_status::ok;
  }
  CHECK(ok > 120000);
}

TEST_CASE("the AVX2 twin samples the reference's ids over a whole vocabulary of 129,280") {
  if (!runs(isa::avx2)) return;
  dice random(21);
  for (const auto kind : shapes) {
    CAPTURE(static_cast<int>(kind));
    sample_batch batch(12, 129280);
    const float top_p[] = {0.95f, 0.95f, 1.0f, 0.5f, 0.1f, 0.999f};
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      fill(random, kind, batch.row_logits(row), batch.vocab);
      auto& s = batch.sampling[static_cast<std::size_t>(row)];
      s.temperature = row % 3 == 0 ? 0.8f : 1.0f;
      s.top_p = top_p[row % 6];
      s.seed = random.below(~0u);
      if (row > 7) s.top_k = random.one_of({40, 3000, 60000, 129279});
      if (row == 6) s.min_p = 0.01f;
      s.logprobs = row % 2 == 0 ? 20 : -1;
    }
    batch.run(2);
  }
}

TEST_CASE("a mass exactly at top_p is decided as the reference decides it") {
  if (!runs(isa::avx2)) return;
  // Weights 1 of n equals: the mass before rank r is r / n, and top_p is such a fraction.
  bool seen[64] = {};
  sample_batch batch(2000, 64);
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    std::fill_n(batch.row_logits(row), 64, -4.0f);
    auto& s = batch.sampling[static_cast<std::size_t>(row)];
    s.temperature = 1.0f;
    s.top_p = 0.25f;
    s.seed = static_cast<std::uint64_t>(row);
  }
  batch.run();
  for (const auto id : batch.ids) seen[id] = true;
  for (int id = 0; id < 64; ++id) CHECK(seen[id] == (id <= 16));
}

TEST_CASE("the AVX2 peak is the first largest, -0 equals 0, and NaN and infinity are told") {
  if (!runs(isa::avx2)) return;
  dice random(22);
  for (const auto vocab : ragged) {
    const auto n = static_cast<std::size_t>(vocab);
    for (int round = 0; round < 40; ++round) {
      std::vector<float> x(n);
      fill(random, random.one_of(shapes), x.data(), vocab);
      if (round % 10 == 0) std::fill(x.begin(), x.end(), -infinite);
      if (round % 3 == 1)
        x[random.below(static_cast<std::uint32_t>(n))] =
          random.one_of({infinite, -infinite, std::numeric_limits<float>::quiet_NaN()});
      const auto expected = find_peak_ref(x.data(), vocab, nullptr);
      std::vector<float> maxima;
      const auto view = view_of(x, maxima);
      REQUIRE(view.top.is_bad == expected.is_bad);
      if (expected.is_bad) continue;
      REQUIRE(view.top.id == expected.id);
      CHECK(std::memcmp(&view.top.x, &expected.x, sizeof(float)) == 0);
      for (std::size_t group = 0; group < maxima.size(); ++group) {
        const auto from = x.begin() + static_cast<std::ptrdiff_t>(group * group_ids);
        const auto to =
          x.begin() + static_cast<std::ptrdiff_t>(std::min(n, (group + 1) * group_ids));
        CHECK(maxima[group] == *std::max_element(from, to));
      }
    }
  }
}

TEST_CASE("the k-th largest is the sorted list's, and -inf past the last") {
  if (!runs(isa::avx2)) return;
  dice random(23);
  for (const auto vocab : ragged) {
    std::vector<float> x(static_cast<std::size_t>(vocab));
    for (const auto kind : shapes) {
      fill(random, kind, x.data(), vocab);
      if (random.chance(30)) x[random.below(static_cast<std::uint32_t>(vocab))] = -infinite;
      auto sorted = x;
      std::sort(sorted.rbegin(), sorted.rend());
      for (std::int32_t k = 1; k <= vocab; k += 1 + vocab / 20)
        CHECK(kth_largest_avx2(x.data(), vocab, k) == sorted[static_cast<std::size_t>(k - 1)]);
      CHECK(kth_largest_avx2(x.data(), vocab, vocab + 1) == -infinite);
    }
  }
}

TEST_CASE("the AVX2 sum of exp is the reference's to 1e-13, with -inf and far tails") {
  if (!runs(isa::avx2)) return;
  dice random(24);
  for (const auto vocab : ragged) {
    std::vector<float> x(static_cast<std::size_t>(vocab)), maxima;
    for (const float scale : {1e-3f, 1.0f, 5.0f, 40.0f, 3000.0f, 1e37f}) {
      for (auto& one : x) one = random.chance(5) ? -infinite : scale * random.real(-1.0f, 1.0f);
      x[0] = 0.5f * scale;
      const auto view = view_of(x, maxima);
      const double expected = sum_exp_ref(view);
      CHECK(std::abs(sum_exp_avx2(view) - expected) <= 1e-13 * expected);
    }
  }
}

TEST_CASE("the list of best ids holds the first ranks and stays short") {
  if (!runs(isa::avx2)) return;
  dice random(25);
  for (const auto vocab : ragged) {
    std::vector<float> x(static_cast<std::size_t>(vocab)), maxima;
    for (const auto kind : shapes) {
      fill(random, kind, x.data(), vocab);
      std::vector<std::int32_t> order, found(x.size());
      for (std::int32_t id = 0; id < vocab; ++id) order.push_back(id);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return x[static_cast<std::size_t>(a)] > x[static_cast<std::size_t>(b)];
      });
      const auto view = view_of(x, maxima);
      for (const std::int32_t count : {1, 2, 5, 20}) {
        const auto size = list_best_avx2(view, count, found.data());
        REQUIRE(size <= std::min(vocab, std::max(group_ids * count + group_ids, group_ids * 20)));
        const std::vector<std::int32_t> list(found.begin(), found.begin() + size);
        for (std::int32_t i = 0; i < std::min(count, vocab); ++i)
          CHECK(std::count(list.begin(), list.end(), order[static_cast<std::size_t>(i)]) == 1);
      }
    }
  }
}

TEST_CASE(
  "the AVX2 argmax is the reference's: first of equals, NaN never, strides, any row count") {
  if (!runs(isa::avx2)) return;
  dice random(26);
  const float specials[] = {std::numeric_limits<float>::quiet_NaN(), infinite, -infinite, 0.0f,
                            -0.0f};
  for (const auto dim : ragged) {
    for (const std::int64_t rows : {0, 1, 2, 5, 33}) {
      const std::int64_t stride = dim + 3;
      std::vector<float> x(static_cast<std::size_t>(rows * stride), 1e38f);  // padding would win
      for (std::int64_t row = 0; row < rows; ++row) {
        auto* at = x.data() + row * stride;
        fill(random, random.one_of(shapes), at, dim);
        const auto special = random.below(120);
        for (std::int32_t i = 0; i < dim; ++i)
          if (random.chance(special)) at[i] = row % 2 == 0 ? specials[0] : random.one_of(specials);
      }
      std::vector<std::int32_t> ids(static_cast<std::size_t>(2 * rows + 1), -7);
      auto expected = ids;
      backward_team team(3);
      argmax_args args{x.data(), expected.data(), rows, dim, stride, 2};
      argmax_ref(stream_ref{}, args);
      args.id = ids.data();
      argmax_avx2(stream_ref{&team}, args);
      CHECK(ids == expected);
    }
  }
}

#endif
