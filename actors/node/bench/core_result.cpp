#include "actors/node/bench/core_result.hpp"

namespace deepinfer {

void make_result(const step_plan& plan, std::int32_t num_drafts, step_result& out) {
  out.clear();
  out.step = plan.step;
  out.sequences = plan.sequences;
  out.epochs = plan.epochs;
  out.widths = plan.widths;
  for (std::size_t row = 0; row < plan.sequences.size(); ++row) {
    const auto range = static_cast<std::uint64_t>(plan.yields_max[row] - plan.yields_min[row]) + 1;
    const auto more = static_cast<std::int32_t>((plan.step.value + row) % range);
    const auto given = static_cast<std::size_t>(plan.yields_min[row] + more);
    out.tokens.insert(out.tokens.end(), given, made_token);
    out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
  }
  if (num_drafts == 0) return;
  const auto drafts = plan.sequences.size() * static_cast<std::size_t>(num_drafts);
  out.drafts_per_row = num_drafts;
  out.drafts.assign(drafts, made_token);
  out.confidences.assign(drafts, 0.5f);
}

}  // namespace deepinfer
