/// Holds a run against what is always true and what its scenario expects. Pure.
///
/// From the audit log: final records, tokens, logprobs and usage against the oracle; rows, budgets
/// and reserves of every launched step; the order of settling; waits and depth; kinds of a group's
/// ranks. Then every expectation that is meant in this case. What the player itself reported comes
/// first, with the place of the `never` it breaks, if there is one; it has ended the run, so that
/// missing final records and expectations are not held against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/scenario/outcome.hpp"
#include "config/scenario.hpp"
#include "config/scenario_cases.hpp"

namespace deepinfer {

/// Everything that is wrong, in the order found; empty: the run has passed. `it` is the case as it
/// was run, seeded.
std::vector<violation> judge(const scenario& of, const scenario_case& it,
                             const run_outcome& outcome);

/// Same tokens, logprobs and finish for every request; where either run aborted it, one list of
/// tokens is a prefix of the other.
std::vector<violation> compare_with_shadow(const scenario& of, const run_outcome& outcome,
                                           const run_outcome& shadow);

}  // namespace deepinfer
