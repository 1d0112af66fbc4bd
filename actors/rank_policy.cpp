#include "actors/rank_policy.hpp"

namespace deepinfer {

static_assert(static_cast<int>(victim_setting::lowest_priority) ==
              static_cast<int>(victim_rule::lowest_priority));

scheduler_policy policy_of(const step_settings& engine) {
  scheduler_policy out;
  out.victim = static_cast<victim_rule>(engine.victim);
  out.preempt_output =
    engine.preempt_output == preempt_setting::drop ? preempt_rule::drop : preempt_rule::deliver;
  out.on_step_failure = engine.on_step_failure == failure_setting::retry ? failure_rule::retry
                                                                         : failure_rule::fail_rows;
  out.priority_preempts = engine.priority_preempts;
  out.stop_in_reasoning = engine.stop_in_reasoning;
  out.min_decode_gap = engine.min_decode_gap;
  out.max_prefill_run = engine.max_prefill_run;
  return out;
}

}  // namespace deepinfer
