// The state of the whole world, for walks that visit each one once, and what only such walks do.
#include "runtime/core/state_digest.hpp"
#include "tests/core/rank_world.hpp"

namespace deepinfer::test {

namespace {

void describe(const lease_return& leases, state_digest& out) {
  out.add(leases.settled);
  for (const auto& entry : leases.entries) {
    out.add(entry.fence);
    out.add(entry.blocks);
    out.add(entry.slots);
  }
}

void describe(const kv_reserve& want, state_digest& out) {
  for (const auto number : {want.blocks, want.slots, want.evict}) out.add(number);
  out.add(want.must_answer);
  out.add(want.publish.blocks);
  for (const auto step : want.publish.pending) out.add_exactly(step);
  for (const auto step : want.retract) out.add_exactly(step);
  for (const auto& lookup : want.lookups) {
    out.add(lookup.sequence);
    out.add(lookup.epoch);
    out.add(std::uint64_t{lookup.keys.size()});
  }
}

void describe(const kv_grant& grant, state_digest& out) {
  out.add(grant.blocks);
  out.add(grant.slots);
  for (const auto& hit : grant.hits) {
    out.add(hit.sequence);
    out.add(hit.epoch);
    out.add(hit.blocks);
    out.add_exactly(hit.pending_first);
    out.add_exactly(hit.pending_last);
  }
}

void describe(const step_plan& plan, state_digest& out) {
  out.add(plan.step);
  out.add(plan.sequences);
  out.add(plan.epochs);
  out.add(plan.slots);
  for (const auto* column : {&plan.sources, &plan.widths, &plan.positions, &plan.yields_max,
                             &plan.yields_min, &plan.tokens, &plan.table_begin})
    out.add(*column);
  out.add(plan.blocks);
  for (const auto& start : plan.starts) {
    out.add(start.slot);
    out.add(start.sequence);
    out.add(start.position);
  }
}

}  // namespace

// Numbers that only `check_end` reads count as far as it looks at them.
void rank_world::describe(const request_view& view, state_digest& out) const {
  out.add(view.got);
  out.add(view.finals);
  out.add(static_cast<std::int32_t>(view.finish.reason));
  for (const bool flag :
       {view.was_aborted, view.had_failure, view.preemptions > 0, view.launches > 0})
    out.add(flag);
  out.add(view.inflight_min);
  out.add(view.inflight_max);
  out.add(view.epoch);
  out.add(view.delivers);
  out.add(view.overrun_rows);
  out.add(view.first_yield_step == 0  ? 0
          : view.first_token_step > 0 ? 1 + (view.first_token_step != view.first_yield_step)
          : view.first_yield_step > settled_
            ? 3 + static_cast<std::int32_t>(view.first_yield_step - settled_)
            : 3);
}

std::pair<std::uint64_t, std::uint64_t> rank_world::digest() const {
  state_digest out(config_.num_kv_blocks, config_.state_slots, {settled_});
  core_.describe(out);
  collector_.describe(out);
  for (const auto& [id, view] : views_) describe(view, out);
  for (const auto& [id, table] : host_tables_) {
    out.add(id);
    out.add(table);
  }
  for (const auto& message : to_collector_) {
    test::describe(message.leases, out);
    out.add(message.asks_before - asks_taken_);
  }
  for (const auto& message : to_pool_) {
    out.add(message.blocks);
    out.add(message.slots);
  }
  for (const auto& message : asks_) test::describe(message, out);
  for (const auto& message : grants_) test::describe(message, out);
  for (const auto count :
       {to_collector_.size(), to_pool_.size(), asks_.size(), grants_.size(), flying_.size()})
    out.add(std::uint64_t{count});
  for (const auto& step : flying_) test::describe(step.plan, out);
  // `complete` and `check_remap` look at the newest steps only.
  out.add(newest_.step);
  out.add(newest_.step.value == launched_);
  out.add(newest_.sequences);
  out.add(newest_.epochs);
  out.add(newest_.yields_max);
  out.add(step_id{sampled_step_});
  if (sampled_step_ == settled_) {
    for (const auto& it : sampled_) {
      out.add(it.last);
      out.add(it.drafts);
    }
  }
  pool_.describe(out);
  for (const auto slot : out.slots_in_order()) {
    const auto& it = slots_[static_cast<std::size_t>(slot.value)];
    out.add(it.sequence);
    out.add(it.epoch);
    for (const auto number : {it.length, it.prompt}) out.add(number);
    out.add(it.last);
    out.add(it.drafts);
    const auto view = views_.find(it.sequence.value);
    out.add(std::uint64_t{view == views_.end() ? 0 : it.decode_rows % view->second.accept.size()});
    out.add(it.table);
    out.add(it.has_failed);
  }
  for (const auto block : out.blocks_in_order()) {
    const auto first = static_cast<std::size_t>(block.value * config_.block_size);
    for (std::int32_t i = 0; i < config_.block_size; ++i) {
      const auto& at = cells_[first + static_cast<std::size_t>(i)];
      out.add(at.position);
      out.add(at.chain);
      out.add(at.is_void);
    }
  }
  return out.value();
}

std::int64_t rank_world::waiting(std::int32_t channel) const {
  const std::size_t sizes[] = {to_collector_.size(), to_pool_.size(), asks_.size(), grants_.size()};
  return static_cast<std::int64_t>(sizes[channel]);
}

void rank_world::settle_again() {
  step_result late;
  late.clear();
  late.step = {settled_};
  core_.settle(late);
  send();
}

}  // namespace deepinfer::test
