/// Plays one case of a scenario: the product's actors and cores, a scripted model, device and
/// clients, on a virtual clock.
///
/// The player feeds the audit log (audit.hpp) and reports what only it can see by the names of
/// `scenario_properties()`: memory and state canaries, carry_split, published_unsettled,
/// counter_negative, blocks_not_conserved, not_empty_at_end, asleep_with_work_in_flight, stuck,
/// idle_while_runnable (rest_rules.hpp, publish_watch.hpp, world_metrics.cpp, the hash model). A
/// violation ends the run at once. It asks `audit_log::asked` at the moment of every expectation
/// that has one, and at the end for metrics that have none; metrics are sampled there, over all
/// ranks or the expectation's one, those in seconds as microseconds. The rest is the judge's
/// (judge.hpp).
/// Two runs of equal case, seed and interleaving do the same things in the same order.
#pragma once

#include <cstdint>

#include "actors/scenario/outcome.hpp"
#include "config/scenario.hpp"
#include "config/scenario_cases.hpp"

namespace deepinfer {

/// `it` has been seeded (config/scenario_cases.hpp) and passed check_engine. `interleaving` 0 keeps
/// the order of the language and draws no jitter.
run_outcome run_case(const scenario& of, const scenario_case& it, std::uint64_t seed,
                     std::int32_t interleaving);

}  // namespace deepinfer
