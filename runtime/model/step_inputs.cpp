#include "runtime/model/step_inputs.hpp"

namespace deepinfer {

step_inputs::step_inputs(const runner_config& config)
  : slot(config.max_num_seqs),
    source(config.max_num_seqs),
    planned(config.max_num_seqs),
    width(config.max_num_seqs),
    fresh_begin(config.max_num_seqs),
    fresh(std::int64_t{config.max_num_batched_tokens} +
          std::int64_t{config.max_num_seqs} * config.num_drafts),
    table_begin(config.max_num_seqs),
    block_begin(config.max_num_seqs + 1),
    blocks(config.num_kv_blocks),
    start_slot(config.max_num_seqs),
    start_position(config.max_num_seqs),
    start_late(config.replay == replay_mode::off ? 0 : config.max_num_seqs),
    start_sampling(config.max_num_seqs),
    width_max_(1 + config.num_drafts) {}

void step_inputs::put_row(const step_plan& plan, std::int32_t row) {
  const auto i = static_cast<std::size_t>(row);
  const auto wide = plan.widths[i];
  const auto ids = plan.row_tokens(row);
  const bool is_fresh = plan.sources[i] == from_fresh;
  DI_CHECK(wide >= 1 && (is_fresh ? std::ssize(ids) == wide : ids.empty()),
           "row {} from {}: {} tokens wide, {} host ids", row, plan.sources[i], wide, ids.size());
  DI_CHECK(plan.kinds[i] == row_kind::prefill || wide <= width_max_,
           "decode row {} is {} tokens wide, at most {}", row, wide, width_max_);
  slot.put(plan.slots[i].value);
  source.put(plan.sources[i]);
  planned.put(plan.positions[i]);
  width.put(wide);
  fresh_begin.put(fresh.size());
  for (const auto id : ids) fresh.put(id);
  table_begin.put(plan.table_begin[i]);
  for (const auto block : plan.row_blocks(row)) blocks.put(block.value);
  block_begin.put(blocks.size());
  position_limit = std::max(position_limit, std::int64_t{plan.positions[i]} + wide);
}

void step_inputs::fill(const step_plan& plan) {
  for_each_column([](auto& column) { column.clear(); });
  rows = plan.rows();
  tokens = plan.total_width;
  position_limit = 0;
  block_begin.put(0);
  std::int64_t widest = 0;
  bool has_chunk = false;
  for (std::int32_t row = 0; row < rows; ++row) {
    put_row(plan, row);
    widest += plan.widths[static_cast<std::size_t>(row)];
    has_chunk = has_chunk || plan.kinds[static_cast<std::size_t>(row)] == row_kind::prefill;
  }
  DI_CHECK(tokens == widest || (!has_chunk && tokens >= rows && tokens < widest),
           "step {} has {} tokens for {} rows of {} in all", plan.step.value, tokens, rows, widest);
  moves.reserve(std::ssize(plan.moves));
  for (const auto& it : plan.moves) moves.put({it.block.value, it.host, it.to_host});
  for (const auto& start : plan.starts) {
    start_slot.put(start.slot.value);
    start_position.put(start.position);
  }
}

void step_inputs::copy_in() {
  for_each_column([](auto& column) { column.copy_in(); });
}

}  // namespace deepinfer
