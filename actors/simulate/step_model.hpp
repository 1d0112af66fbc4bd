/// How long a simulated device takes for a step, and which drafts a simulated model accepts.
///
///   forward = base + token * query tokens + row * rows + context * positions attended to
/// where a row attends to every position up to its last query's. For carried rows that have drafts
/// these are upper bounds, as the plan knows them: drafts count as accepted. Sampling takes
/// `sample`, and each copy, in and out, `copy`. Pure.
/// Errors: bad_config with what was found and what was expected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/plan.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// All in nanoseconds. The defaults stand for no machine: a step of some milliseconds.
struct step_model {
  double base_ns = 4e6;
  double token_ns = 10e3;
  double row_ns = 20e3;
  double context_ns = 1;
  double sample_ns = 200e3;
  double copy_ns = 20e3;

  std::int64_t forward_ns(const step_plan& plan) const;
  std::int64_t sampling_ns() const;
  std::int64_t copying_ns() const;
};

/// "base=4ms,token=10us,row=20us,context=1ns,sample=200us,copy=20us"; what is missing keeps its
/// default. Units: ns, us, ms, s; fractions are allowed; 0 needs no unit.
result<step_model> parse_step_model(std::string_view text);

/// The chance that each draft of a row is right if all before it are; the last one holds for
/// further drafts. Empty: every draft is right.
using acceptance_model = std::vector<double>;

/// "0.8,0.6,0.4", each from 0 to 1.
result<acceptance_model> parse_acceptance(std::string_view text);

/// Right drafts of each decode row of a request, as many as `rows`: a function of the seed, the
/// request's number and the row's (counted from the start of the request, or from where it went on
/// after a preemption) alone.
std::vector<std::int32_t> draw_acceptance(const acceptance_model& model, std::uint64_t seed,
                                          std::uint32_t request, std::int32_t rows,
                                          std::int32_t num_drafts);

}  // namespace deepinfer
