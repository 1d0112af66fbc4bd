#include "runtime/model/step_inputs.hpp"

namespace deepinfer {

step_inputs::step_inputs(const runner_config& config)
  : slot(config.max_num_seqs),
    source(config.max_num_seqs),
    planned(config.max_num_seqs),
    token_begin(config.max_num_seqs + 1),
    fresh_begin(config.max_num_seqs),
    fresh(config.max_num_batched_tokens),
    table_begin(config.max_num_seqs),
    block_begin(config.max_num_seqs + 1),
    blocks(config.num_kv_blocks),
    yield_row(config.max_num_seqs),
    yield_slot(config.max_num_seqs),
    yield_token(config.max_num_seqs),
    start_slot(config.max_num_seqs),
    start_sampling(config.max_num_seqs) {}

void step_inputs::fill(const step_plan& plan) {
  for (auto* column : {&slot, &source, &planned, &token_begin, &fresh_begin, &fresh, &table_begin,
                       &block_begin, &blocks, &yield_row, &yield_slot, &yield_token, &start_slot})
    column->clear();
  start_sampling.clear();
  rows = plan.rows();
  tokens = 0;
  position_limit = 0;
  token_begin.put(0);
  block_begin.put(0);
  for (std::int32_t row = 0; row < rows; ++row) {
    const auto i = static_cast<std::size_t>(row);
    const auto width = plan.widths[i];
    const auto ids = plan.row_tokens(row);
    const bool is_fresh = plan.sources[i] == from_fresh;
    DI_CHECK(is_fresh ? std::ssize(ids) == width : ids.empty() && width == 1,
             "row {} from {}: {} tokens wide, {} host ids", row, plan.sources[i], width,
             ids.size());
    slot.put(plan.slots[i].value);
    source.put(plan.sources[i]);
    planned.put(plan.positions[i]);
    fresh_begin.put(fresh.size());
    for (const auto id : ids) fresh.put(id);
    table_begin.put(plan.table_begin[i]);
    for (const auto block : plan.row_blocks(row)) blocks.put(block.value);
    block_begin.put(blocks.size());
    if (plan.yields_max[i] > 0) {
      yield_row.put(row);
      yield_slot.put(plan.slots[i].value);
      yield_token.put(tokens + width - 1);
    }
    tokens += width;
    token_begin.put(tokens);
    position_limit = std::max(position_limit, std::int64_t{plan.positions[i]} + width);
  }
  yields = yield_row.size();
  for (const auto& start : plan.starts) start_slot.put(start.slot.value);
}

void step_inputs::copy_in() {
  for (auto* column : {&slot, &source, &planned, &token_begin, &fresh_begin, &fresh, &table_begin,
                       &block_begin, &blocks, &yield_row, &yield_slot, &yield_token, &start_slot})
    column->copy_in();
  start_sampling.copy_in();
}

}  // namespace deepinfer
