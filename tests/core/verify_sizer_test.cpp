#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "runtime/core/scheduler_core.hpp"
#include "runtime/core/verify_sizer.hpp"
#include "tests/core/death.hpp"
#include "tests/core/json_texts.hpp"
#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

using curve = std::vector<verify_sizer::measured_size>;
using row_list = std::vector<std::vector<float>>;

/// The worked example's: 10 to 16 ms.
const curve worked{{1, 10000}, {2, 10100}, {4, 10300}, {8, 10800}, {16, 12000}, {24, 16000}};

std::vector<verify_row> rows_of(const row_list& confidences, std::int32_t width) {
  std::vector<verify_row> rows;
  for (const auto& row : confidences) rows.push_back({row, width});
  return rows;
}

/// Most tokens that any split of `tokens` over the rows promises.
double expected_of(std::span<const verify_row> rows, std::int32_t tokens) {
  if (rows.empty()) return tokens == 0 ? 0.0 : -1e9;
  double best = -1e9, here = 1.0, survival = 1.0;
  for (std::int32_t width = 1; width <= rows[0].width && width <= tokens; ++width) {
    if (width > 1) {
      const auto draft = static_cast<std::size_t>(width) - 2;
      const auto& given = rows[0].confidences;
      survival *= draft < given.size() ? static_cast<double>(given[draft]) : 1.0;
      here += survival;
    }
    best = std::max(best, here + expected_of(rows.subspan(1), tokens - width));
  }
  return best;
}

double rate_of(const curve& sizes, std::span<const verify_row> rows, std::int32_t tokens,
               double slope_us, double sampler_us) {
  for (const auto& size : sizes)
    if (size.tokens >= tokens)
      return expected_of(rows, tokens) / (size.us + slope_us * size.tokens + sampler_us);
  return -1.0;
}

double naive_median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// Sampler times of steps that are larger than any curve here.
void observe_sampler(verify_sizer& sizer, std::int32_t rows, double us, int times) {
  for (int n = 0; n < times; ++n) sizer.observe(rows, 1000, 1.0, us);
}

}  // namespace

TEST_CASE("the worked example: expected tokens per time are greatest at 8 query tokens") {
  const row_list confidences{{0.9f, 0.8f / 0.9f, 0.7f / 0.8f, 0.6f / 0.7f, 0.5f / 0.6f},
                             {0.5f, 0.5f, 0.4f, 0.5f, 0.4f}};
  const auto rows = rows_of(confidences, 6);
  const std::map<std::int32_t, double> golden{{2, 0.1802}, {3, 0.2566}, {4, 0.3274},
                                              {5, 0.3729}, {6, 0.4237}, {7, 0.4661},
                                              {8, 0.5085}, {9, 0.4808}, {12, 0.4938}};
  for (const auto& [tokens, per_ms] : golden)
    CHECK(std::abs(1000 * rate_of(worked, rows, tokens, 0.0, 1000.0) - per_ms) < 0.00005);
  verify_sizer sizer(worked, 4, 5);
  observe_sampler(sizer, 2, 1000.0, 5);
  CHECK(sizer.sampler_us(2) == 1000.0);
  CHECK(sizer.slope_us() == 0.0);
  CHECK(sizer.total(rows) == 8);
  auto copy = sizer;  // each replica learns on from one
  CHECK(copy.total(rows) == 8);
  verify_sizer fresh(worked, 4, 5, 1000.0);
  CHECK(fresh.sampler_us(2) == 1000.0);
  CHECK(fresh.total(rows) == 8);
  observe_sampler(fresh, 2, 0.0, 1);
  CHECK(fresh.sampler_us(2) == 0.0);
}

TEST_CASE("a slow sampler makes more query tokens worth their time") {
  // 1 token in 100 us or 1.5 in 190: better only when each step also samples for a long time.
  const row_list half{{0.5f}};
  const curve sizes{{1, 100}, {2, 190}};
  CHECK(verify_sizer(sizes, 1, 1).total(rows_of(half, 2)) == 1);
  CHECK(verify_sizer(sizes, 1, 1, 79.0).total(rows_of(half, 2)) == 1);
  CHECK(verify_sizer(sizes, 1, 1, 81.0).total(rows_of(half, 2)) == 2);
}

TEST_CASE("without a curve everything is verified, and missing confidences count one") {
  const row_list none{{}, {}, {}};
  CHECK(verify_sizer({}, 3, 5).total(rows_of(none, 6)) == 18);
  CHECK(verify_sizer({}, 3, 5).total({}) == 0);
  verify_sizer sizer({{4, 100}, {8, 101}, {32, 1000}}, 3, 5);
  CHECK(sizer.total(rows_of(none, 6)) == 8);  // 18 tokens would take ten times as long
  CHECK(sizer.total(rows_of(none, 1)) == 3);  // nothing to choose
  CHECK(sizer.total(rows_of({{0.f}, {0.f}}, 2)) == 2);
  CHECK(sizer.total(rows_of({{0.5f}, {0.5f}}, 2)) == 4);
  const std::vector<verify_row> mixed{{{}, 3}, {{}, 1}, {{}, 2}};
  CHECK(sizer.total(mixed) == 6);
  CHECK(sizer.total({}) == 0);
}

TEST_CASE("sizes beyond the curve are not considered, not even for the rows themselves") {
  verify_sizer sizer({{1, 100}, {4, 110}}, 8, 3);
  CHECK(sizer.total(rows_of({{1, 1, 1}, {1, 1, 1}}, 4)) == 4);
  CHECK(sizer.total(rows_of(row_list(5), 4)) == 5);
}

TEST_CASE("the first of equal sizes is taken") {
  // 2 tokens in 100 us are as good as 4 in 200.
  verify_sizer sizer({{2, 100}, {3, 200}, {4, 200}}, 2, 1);
  CHECK(sizer.total(rows_of({{1}, {1}}, 2)) == 2);
  CHECK(verify_sizer({{2, 100}, {3, 200}, {4, 199}}, 2, 1).total(rows_of({{1}, {1}}, 2)) == 4);
}

TEST_CASE("confidences that are none count as the nearest that are") {
  verify_sizer sizer({{1, 100}, {2, 110}, {3, 120}, {4, 130}}, 1, 3);
  const auto total = [&](std::vector<float> row) { return sizer.total(rows_of({row}, 4)); };
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(total({7.0f, 1.0f, 1.0f}) == 4);
  CHECK(total({-1.0f, -1.0f, 1.0f}) == 1);  // a product of two would be a good one
  CHECK(total({1.0f, nan, 1.0f}) == 2);
  CHECK(verify_sizer({{1, 100}, {2, 250}}, 1, 1).total(rows_of({{7.0f}}, 2)) == 1);
}

TEST_CASE("the total is the one that trying every split of every size finds") {
  draws random(21);
  for (int n = 0; n < 3000; ++n) {
    curve sizes;
    std::int32_t tokens = 0;
    for (auto more = random.below(7); more > 0; --more) {
      tokens += static_cast<std::int32_t>(1 + random.below(4));
      sizes.push_back({tokens, static_cast<double>(64 + random.below(256))});
    }
    verify_sizer sizer(sizes, 3, 4);
    observe_sampler(sizer, 1, 16.0 * static_cast<double>(random.below(4)), 1);
    row_list confidences(1 + random.below(3));
    std::vector<verify_row> rows;
    std::int32_t widest = 0;
    for (auto& row : confidences) {
      for (auto drafts = random.below(5); drafts > 0; --drafts)
        row.push_back(random.one_of(std::vector<float>{0.0f, 0.25f, 0.5f, 0.75f, 1.0f}));
      rows.push_back({row, static_cast<std::int32_t>(1 + random.below(5))});
      widest += rows.back().width;
    }
    const auto sampler = sizer.sampler_us(static_cast<std::int32_t>(rows.size()));
    auto best = static_cast<std::int32_t>(rows.size());
    for (auto b = best + 1; b <= widest; ++b)
      if (rate_of(sizes, rows, b, 0.0, sampler) > rate_of(sizes, rows, best, 0.0, sampler))
        best = b;
    CHECK(sizer.total(rows) == (sizes.empty() ? widest : best));
  }
}

TEST_CASE("the slope is the median over sizes of their median error per token, at least 0") {
  verify_sizer sizer({{4, 100}, {8, 100}, {16, 100}}, 4, 8);
  const auto add = [&](std::int32_t tokens, double us, int times) {
    for (int n = 0; n < times; ++n) sizer.observe(1, tokens, us, 1.0);
  };
  add(3, 104, 9);
  CHECK(sizer.slope_us() == 0.0);  // nine samples are too few
  add(4, 104, 1);
  CHECK(sizer.slope_us() == 1.0);
  add(5, 124, 10);  // of 8
  CHECK(sizer.slope_us() == 2.0);
  add(8, 999, 9);
  CHECK(sizer.slope_us() == 2.0);
  add(16, 100 + 16 * 7, 10);
  CHECK(sizer.slope_us() == 3.0);
  add(17, 9999, 20);  // beyond the curve
  CHECK(sizer.slope_us() == 3.0);
  add(16, 0, 11);
  CHECK(sizer.slope_us() == 1.0);
  add(8, 0, 20);
  CHECK(sizer.slope_us() == 0.0);  // the median is below it
  // The slope moves the choice to fewer tokens.
  verify_sizer steep({{1, 100}, {2, 101}}, 1, 1);
  const row_list half{{0.5f}};
  CHECK(steep.total(rows_of(half, 2)) == 2);
  for (int n = 0; n < 10; ++n) steep.observe(1, 1, 1100, 0.0);
  CHECK(steep.slope_us() == 1000.0);
  CHECK(steep.total(rows_of(half, 2)) == 1);
}

TEST_CASE("medians over a window are those of the latest values, whatever has been added") {
  draws random(22);
  for (const std::size_t size : {1u, 2u, 7u, 50u}) {
    window_medians window(5, size);
    std::deque<std::pair<std::size_t, double>> latest;
    for (int n = 0; n < 1000; ++n) {
      const auto key = static_cast<std::size_t>(random.below(random.chance(50) ? 5 : 2));
      const auto value = static_cast<double>(random.below(20)) - 10;  // equal ones are likely
      window.add(key, value);
      latest.emplace_back(key, value);
      if (latest.size() > size) latest.pop_front();
      for (std::size_t k = 0; k < 5; ++k) {
        std::vector<double> values;
        for (const auto& it : latest)
          if (it.first == k) values.push_back(it.second);
        REQUIRE(window.count(k) == values.size());
        if (!values.empty()) REQUIRE(window.median(k) == naive_median(values));
      }
    }
  }
  CHECK(death_message([] { window_medians(2, 3).median(1); }).find("median of nothing") !=
        std::string::npos);
}

TEST_CASE("a sample counts for the slope for 5000 steps") {
  verify_sizer sizer({{4, 100}, {8, 100}}, 4, 8);
  for (int n = 0; n < 10; ++n) sizer.observe(1, 4, 140, 1.0);
  for (int n = 0; n < 4990; ++n) sizer.observe(1, 8, 100, 1.0);
  CHECK(sizer.slope_us() == 5.0);
  sizer.observe(1, 8, 100, 1.0);
  CHECK(sizer.slope_us() == 0.0);
}

TEST_CASE("the sampler's time is the median of the last nine of as many rows, else of any") {
  verify_sizer sizer(worked, 8, 5);
  CHECK(sizer.sampler_us(3) == 0.0);
  draws random(23);
  std::map<std::int32_t, std::vector<double>> of_rows;
  std::vector<double> all;
  const auto last = [](const std::vector<double>& from) {
    const auto n = std::min<std::size_t>(from.size(), 9);
    return naive_median({from.end() - static_cast<std::ptrdiff_t>(n), from.end()});
  };
  for (int n = 0; n < 400; ++n) {
    const auto rows = static_cast<std::int32_t>(1 + random.below(8));
    const auto us = static_cast<double>(random.below(1000));
    // Steps that are larger than the curve still say how long sampling takes.
    sizer.observe(rows, random.chance(50) ? 1000 : 8, 10000.0, us);
    of_rows[rows].push_back(us);
    all.push_back(us);
    for (std::int32_t r = 1; r <= 8; ++r)
      CHECK(sizer.sampler_us(r) == last(of_rows[r].size() >= 5 ? of_rows[r] : all));
  }
}

TEST_CASE(
  "a curve that is none, or more rows and drafts than announced, is an error of the program") {
  const auto dies = [](auto act, const char* why) {
    CHECK(death_message(act).find(why) != std::string::npos);
  };
  dies([] { verify_sizer({{2, 10}, {2, 11}}, 1, 1); }, "2 tokens after 2");
  dies([] { verify_sizer({{0, 10}}, 1, 1); }, "0 tokens after 0");
  dies([] { verify_sizer({{1, 0}}, 1, 1); }, "in 0 us");
  dies([] { verify_sizer({}, 1, 1, -1.0); }, "a sampler of -1 us");
  dies([] { verify_sizer({{1, 1}}, 2, 1).total(rows_of(row_list(3), 2)); }, "more than 2 drafts");
  dies([] { verify_sizer({{1, 1}}, 2, 1).observe(3, 3, 1, 1); }, "3 rows");
}

TEST_CASE("a step's size does not depend on confidences of the drafts it decides about: they are "
          "max(2, depth) steps old [I33]") {
  for (std::int32_t depth = 1; depth <= 3; ++depth) {
    CAPTURE(depth);
    verify_sizer sizer({{1, 100.0}, {4, 130.0}}, 1, 3);
    auto config = small_config();
    config.depth = depth;
    config.num_drafts = 3;
    scheduler_core core(config, {.sizer = &sizer});
    sampling_params params;
    params.max_tokens = 100;
    core.submit({{1},
                 std::make_shared<const std::vector<token_id>>(3, 9),
                 std::make_shared<const sampling_params>(params),
                 0},
                0);
    kv_grant all;
    for (std::int32_t i = 0; i < 40; ++i) all.blocks.push_back({i});
    all.slots = {{0}};
    core.grant(all);
    const auto lag = static_cast<std::uint64_t>(std::max(2, depth));
    const auto are_bad = [](std::uint64_t step) { return step % 5 < 2; };
    for (std::uint64_t step = 1; step <= 20; ++step) {
      CAPTURE(step);
      step_plan plan;
      REQUIRE(core.plan(plan));  // all before it has settled: newer confidences are there
      if (step > 1) CHECK(plan.total_width == (step > lag && are_bad(step - lag) ? 1 : 4));
      step_result result{plan.step, errc::ok, plan.sequences, plan.epochs, {0, 1}, {9}};
      result.drafts_per_row = 3;
      result.drafts = {9, 9, 9};
      result.confidences.assign(3, are_bad(step) ? 0.01f : 0.99f);
      core.settle(result);
    }
  }
}
