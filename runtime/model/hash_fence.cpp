#include "runtime/model/hash_fence.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace deepinfer {

hash_fence::hash_fence(const runner_config& config, canary_log* log) : config_(config), log_(log) {
  reset();
}

void hash_fence::reset() {
  blocks_.assign(static_cast<std::size_t>(config_.num_kv_blocks), {});
  slots_.assign(static_cast<std::size_t>(config_.state_slots), {});
}

// `next` gets what `before` held until its newest step.
void hash_fence::check_user(const step_plan& plan, const user& next, const slot_use& before,
                            ring launched, std::string_view what, std::int32_t number) {
  if (before.newest.value == 0 || before.holder == next) return;
  const auto text = [&] {
    return fmt::format("step {}: {} {} goes to sequence {} epoch {}, but step {} still uses it for "
                       "sequence {} epoch {}",
                       plan.step.value, what, number, next.sequence.value, next.epoch,
                       before.newest.value, before.holder.sequence.value, before.holder.epoch);
  };
  if (before.newest == plan.step) log_->add("reused_before_fence", text());
  for (const auto& work : launched) {
    if (work->is_free || work->step_ != before.newest || work.use_count() == 1) continue;
    if (work->is_complete)
      log_->add("reused_before_fence", text());
    else
      work->suspect(text());
  }
}

void hash_fence::check(const step_plan& plan, ring launched) {
  for (std::size_t row = 0; row < plan.sequences.size(); ++row) {
    const auto slot = plan.slots[row];
    if (slot.value < 0 || slot.value >= std::ssize(slots_)) continue;
    const user next{slot, plan.sequences[row], plan.epochs[row]};
    auto& mine = slots_[static_cast<std::size_t>(slot.value)];
    const auto start = std::find_if(plan.starts.begin(), plan.starts.end(),
                                    [&](const slot_start& it) { return it.slot == slot; });
    if (start != plan.starts.end()) {
      check_user(plan, next, mine, launched, "slot", slot.value);
      mine.holder = next;
    }
    const auto hits = start == plan.starts.end() ? 0 : start->position / config_.block_size;
    auto ordinal = plan.table_begin[row];
    for (const auto block : plan.row_blocks(static_cast<std::int32_t>(row))) {
      const bool is_hit = ordinal++ < hits;
      if (block.value < 0 || block.value >= std::ssize(blocks_)) continue;
      auto& holder = blocks_[static_cast<std::size_t>(block.value)];
      if (!is_hit && holder.slot.value >= 0) {
        const auto& use_by_holder = slots_[static_cast<std::size_t>(holder.slot.value)];
        if (use_by_holder.holder == holder)
          check_user(plan, next, use_by_holder, launched, "block", block.value);
      }
      holder = next;
    }
    mine.newest = plan.step;
  }
}

}  // namespace deepinfer
