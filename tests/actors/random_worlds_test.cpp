// Random worlds through the product's actors on a virtual clock: whatever comes together, the judge
// finds every token, end, row, reserve and block as the rules want them.
// One world alone: DEEPINFER_TEST_SEED=N actors_test -tc="random worlds*".
#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "actors/scenario/judge.hpp"
#include "actors/scenario/report.hpp"
#include "actors/scenario/world.hpp"
#include "config/scenario_cases.hpp"
#include "config/scenario_engine_check.hpp"
#include "tests/actors/random_world.hpp"
#include "tests/support/effort.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// What is wrong with the world, as lines; empty: nothing.
std::string play(std::uint64_t seed, world_counts& counts) {
  const auto of = random_world(seed);
  const auto it = seeded(of, cases_of(of).front(), of.seed);
  if (const auto checked = check_engine(it.engine, it.model); !checked)
    return checked.error().message;
  const auto interleaving = static_cast<std::int32_t>(seed % 1000);
  const auto outcome = run_case(of, it, of.seed, interleaving);
  counts.add(outcome.log);
  const auto found = judge(of, it, outcome);
  if (found.empty()) return {};
  return failure_text(of, {"", seed, interleaving}, found, outcome.log) +
         "repeat it with DEEPINFER_TEST_SEED=" + std::to_string(seed) +
         " actors_test -tc=\"random worlds*\"\n";
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t steps_usual = 100'000;
#else
constexpr std::int64_t steps_usual = 1'000'000;
#endif

std::optional<std::uint64_t> only_seed() {
  const char* given = std::getenv("DEEPINFER_TEST_SEED");
  if (!given) return {};
  return std::strtoull(given, nullptr, 10);
}

}  // namespace

TEST_CASE("random worlds of the product's actors give every token once and keep every book") {
  world_counts seen;
  if (const auto only = only_seed()) {
    const auto wrong = play(*only, seen);
    CHECK_MESSAGE(wrong.empty(), wrong);
    return;
  }
  const auto steps_wanted = with_effort(steps_usual);
  for (std::uint64_t seed = 1; seen.steps < steps_wanted; ++seed) {
    const auto wrong = play(seed, seen);
    REQUIRE_MESSAGE(wrong.empty(), "seed " << seed << "\n" << wrong);
  }
  MESSAGE(seen.text());
  const auto least = steps_usual / 1000;
  CHECK(seen.live >= 6 * seen.steps);
  CHECK(seen.preemptions >= least);
  CHECK(seen.aborts >= least);
  CHECK(seen.hits >= least);
  CHECK(seen.reuses >= least);
  CHECK(seen.failed_steps >= least / 10);
  CHECK(seen.overruns >= least);
}
