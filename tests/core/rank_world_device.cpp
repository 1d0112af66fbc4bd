// The played device: rows read their prefix through the table they were given, write, choose and
// draft.
#include <algorithm>

#include "tests/core/rank_world.hpp"

namespace deepinfer::test {

// What the row gives will be dropped.
bool rank_world::is_doomed(const step_plan& plan, std::size_t row) const {
  const auto* it = core_.find(plan.sequences[row]);
  if (!it || it->phase == sequence_phase::ended) return true;
  const bool is_delivered = it->phase == sequence_phase::preempted;
  return plan.epochs[row] + (is_delivered ? 1 : 0) != it->ledger.epoch();
}

void rank_world::read_prefix(const step_plan& plan, std::size_t row, const device_slot& slot) {
  auto& view = views_.at(slot.sequence.value);
  if (slot.has_failed) return;  // it holds whatever came behind the failure
  for (std::int64_t p = 0; p < slot.length; ++p) {
    const auto ordinal = static_cast<std::size_t>(p / config_.block_size);
    if (ordinal >= slot.table.size())
      return require(false, "[I10] step {} reads position {} of a table of {}", plan.step.value, p,
                     slot.table.size());
    const auto& it = cells_[static_cast<std::size_t>(
      slot.table[ordinal].value * config_.block_size + p % config_.block_size)];
    truth(view, p);
    if (it.is_void) on_void_[row] = true;
    require(!it.is_void || is_doomed(plan, row),
            "[I48][I49] step {}: sequence {} stands on position {}, which a failed step was to "
            "write",
            plan.step.value, slot.sequence.value, p);
    require(it.position == p && it.chain == view.chains[static_cast<std::size_t>(p)],
            "[I17][I32] step {}: block {} holds position {} chain {:#x}, sequence {} wants {}: "
            "{:#x}",
            plan.step.value, slot.table[ordinal].value, it.position, it.chain, slot.sequence.value,
            p, view.chains[static_cast<std::size_t>(p)]);
  }
}

void rank_world::write(const step_plan& plan, device_slot& slot, std::int64_t position,
                       token_id id) {
  require(0 <= id && id < vocab, "[I27] step {} is fed id {}", plan.step.value, id);
  require(position <= config_.max_model_len - 2, "[I11] step {} writes position {}",
          plan.step.value, position);
  const auto ordinal = static_cast<std::size_t>(position / config_.block_size);
  if (ordinal >= slot.table.size())
    return require(false, "[I10] step {} writes position {} of a table of {}", plan.step.value,
                   position, slot.table.size());
  const auto block = slot.table[ordinal];
  require(pool_.references(block) > 0, "[I17] step {} writes free block {}", plan.step.value,
          block.value);
  const auto index_of = [&](std::int64_t p) {
    const auto in_table = static_cast<std::size_t>(p / config_.block_size);
    return static_cast<std::size_t>(slot.table[in_table].value * config_.block_size +
                                    p % config_.block_size);
  };
  const auto before = position > 0 ? cells_[index_of(position - 1)] : cell{-1, mix(seed_), false};
  written_.push_back(index_of(position));
  cells_[written_.back()] = {position, next_chain(before.chain, id), before.is_void};
  written_end = std::max(written_end, position + 1);
}

std::vector<token_id> rank_world::row_ids(const step_plan& plan, std::size_t row,
                                          const device_slot& slot) {
  const auto source = plan.sources[row];
  if (source == from_fresh) {
    const auto ids = plan.row_tokens(static_cast<std::int32_t>(row));
    return {ids.begin(), ids.end()};
  }
  const bool in_newest =
    sampled_step_ + 1 == plan.step.value && source < static_cast<std::int32_t>(sampled_.size());
  require(source == from_slot || in_newest, "[I26] step {} names row {} of step {}",
          plan.step.value, source, sampled_step_);
  if (source >= 0 && in_newest) {
    const auto& from = sampled_[static_cast<std::size_t>(source)];
    require(from.last == slot.last && from.drafts == slot.drafts,
            "[I26][I29] step {}: row gives id {}, the slot {}", plan.step.value, from.last,
            slot.last);
  }
  std::vector<token_id> ids{slot.last};
  const auto drafts = std::min(slot.drafts.size(), static_cast<std::size_t>(plan.widths[row] - 1));
  ids.insert(ids.end(), slot.drafts.begin(), slot.drafts.begin() + std::ptrdiff_t(drafts));
  return ids;
}

void rank_world::make_drafts(request_view& view, device_slot& slot) {
  const auto accept = view.accept[slot.decode_rows % view.accept.size()];
  slot.drafts.clear();
  for (std::int32_t i = 0; i < config_.num_drafts; ++i) {
    const auto right = truth(view, slot.length + 1 + i);
    slot.drafts.push_back(i < accept ? right : word(mix(static_cast<std::uint64_t>(right) + 1)));
  }
}

// The id at `position`, or none where the request is to fail. Behind a failure anything may come:
// an id, or a failure again.
bool rank_world::choose(request_view& view, device_slot& slot, std::int64_t position,
                        std::vector<token_id>& given) const {
  const auto output = position - std::ssize(*view.request.prompt) + 1;
  const bool fails =
    slot.has_failed ? position % 2 == 0 : view.fails_at > 0 && output == view.fails_at;
  if (!fails) given.push_back(truth(view, position));
  slot.has_failed = slot.has_failed || fails;
  return !fails;
}

std::vector<token_id> rank_world::run_row(const step_plan& plan, std::size_t row, device_slot& slot,
                                          row_error& error) {
  const auto id = plan.sequences[row];
  require(slot.sequence == id && slot.epoch == plan.epochs[row],
          "[I17] step {}: slot {} is of sequence {}, not {}", plan.step.value,
          plan.slots[row].value, slot.sequence.value, id.value);
  const bool is_chunk = plan.sources[row] == from_fresh;
  require(is_chunk ? plan.positions[row] == slot.length : plan.positions[row] >= slot.length,
          "[I05][I33] step {} plans position {}, the device is at {}", plan.step.value,
          plan.positions[row], slot.length);
  // Behind where it begins is a tail that was returned.
  const auto begin = static_cast<std::size_t>(plan.table_begin[row]);
  require(begin <= slot.table.size(), "[I25] ordinal {} of a table of {} is written", begin,
          slot.table.size());
  slot.table.resize(std::min(begin, slot.table.size()));
  for (const auto block : plan.row_blocks(static_cast<std::int32_t>(row)))
    slot.table.push_back(block);
  auto& view = views_.at(id.value);
  read_prefix(plan, row, slot);
  const auto ids = row_ids(plan, row, slot);
  for (std::size_t i = 0; i < ids.size(); ++i)
    write(plan, slot, slot.length + static_cast<std::int64_t>(i), ids[i]);
  if (is_chunk) slot.length += std::ssize(ids);
  if (plan.yields_max[row] == 0) return {};
  std::vector<token_id> given;
  bool is_whole = true;
  if (is_chunk) {
    is_whole = choose(view, slot, slot.length, given);
  } else {
    for (std::size_t i = 0; i < ids.size() && is_whole; ++i) {
      is_whole = choose(view, slot, slot.length + 1, given);
      ++slot.length;
      if (is_whole && i + 1 < ids.size() && ids[i + 1] != given.back()) break;
    }
    ++slot.decode_rows;
  }
  if (!is_whole) error = view.fails_with;
  slot.last = is_whole ? given.back() : 0;  // an id that may be looked up
  make_drafts(view, slot);
  for (std::int32_t i = 0; i < config_.draft_overhang; ++i)
    if (slot.length + i <= config_.max_model_len - 2)
      write(plan, slot, slot.length + i, truth(view, slot.length + i));
  return given;
}

std::span<rank_world::cell> rank_world::home_cells(std::size_t home) {
  const auto size = static_cast<std::size_t>(config_.block_size);
  return std::span(cells_).subspan(home * size, size);
}

void rank_world::note_unknown(std::size_t home, std::uint64_t since) {
  const auto cells = home_cells(home);
  unknown_.push_back({home, since, {cells.begin(), cells.end()}});
}

// A step's moves may have been done though it failed, so what it moved stays readable for the steps
// that were launched before that was known; none behind them may rely on it, nor on copies of it.
void rank_world::run_moves(const step_plan& plan) {
  std::erase_if(unknown_, [&](const unknown_home& it) {
    const auto cells = home_cells(it.home);
    if (!std::ranges::equal(cells, it.was)) return true;
    if (plan.step.value <= it.since) return false;
    std::ranges::fill(cells, cell{-9, 0xBAD});
    return true;
  });
  for (const auto& move : plan.moves) {
    const auto block = static_cast<std::size_t>(move.block.value);
    const auto place = static_cast<std::size_t>(config_.num_kv_blocks + move.host);
    const auto from = move.to_host ? block : place, to = move.to_host ? place : block;
    std::ranges::copy(home_cells(from), home_cells(to).begin());
    ++moves_run;
    const auto known = std::ranges::find(unknown_, from, &unknown_home::home);
    if (known != unknown_.end()) note_unknown(to, known->since);
  }
}

void rank_world::run(const launched& step, step_result& result) {
  const auto& plan = step.plan;
  run_moves(plan);
  for (const auto& start : plan.starts) {
    auto& slot = slots_.at(static_cast<std::size_t>(start.slot.value));
    slot = {};
    slot.sequence = start.sequence;
    slot.epoch = start.epoch;
    slot.length = start.position;
  }
  std::vector<sampled_row> sampled;
  written_.clear();
  on_void_.assign(plan.sequences.size(), false);
  result.drafts_per_row = config_.num_drafts;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    auto& slot = slots_.at(static_cast<std::size_t>(plan.slots[i].value));
    auto error = row_error::none;
    const auto first_cell = static_cast<std::ptrdiff_t>(written_.size());
    const auto given = run_row(plan, i, slot, error);
    require(slot.table == step.tables[i], "[I25] step {}: device table of row {} differs",
            plan.step.value, i);
    const bool gave_none = given.empty() && error == row_error::none;
    sampled.push_back({gave_none ? -1 : slot.last, slot.drafts});
    if (error != row_error::none) {
      result.row_errors.resize(plan.sequences.size(), row_error::none);
      result.row_errors[i] = error;
      if (error != row_error::no_candidate)  // what it wrote may be as wrong
        std::for_each(written_.begin() + first_cell, written_.end(),
                      [this](std::size_t index) { cells_[index].is_void = true; });
    }
    result.sequences.push_back(plan.sequences[i]);
    result.epochs.push_back(plan.epochs[i]);
    result.widths.push_back(plan.widths[i]);
    result.tokens.insert(result.tokens.end(), given.begin(), given.end());
    result.token_begin.push_back(static_cast<std::int32_t>(result.tokens.size()));
    auto drafts = slot.drafts;
    drafts.resize(static_cast<std::size_t>(config_.num_drafts), given.empty() ? -1 : 0);
    result.drafts.insert(result.drafts.end(), drafts.begin(), drafts.end());
  }
  sampled_ = std::move(sampled);
  sampled_step_ = plan.step.value;
}

}  // namespace deepinfer::test
