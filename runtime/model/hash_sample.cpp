// Sampling, acceptance and drafting of the hash model's program.
#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/check.hpp"
#include "runtime/model/hash_drafts.hpp"
#include "runtime/model/hash_program.hpp"

namespace deepinfer {

namespace {

bool is_gated_row(const step_plan& plan, std::size_t row) {
  return row < plan.gated.size() && plan.gated[row] != 0;
}

}  // namespace

void hash_program::sample(hash_work& work) {
  const auto& p = work.on_device.plan;
  const auto rows = p.sequences.size();
  const auto drafts = static_cast<std::size_t>(config_.num_drafts);
  work.outputs.clear(rows, config_.num_drafts);
  newest_.step = work.step_;
  newest_.sequences = p.sequences;
  newest_.epochs = p.epochs;
  newest_.tokens.assign(rows, -1);
  newest_.lengths.assign(rows, 0);
  newest_.is_excused.assign(rows, 0);
  newest_.drafts.assign(rows * drafts, -1);
  for (std::size_t row = 0; row < rows; ++row) {
    work.outputs.widths[row] = work.rows[row].width;
    if (!is_gated_row(p, row)) {
      sample_row(work, row, false);
      continue;
    }
    newest_.is_excused[row] = 1;
    if (work.rows[row].is_whole) state_.slot(p.slots[row]).gated_by = work.step_;
  }
  work.outputs_sum = work.outputs.checksum();
}

void hash_program::sample_gated(hash_work& work) {
  const auto& p = work.on_device.plan;
  for (std::size_t row = 0; row < p.sequences.size(); ++row) {
    if (!is_gated_row(p, row)) continue;
    if (work.rows[row].is_whole) {
      auto& slot = state_.slot(p.slots[row]);
      slot.gated_by = {};
      if (!work.masks) slot.is_stale = true;
      if (!work.masks) work.rows[row].is_whole = false;
    }
    sample_row(work, row, work.masks != nullptr);
  }
  work.outputs_sum = work.outputs.checksum();
}

// The token behind a query.
token_id hash_program::choose(hash_work& work, std::size_t row, std::int32_t query, bool has_masks,
                              const hash_history& history) {
  const auto& p = work.on_device.plan;
  const auto& it = work.rows[row];
  const auto& slot = state_.slot(p.slots[row]);
  const auto position = it.first + query + 1;
  const auto choice = hash_choice(model_, slot.sampling, slot.script.get(),
                                  work.chains[it.begin + static_cast<std::size_t>(query)], position,
                                  position - slot.prompt_tokens + 1, history.penalty_sum);
  if (!has_masks) return choice;
  const auto& gate = *work.masks;
  const auto found = std::find(gate.rows.begin(), gate.rows.end(), static_cast<std::int32_t>(row)) -
                     gate.rows.begin();
  const auto mask = gate.mask_begin[static_cast<std::size_t>(found)] +
                    (p.kinds[row] == row_kind::decode ? query : 0);
  const auto words = static_cast<std::size_t>(gate.words);
  const auto allowed =
    hash_first_allowed(std::span(gate.masks).subspan(static_cast<std::size_t>(mask) * words, words),
                       model_.vocab, choice);
  return allowed >= 0 ? allowed : choice;
}

// Tokens of a row: of all queries of a decode row whose drafts are right so far, of the last query
// of a chunk that yields.
void hash_program::sample_row(hash_work& work, std::size_t row, bool has_masks) {
  const auto& p = work.on_device.plan;
  const auto& it = work.rows[row];
  auto& out = work.outputs;
  const auto tokens = row * static_cast<std::size_t>(out.stride);
  if (it.is_dead) newest_.is_excused[row] = 1;
  if (!it.is_whole) {
    if (it.is_dead || p.yields_max[row] == 0) return;
    out.given[row] = 1;  // a stale row yields what nobody reads
    out.tokens[tokens] = hash_first_word;
    if (newest_.step == work.step_) newest_.tokens[row] = hash_first_word;
    return;
  }
  auto& slot = state_.slot(p.slots[row]);
  const bool is_decode = p.kinds[row] == row_kind::decode && p.yields_max[row] > 0;
  auto history = slot.history;
  std::int32_t positions = 0;
  for (std::int32_t query = 0; query < it.width; ++query) {
    const auto i = it.begin + static_cast<std::size_t>(query);
    if (it.first + query >= slot.prompt_tokens) history.add(work.ids[i]);
    ++positions;
    const bool is_last = query + 1 == it.width;
    if (p.yields_max[row] == 0 || (!is_decode && !is_last)) continue;
    const auto token = choose(work, row, query, has_masks, history);
    const auto place_of_token = tokens + static_cast<std::size_t>(out.given[row]++);
    out.tokens[place_of_token] = token;
    out.chains[place_of_token] = work.chains[i];
    const auto output = it.first + query + 2 - slot.prompt_tokens;
    if (slot.last_token < 0 && output != slot.known_outputs + 1)
      canary_.add("row_map_broken",
                  fmt::format("{}: the first output of its epoch is number {}, {} were known",
                              place(work, row), output, slot.known_outputs));
    slot.last_token = token;
    const bool is_end = slot.sampling.is_stop(token, output) ||
                        (slot.output_limit > 0 && output >= slot.output_limit);
    if (config_.stop_mask && is_end) {
      slot.has_ended = true;
      break;
    }
    if (!is_last && work.ids[i + 1] != token) break;
  }
  out.asked[row] = slot.sampling.has_logprobs;
  advance(work, row, positions, history);
  if (out.given[row] > 0) draft(work, row);
  publish(work, row);
}

// The first `positions` queries of the row are true.
void hash_program::advance(hash_work& work, std::size_t row, std::int32_t positions,
                           const hash_history& history) {
  const auto& p = work.on_device.plan;
  const auto& it = work.rows[row];
  auto& slot = state_.slot(p.slots[row]);
  slot.history = history;
  state_.accept(p.slots[row], it.first + positions, std::span(work.chains).subspan(it.begin));
  slot.shortfalls[work.step_.value % hash_slot::steps_remembered] = {work.step_,
                                                                     p.widths[row] - positions};
  if (p.kinds[row] == row_kind::decode) ++slot.decode_rows;
}

// What the drafter makes of the row for the one behind it; it writes past the row's own positions.
void hash_program::draft(hash_work& work, std::size_t row) {
  if (config_.num_drafts == 0) return;
  const auto& p = work.on_device.plan;
  const auto& it = work.rows[row];
  auto& slot = state_.slot(p.slots[row]);
  const auto last = it.begin + static_cast<std::size_t>(slot.length - it.first - 1);
  hash_draft_start from{slot.script.get(), work.chains[last], slot.length,     slot.prompt_tokens,
                        slot.last_token,   slot.history,      slot.decode_rows};
  hash_make_drafts(model_, state_.experts(), slot.sampling, from, slot.drafts);
  slot.draft_count = config_.num_drafts;
  if (hash_fill_confidences(model_, slot.script.get(), slot.confidences))
    work.outputs.has_confidences = 1;
  const auto first = static_cast<std::ptrdiff_t>(row * slot.drafts.size());
  std::copy(slot.drafts.begin(), slot.drafts.end(), work.outputs.drafts.begin() + first);
  std::copy(slot.confidences.begin(), slot.confidences.end(),
            work.outputs.confidences.begin() + first);
  for (std::int32_t i = 0; i < config_.draft_overhang; ++i)
    state_.write_overhang(work.step_, p.slots[row], it.first + it.width + i);
}

// For the remap of the next step, if this is still the newest one.
void hash_program::publish(const hash_work& work, std::size_t row) {
  if (newest_.step != work.step_) return;
  const auto& slot = state_.slot(work.on_device.plan.slots[row]);
  newest_.lengths[row] = slot.length;
  if (work.outputs.given[row] == 0) return;
  newest_.tokens[row] = slot.last_token;
  std::copy(slot.drafts.begin(), slot.drafts.end(),
            newest_.drafts.begin() + static_cast<std::ptrdiff_t>(row * slot.drafts.size()));
}

void hash_program::split_carry(bool is_length) {
  DI_CHECK(!newest_.tokens.empty(), "step {} carries nothing", newest_.step.value);
  if (is_length)
    ++newest_.lengths[0];
  else if (newest_.drafts.empty())
    ++newest_.tokens[0];
  else
    ++newest_.drafts[0];
}

}  // namespace deepinfer
