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

// `next` gets what `before` held until step `newest`.
void hash_fence::check_user(const step_plan& plan, const user& next, const user& before,
                            step_id newest, ring launched, std::string_view what,
                            std::int32_t number) {
  if (newest.value == 0 || before == next) return;
  const auto text = [&] {
    return fmt::format("step {}: {} {} goes to sequence {} epoch {}, but step {} still uses it for "
                       "sequence {} epoch {}",
                       plan.step.value, what, number, next.sequence.value, next.epoch, newest.value,
                       before.sequence.value, before.epoch);
  };
  if (newest == plan.step) log_->add("reused_before_fence", text());
  for (const auto& work : launched) {
    if (work->is_free || work->step_ != newest || work.use_count() == 1) continue;
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
    const bool is_start = start != plan.starts.end();
    if (is_start) {
      check_user(plan, next, mine.holder, mine.newest, launched, "slot", slot.value);
      mine.holder = next;
      mine.table.clear();
    }
    check_blocks(plan, row, is_start ? start->position / config_.block_size : 0, mine, launched);
    mine.newest = plan.step;
  }
}

// A table only gets shorter in the middle of a life when its tail was returned.
void hash_fence::cut_table(slot_use& mine, std::int32_t end) {
  for (; std::ssize(mine.table) > end; mine.table.pop_back()) {
    if (!is_block(mine.table.back())) continue;
    auto& it = blocks_[static_cast<std::size_t>(mine.table.back().value)];
    if (it.holder == mine.holder) it.left = mine.newest;
  }
}

// The first `hits` blocks of the table came from the cache.
void hash_fence::check_blocks(const step_plan& plan, std::size_t row, std::int32_t hits,
                              slot_use& mine, ring launched) {
  const user next{plan.slots[row], plan.sequences[row], plan.epochs[row]};
  auto ordinal = plan.table_begin[row];
  cut_table(mine, ordinal);
  for (const auto block : plan.row_blocks(static_cast<std::int32_t>(row))) {
    const bool is_hit = ordinal++ < hits;
    mine.table.push_back(block);
    if (!is_block(block)) continue;
    auto& use = blocks_[static_cast<std::size_t>(block.value)];
    if (!is_hit && use.holder.slot.value >= 0) {
      const auto& slot_of_holder = slots_[static_cast<std::size_t>(use.holder.slot.value)];
      const auto newest = use.left.value > 0 ? use.left : slot_of_holder.newest;
      if (slot_of_holder.holder == use.holder)
        check_user(plan, next, use.holder, newest, launched, "block", block.value);
    }
    use = {next, {}};
  }
}

}  // namespace deepinfer
