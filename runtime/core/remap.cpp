#include "runtime/core/remap.hpp"

#include <vector>

#include "runtime/base/check.hpp"

namespace deepinfer {

void check_remap(const step_plan& plan, const step_plan& newest) {
  std::vector<bool> taken(static_cast<std::size_t>(newest.rows()));
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const auto source = plan.sources[i];
    const bool owns_tokens = plan.token_begin[i] < plan.token_begin[i + 1];
    DI_CHECK(owns_tokens == (source == from_fresh), "row {} of step {}: source {}, {} host ids", i,
             plan.step.value, source, plan.token_begin[i + 1] - plan.token_begin[i]);
    if (source == from_fresh) continue;
    DI_CHECK(plan.kinds[i] == row_kind::decode, "chunk in row {} of step {} has source {}", i,
             plan.step.value, source);
    if (source == from_slot) continue;
    DI_CHECK(0 <= source && source < newest.rows(), "row {} of step {} names row {} of {}", i,
             plan.step.value, source, newest.rows());
    const auto from = static_cast<std::size_t>(source);
    DI_CHECK(!taken[from], "row {} of step {} is named twice", source, newest.step.value);
    taken[from] = true;
    DI_CHECK(newest.sequences[from] == plan.sequences[i],
             "row {} of step {} is sequence {}, its source {}", i, plan.step.value,
             plan.sequences[i].value, newest.sequences[from].value);
    DI_CHECK(newest.epochs[from] == plan.epochs[i],
             "row {} of step {} is of epoch {}, its source {}", i, plan.step.value, plan.epochs[i],
             newest.epochs[from]);
    DI_CHECK(newest.yields_max[from] > 0, "row {} of step {} was not sampled", source,
             newest.step.value);
  }
}

}  // namespace deepinfer
