#include "actors/scenario/judge_voids.hpp"

#include <algorithm>

namespace deepinfer {

void_rows::void_rows(const audit_log& log, const scenario_engine& engine)
  : log_(log),
    engine_(engine),
    requests_(log.requests()),
    writers_(static_cast<std::size_t>(log.ranks())) {}

// Whoever wrote a cached block before is told apart by number: a step that has settled is older
// than any that can still fail.
void void_rows::take_hits(const audit_step& step, const audit_row& row, request_state& state) {
  state.waits_for = 0;
  state.table.clear();
  const auto& writers = writers_[static_cast<std::size_t>(step.rank)];
  const auto hits =
    std::min(static_cast<std::size_t>(row.position / engine_.block_size), row.added.size());
  for (std::size_t i = 0; i < hits; ++i)
    if (const auto found = writers.find(row.added[i]); found != writers.end())
      state.waits_for = std::max(state.waits_for, found->second);
}

void void_rows::launch(const audit_step& step) {
  for (const auto& row : log_.rows(step)) {
    auto& state = requests_[static_cast<std::size_t>(row.request)];
    const bool is_first = state.rank != step.rank || state.epoch != row.epoch;
    state.rank = step.rank;
    state.epoch = row.epoch;
    if (!engine_.prefix_cache) continue;
    if (is_first) take_hits(step, row, state);
    // The engine may have taken back the tail of the table.
    state.table.resize(static_cast<std::size_t>(row.table_blocks) - row.added.size());
    state.table.insert(state.table.end(), row.added.begin(), row.added.end());
    auto& writers = writers_[static_cast<std::size_t>(step.rank)];
    const auto end = (row.position + row.width + engine_.block_size - 1) / engine_.block_size;
    for (auto i = row.position / engine_.block_size; i < std::min(end, row.table_blocks); ++i)
      writers[state.table[static_cast<std::size_t>(i)]] = step.step;
  }
}

void void_rows::fail(const audit_step& step) {
  for (const auto& row : log_.rows(step)) {
    auto& state = requests_[static_cast<std::size_t>(row.request)];
    state.void_below = std::max(state.void_below, row.epoch + 1);
  }
  for (auto& state : requests_)
    if (state.rank == step.rank && state.waits_for >= step.step)
      state.void_below = std::max(state.void_below, state.epoch + 1);
}

void void_rows::preempt(std::int32_t request, std::size_t order) {
  if (engine_.policy.preempt_output == scenario_preempt_output::drop)
    requests_[static_cast<std::size_t>(request)].preempted = order;
}

void void_rows::lose(std::int32_t rank) {
  for (auto& state : requests_)
    if (state.rank == rank) state = {};
  writers_[static_cast<std::size_t>(rank)].clear();
}

bool void_rows::gives_nothing(const audit_step& step, const audit_row& row,
                              std::size_t until) const {
  const auto& state = requests_[static_cast<std::size_t>(row.request)];
  if (row.epoch < state.void_below) return true;
  return state.preempted != no_index && step.plan_order <= state.preempted &&
         state.preempted < until;
}

}  // namespace deepinfer
