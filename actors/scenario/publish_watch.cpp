#include "actors/scenario/publish_watch.hpp"

#include <fmt/format.h>

#include "runtime/base/error.hpp"

namespace deepinfer {

void publish_watch::launched(const step_plan& plan) {
  auto& rows = launched_[plan.step];
  rows.clear();
  for (std::int32_t row = 0; row < plan.rows(); ++row) {
    const auto i = static_cast<std::size_t>(row);
    auto [at, is_new] = tables_.try_emplace(plan.sequences[i]);
    auto& it = at->second;
    if (is_new || it.epoch != plan.epochs[i]) {
      it = {};
      it.epoch = plan.epochs[i];
      it.committed = plan.positions[i];  // behind what the cache gave
      it.full = static_cast<std::size_t>(it.committed / block_size_);
    }
    const auto first = static_cast<std::size_t>(plan.table_begin[i]);
    const auto added = plan.row_blocks(row);
    if (!added.empty()) it.blocks.resize(first);
    it.blocks.insert(it.blocks.end(), added.begin(), added.end());
    for (std::size_t k = 0; k < added.size(); ++k)
      if (first + k >= it.full) full_.erase(added[k]);
    rows.push_back({plan.sequences[i], plan.epochs[i], plan.kinds[i], plan.widths[i]});
  }
}

void publish_watch::settle_row(const launched_row& row, bool has_failed, std::int32_t tokens) {
  const auto found = tables_.find(row.sequence);
  if (found == tables_.end() || found->second.epoch != row.epoch) return;
  auto& it = found->second;
  it.is_void = it.is_void || has_failed;
  if (it.is_void) return;
  it.committed += row.kind == row_kind::prefill ? row.width : tokens;
  for (; it.full < it.blocks.size(); ++it.full) {
    if (static_cast<std::int64_t>(it.full + 1) * block_size_ > it.committed) return;
    full_.insert(it.blocks[it.full]);
  }
}

void publish_watch::settled(const step_result& done) {
  const auto found = launched_.find(done.step);
  if (found == launched_.end()) return;  // told twice, or of a rank that is gone
  const bool has_failed = done.code != errc::ok;
  if (has_failed) failed_.insert(done.step);
  const auto& rows = found->second;
  for (std::size_t i = 0; i < rows.size(); ++i)
    settle_row(rows[i], has_failed, has_failed ? 0 : done.token_begin[i + 1] - done.token_begin[i]);
  launched_.erase(found);
}

void publish_watch::told(const kv_reserve& want) {
  const auto& names = want.publish;
  for (std::size_t i = 0; i < names.blocks.size(); ++i) {
    const auto block = names.blocks[i];
    const auto step = names.pending[i];
    if (step.value > 0) {
      pending_[block] = step;
      continue;
    }
    pending_.erase(block);
    if (!broken_ && !full_.contains(block))
      broken_ = fmt::format("block {} is named for good, and its positions have not all settled",
                            block.value);
  }
  for (const auto step : want.retract)
    std::erase_if(pending_, [step](const auto& it) { return it.second == step; });
}

void publish_watch::freed(std::span<const block_id> blocks) {
  for (const auto block : blocks) {
    full_.erase(block);
    pending_.erase(block);
  }
}

void publish_watch::forget() {
  tables_.clear();
  launched_.clear();
  full_.clear();
  pending_.clear();
  failed_.clear();
}

std::optional<std::string> publish_watch::broken() const {
  if (broken_) return broken_;
  for (const auto& [block, step] : pending_)
    if (failed_.contains(step))
      return fmt::format("block {} keeps the name that it got from step {}, which has failed",
                         block.value, step.value);
  return std::nullopt;
}

}  // namespace deepinfer
