/// Numbers that follow from the audit log: the counts of expectations, and group steps.
///
/// Everything is counted over the entries before `until` (an order), so that a count with `at` or
/// `after` covers what has happened by then. Nothing here judges.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/scenario/audit.hpp"
#include "config/scenario.hpp"
#include "config/scenario_cases.hpp"

namespace deepinfer {

/// A step of a group: the steps of this number of all its ranks.
struct group_step {
  std::int64_t step = 0;
  step_kind kind = step_kind::empty;  ///< what ranks with rows do; mixed where they differ
  std::int64_t launched_us = 0;       ///< of the first rank
};

/// The steps of a group in the order of their numbers.
std::vector<group_step> group_steps(const audit_log& log, const scenario_engine& engine,
                                    std::int32_t group, std::size_t until);

/// Tokens that a row must have blocks for: those before it, its own and what its drafter writes.
std::int64_t reserved_tokens(const audit_row& row, const scenario_engine& engine);

/// Did the request end by stop or length, and behind which entry is its finishing step settled?
/// Nothing where it has not, or ended otherwise.
std::optional<std::size_t> end_order(const audit_log& log, std::int32_t request, std::size_t until);

/// What the client has been sent, each output once, in order of output.
std::vector<token_id> tokens_of(const audit_log& log, std::int32_t request, std::size_t until);
std::vector<float> logprobs_of(const audit_log& log, std::int32_t request, std::size_t until);

std::int64_t count_of(const audit_log& log, const scenario_case& it, const count_form& what,
                      std::optional<std::int32_t> rank, std::size_t until);

}  // namespace deepinfer
