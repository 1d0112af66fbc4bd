/// What the parts of the judge share; for actors/scenario/judge*.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "actors/scenario/oracle.hpp"
#include "actors/scenario/outcome.hpp"

namespace deepinfer {

/// Where a violation was seen; absent parts say nothing.
struct judge_spot {
  std::int64_t us = -1;
  std::int32_t rank = -1;
  std::int64_t step = 0;
  std::int32_t request = -1;
};

struct judge_context {
  const scenario& of;
  const scenario_case& it;
  const run_outcome& outcome;
  const std::vector<oracle_answer>& oracle;
  std::vector<violation>& found;

  const audit_log& log() const { return outcome.log; }
  const std::string& id_of(std::int32_t request) const {
    return of.requests[static_cast<std::size_t>(request)].id;
  }
  const oracle_answer& answer(std::int32_t request) const {
    return oracle[static_cast<std::size_t>(request)];
  }
  void add(std::string place, std::string name, const judge_spot& spot, std::string wanted,
           std::string seen) const {
    found.push_back({std::move(place), std::move(name), std::move(wanted), std::move(seen), spot.us,
                     spot.rank, spot.step, spot.request});
  }
};

/// Final records, tokens, logprobs, usage.
void judge_requests(const judge_context& context);
/// Rows, books, loop, groups.
void judge_steps(const judge_context& context);
/// One expectation, by its index.
void judge_expectation(const judge_context& context, std::size_t index);
/// A `never` that has arguments, over the entries before `until`.
void judge_never(const judge_context& context, const scenario_expectation& expectation,
                 std::size_t until);

std::string text_of(const scenario_bounds& bounds);

}  // namespace deepinfer
