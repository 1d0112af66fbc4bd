// A case's settings in the words of the engine.
#include <algorithm>

#include "actors/scenario/world_rank.hpp"

namespace deepinfer {

scheduler_policy policy_of(const scenario_policy& policy, const scenario_vote& vote) {
  scheduler_policy out;
  out.victim = static_cast<victim_rule>(policy.victim);
  out.preempt_output = static_cast<preempt_rule>(policy.preempt_output);
  out.on_step_failure = static_cast<failure_rule>(policy.on_step_failure);
  out.priority_preempts = policy.priority_preempts;
  out.stop_in_reasoning = policy.stop_in_reasoning;
  out.used_share_max = vote.used_share_max;
  out.min_decode_gap = vote.min_decode_gap;
  return out;
}

static_assert(static_cast<int>(scenario_victim::lowest_priority) ==
              static_cast<int>(victim_rule::lowest_priority));
static_assert(static_cast<int>(scenario_preempt_output::drop) ==
              static_cast<int>(preempt_rule::drop));
static_assert(static_cast<int>(scenario_step_failure::retry) ==
              static_cast<int>(failure_rule::retry));

scheduler_config scheduler_config_of(const scenario& of, const scenario_case& it,
                                     std::int32_t rank) {
  const auto& e = it.engine;
  scheduler_config out;
  out.rank = {rank};
  out.depth = out.max_depth = e.depth;
  for (const auto& action : of.actions)
    if (const auto* set = std::get_if<set_verb>(&action.verb); set && set->depth)
      out.max_depth = std::max(out.max_depth, *set->depth);
  out.num_drafts = e.num_drafts;
  out.draft_overhang = e.draft_overhang;
  out.draft_trim = e.draft_trim == scenario_draft_trim::max_tokens ? trim_rule::max_tokens
                                                                   : trim_rule::length_limit;
  out.max_num_seqs = e.max_num_seqs;
  out.max_num_batched_tokens = e.max_num_batched_tokens;
  out.chunk_size = e.chunk_size;
  out.max_model_len = e.max_model_len;
  out.num_kv_blocks = e.blocks_of(rank);
  out.block_size = e.block_size;
  out.state_slots = e.slots();
  out.eos = hash_stop_id;
  out.think_end = hash_end_of_reasoning_id;
  out.vocab_size = it.model.vocab;
  out.first_id = 1;
  out.mixed_steps = e.mixed_steps;
  out.prefix_cache = e.prefix_cache;
  out.graph_buckets = e.graph_buckets;
  out.policy = policy_of(e.policy, e.vote);
  return out;
}

}  // namespace deepinfer
