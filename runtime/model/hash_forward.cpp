// Fix-up and forward of the hash model's program.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/check.hpp"
#include "runtime/model/hash_drafts.hpp"
#include "runtime/model/hash_program.hpp"

namespace deepinfer {

hash_program::hash_program(const runner_config& config, const hash_model_config& model)
  : config_(config),
    model_(model),
    state_(config, model, &canary_) {}

void hash_program::reset() {
  state_.reset();
  newest_ = {};
  newest_forward_ = {};
}

std::string hash_program::place(const hash_work& work, std::size_t row) const {
  const auto& p = work.on_device.plan;
  return fmt::format("step {}, row {}, sequence {} epoch {}, slot {}", work.step_.value, row,
                     p.sequences[row].value, p.epochs[row], p.slots[row].value);
}

// Steps behind the newest sampled one, and before this, have failed: what was launched behind them
// for the same sequences starts from a hole, and nobody looks at it. The same holds for who begins
// behind blocks that they were to write.
void hash_program::mark_stale_rows(const hash_work& work) {
  for (const auto& row : work.on_device.recent) {
    if (row.step <= newest_.step || row.step >= work.step_) continue;
    for (const auto block : row.blocks) state_.kv().note_hole(block);
    if (!state_.is_slot(row.slot)) continue;
    auto& slot = state_.slot(row.slot);
    slot.is_live = slot.is_stale = true;
    slot.sequence = row.sequence;  // whose start may be lost
    slot.epoch = row.epoch;
  }
}

// What a stale row of this step was to write is missing as well.
void hash_program::mark_holes(const hash_work& work) {
  for (const auto& row : work.on_device.recent)
    if (row.step == work.step_ && state_.is_slot(row.slot) && state_.slot(row.slot).is_stale)
      for (const auto block : row.blocks) state_.kv().note_hole(block);
}

void hash_program::append_blocks(const hash_work& work) {
  const auto& in = work.on_device;
  const auto& p = in.plan;
  for (std::size_t row = 0; row < p.sequences.size(); ++row) {
    const auto blocks = p.row_blocks(static_cast<std::int32_t>(row));
    if (blocks.empty() || !state_.is_slot(p.slots[row])) continue;
    std::int32_t hits = 0;
    for (const auto& start : in.starts)
      if (start.slot == p.slots[row]) hits = start.position / config_.block_size;
    state_.append_blocks(work.step_, p.slots[row], p.table_begin[row], blocks, hits);
  }
}

// Whether the remap of the step is one: rows of the newest step, of equal sequence and epoch, each
// used once [I26].
void hash_program::check_row_map(const hash_work& work) {
  const auto& in = work.on_device;
  const auto& p = in.plan;
  auto& is_used = scratch_flags_;
  is_used.assign(newest_.tokens.size(), 0);
  for (std::size_t row = 0; row < p.sources.size(); ++row) {
    const auto source = p.sources[row];
    if (source < 0 || newest_.step != in.before) continue;
    const auto from = static_cast<std::size_t>(source);
    const bool is_right = from < is_used.size() && is_used[from] == 0 &&
                          newest_.sequences[from] == p.sequences[row] &&
                          newest_.epochs[from] == p.epochs[row] &&
                          (newest_.tokens[from] >= 0 || newest_.is_excused[from] != 0);
    if (is_right)
      is_used[from] = 1;
    else
      canary_.add("row_map_broken", fmt::format("{}: its source is row {} of step {}",
                                                place(work, row), source, newest_.step.value));
  }
}

// The fix-up: everything that must be true before the first query is computed.
void hash_program::prepare(hash_work& work) {
  const auto& in = work.on_device;
  if (newest_forward_ >= work.step_)
    canary_.add("event_generation_mixed",
                fmt::format("step {}: its forward begins behind step {}'s", work.step_.value,
                            newest_forward_.value));
  newest_forward_ = work.step_;
  for (const auto& move : in.plan.moves) state_.kv().move(work.step_, move);
  mark_stale_rows(work);
  for (const auto& start : in.starts)
    if (state_.is_slot(start.slot)) state_.start(start);
  append_blocks(work);
  for (const auto& start : in.starts)
    if (state_.is_slot(start.slot) && start.position > 0) state_.resume(work.step_, start.slot);
  mark_holes(work);
  check_row_map(work);
  fit_rows(work);
}

// Which rows compute, how many queries each has, and their ids.
void hash_program::fit_rows(hash_work& work) {
  const auto& p = work.on_device.plan;
  const auto rows = p.sequences.size();
  work.rows.assign(rows, {});
  work.ids.clear();
  for (std::size_t row = 0; row < rows; ++row) {
    work.rows[row].is_whole = is_row_whole(work, row);
    if (!work.rows[row].is_whole) continue;
    const auto& slot = state_.slot(p.slots[row]);
    work.rows[row].first = slot.length;
    if (slot.has_ended) {
      work.rows[row].is_whole = false;
      work.rows[row].is_dead = true;
    }
  }
  set_widths(work);
  for (std::size_t row = 0; row < rows; ++row)
    if (work.rows[row].is_whole) take_ids(work, row);
  work.chains.assign(work.ids.size(), 0);
}

void hash_program::set_widths(hash_work& work) {
  const auto& p = work.on_device.plan;
  const auto rows = p.sequences.size();
  const auto planned = std::accumulate(p.widths.begin(), p.widths.end(), 0);
  for (std::size_t row = 0; row < rows; ++row)
    work.rows[row].width = work.rows[row].is_dead ? 0 : p.widths[row];
  if (p.total_width >= planned) return;
  const auto drafts = static_cast<std::size_t>(config_.num_drafts);
  scratch_flags_.assign(rows, 1);
  scratch_widths_.assign(rows, 0);
  scratch_confidences_.assign(rows * drafts, 1.0f);
  for (std::size_t row = 0; row < rows; ++row) {
    if (work.rows[row].is_dead) scratch_flags_[row] = 0;
    if (!work.rows[row].is_whole) continue;
    const auto& slot = state_.slot(p.slots[row]);
    std::copy_n(slot.confidences.begin(), slot.draft_count,
                scratch_confidences_.begin() + static_cast<std::ptrdiff_t>(row * drafts));
  }
  hash_split_widths(p.total_width, p.widths, scratch_flags_, scratch_confidences_, scratch_widths_);
  for (std::size_t row = 0; row < rows; ++row) work.rows[row].width = scratch_widths_[row];
}

// Whether slot, length and source of a row fit together. A stale row computes nothing.
bool hash_program::is_row_whole(const hash_work& work, std::size_t row) {
  const auto& p = work.on_device.plan;
  if (!state_.is_slot(p.slots[row])) {
    canary_.add("row_map_broken", place(work, row) + ": there is no such slot");
    return false;
  }
  auto& slot = state_.slot(p.slots[row]);
  if (!slot.is_live || slot.sequence != p.sequences[row] || slot.epoch != p.epochs[row]) {
    canary_.add("row_map_broken", fmt::format("{}: the slot holds sequence {} epoch {}",
                                              place(work, row), slot.sequence.value, slot.epoch));
    return false;
  }
  if (slot.gated_by.value != 0) slot.is_stale = true;  // its gate was opened, and failed
  if (slot.is_stale) return false;
  if (slot.has_ended) return true;
  if (!is_position_right(work, row, slot)) return false;
  const auto width = p.widths[row];
  const bool is_fresh = p.sources[row] == from_fresh;
  const auto host_ids = std::ssize(p.row_tokens(static_cast<std::int32_t>(row)));
  const auto drafts = p.kinds[row] == row_kind::decode ? width - 1 : 0;
  const bool has_ids = is_fresh
                         ? host_ids == width
                         : host_ids == 0 && slot.last_token >= 0 && width - 1 <= slot.draft_count;
  if (width >= 1 && drafts <= config_.num_drafts && has_ids) return true;
  canary_.add("row_map_broken",
              fmt::format("{}: width {}, source {}, {} host ids, carried id {} and {} drafts",
                          place(work, row), width, p.sources[row], host_ids, slot.last_token,
                          slot.draft_count));
  return false;
}

// A host's position is exact where its ids are, else an upper bound: the rows in flight when it was
// planned may have given less than their width, but not less than they did [I33].
bool hash_program::is_position_right(const hash_work& work, std::size_t row,
                                     const hash_slot& slot) {
  const auto& p = work.on_device.plan;
  const auto planned = p.positions[row];
  std::int32_t fallen_short = 0;
  if (p.sources[row] != from_fresh)
    for (const auto& it : slot.shortfalls)
      if (it.step.value + static_cast<std::uint64_t>(config_.depth) > work.step_.value)
        fallen_short += it.tokens;
  if (slot.length <= planned && planned - slot.length <= fallen_short) return true;
  canary_.add(
    "row_map_broken",
    fmt::format("{}: length {} on the device, first query planned at {}, earlier rows fell "
                "short of it by {}",
                place(work, row), slot.length, planned, fallen_short));
  return false;
}

// What the row of the newest step gave and what the slot holds must be the same [I29].
void hash_program::check_carry(const hash_work& work, std::size_t row, const hash_slot& slot) {
  const auto source = work.on_device.plan.sources[row];
  if (source < 0 || newest_.step != work.on_device.before ||
      static_cast<std::size_t>(source) >= newest_.tokens.size())
    return;
  const auto from = static_cast<std::size_t>(source);
  const auto drafts = static_cast<std::size_t>(config_.num_drafts);
  const auto first = newest_.drafts.begin() + static_cast<std::ptrdiff_t>(from * drafts);
  const bool is_equal = newest_.tokens[from] == slot.last_token &&
                        newest_.lengths[from] == slot.length &&
                        std::equal(slot.drafts.begin(), slot.drafts.end(), first);
  if (is_equal) return;
  canary_.add(
    "carry_split",
    fmt::format("{}: row {} of step {} has id {}, length {} and drafts {}..., the slot id "
                "{}, length {} and drafts {}...",
                place(work, row), source, newest_.step.value, newest_.tokens[from],
                newest_.lengths[from], drafts > 0 ? *first : -1, slot.last_token, slot.length,
                drafts > 0 ? slot.drafts[0] : -1));
}

void hash_program::take_ids(hash_work& work, std::size_t row) {
  const auto& p = work.on_device.plan;
  auto& it = work.rows[row];
  const auto& slot = state_.slot(p.slots[row]);
  it.begin = work.ids.size();
  if (p.sources[row] == from_fresh) {
    const auto host = p.row_tokens(static_cast<std::int32_t>(row));
    work.ids.insert(work.ids.end(), host.begin(), host.begin() + it.width);
    return;
  }
  check_carry(work, row, slot);
  work.ids.push_back(slot.last_token);
  work.ids.insert(work.ids.end(), slot.drafts.begin(), slot.drafts.begin() + it.width - 1);
}

void hash_program::read_prefixes(hash_work& work) {
  for (std::size_t row = 0; row < work.rows.size(); ++row)
    if (work.rows[row].is_whole) state_.read_prefix(work.step_, work.on_device.plan.slots[row]);
}

void hash_program::forward(hash_work& work) {
  if (!work.is_prepared) prepare(work);
  std::int32_t width = 0;
  for (std::size_t row = 0; row < work.rows.size(); ++row) {
    auto& it = work.rows[row];
    width += it.width;
    // A slot may have been taken away since the fix-up.
    if (it.is_whole && work.is_prepared) it.is_whole = is_row_whole(work, row);
    if (it.is_whole) run_row(work, row);
  }
  for (auto i = width; i < work.on_device.plan.bucket; ++i) {
    state_.kv().write_padding(work.step_, i);
    ++padded_tokens_;
  }
}

void hash_program::run_row(hash_work& work, std::size_t row) {
  const auto slot = work.on_device.plan.slots[row];
  const auto& it = work.rows[row];
  auto cursor = state_.read_prefix(work.step_, slot);
  for (std::int32_t query = 0; query < it.width; ++query) {
    const auto i = it.begin + static_cast<std::size_t>(query);
    state_.write(work.step_, slot, it.first + query, work.ids[i], cursor);
    work.chains[i] = cursor.chain;
  }
  routed_rows_ +=
    static_cast<std::uint64_t>(it.width) * static_cast<std::uint64_t>(model_.experts.layers);
}

}  // namespace deepinfer
