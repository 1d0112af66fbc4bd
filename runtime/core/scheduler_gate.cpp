// Rows whose sampling waits for the host: grammars are built, masks made, gates opened.
#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"
#include "runtime/core/scheduler_core.hpp"

namespace deepinfer {

// True: the sequence may start as far as its grammar goes. It may also end here.
bool scheduler_core::poll_grammar(sequence_state& sequence) {
  if (!sequence.wants_grammar() || sequence.grammar) return true;
  std::string error;
  sequence.grammar = helpers_.grammars->poll(sequence.id(), *sequence.request.params, error);
  if (sequence.grammar) return true;
  if (!error.empty()) {
    sequence_chunk chunk;
    chunk.sequence = sequence.id();
    chunk.first_output = static_cast<std::int32_t>(sequence.ledger.emitted());
    end_with_error(sequence, errc::grammar_failed, std::move(error), std::move(chunk));
  }
  return false;
}

bool scheduler_core::is_end_id(const sequence_state& sequence, token_id id) const {
  const auto& params = *sequence.request.params;
  const auto listed = [id](const auto& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  if (listed(params.stop_token_ids)) return true;
  return !params.ignore_eos && (id == config_.eos || listed(config_.eos_ids));
}

// How many of the tokens a row gave its grammar allows; the matcher stands where it stood.
std::int64_t scheduler_core::legal_tokens(sequence_state& sequence,
                                          std::span<const token_id> tokens) {
  if (!sequence.grammar) return std::ssize(tokens);
  auto& grammar = *sequence.grammar;
  bool is_free = sequence.in_reasoning;
  std::int64_t legal = 0;
  std::int32_t advanced = 0;
  for (const auto token : tokens) {
    if (is_free) {
      is_free = token != config_.think_end;
    } else if (grammar.has_ended()) {
      if (!is_end_id(sequence, token)) break;
    } else if (grammar.advance(token)) {
      ++advanced;
    } else {
      break;
    }
    ++legal;
  }
  grammar.rewind(advanced);
  return legal;
}

// Emitted tokens alone move the grammar and the count of reasoning [I39][I45].
void scheduler_core::follow(sequence_state& sequence, std::span<const token_id> kept) {
  for (const auto token : kept) {
    if (sequence.in_reasoning) {
      ++sequence.reasoning_tokens;
      sequence.in_reasoning = token != config_.think_end;
    } else if (sequence.grammar && !sequence.grammar->has_ended()) {
      sequence.grammar->advance(token);
    }
  }
}

// Masks of a row follow the drafts it verifies; behind one that is refused they do not matter.
void scheduler_core::fill_masks(sequence_state& sequence, std::int32_t width, std::size_t words,
                                std::vector<std::uint32_t>& masks) {
  auto& grammar = *sequence.grammar;
  const auto first = masks.size();
  masks.resize(first + static_cast<std::size_t>(width) * words, ~std::uint32_t{0});
  bool is_free = sequence.in_reasoning;
  std::int32_t advanced = 0;
  for (std::int32_t j = 0; j < width; ++j) {
    const auto mask = std::span(masks).subspan(first + static_cast<std::size_t>(j) * words, words);
    const bool has_ended = !is_free && grammar.has_ended();
    if (has_ended)
      allow_end_ids(sequence, mask);
    else if (!is_free && !grammar.fill_mask(mask))
      std::fill(mask.begin(), mask.end(), ~std::uint32_t{0});  // a dead end: seen when it settles
    if (j >= std::ssize(sequence.made.drafts) || has_ended) break;
    const auto draft = sequence.made.drafts[static_cast<std::size_t>(j)];
    if (is_free) {
      is_free = draft != config_.think_end;
    } else {
      if (!grammar.advance(draft)) break;
      ++advanced;
    }
  }
  if (!mutant(20)) grammar.rewind(advanced);  // 20: of all state, the grammar is not rewound
}

void scheduler_core::allow_end_ids(const sequence_state& sequence,
                                   std::span<std::uint32_t> mask) const {
  const auto& params = *sequence.request.params;
  std::fill(mask.begin(), mask.end(), 0u);
  bool any = false;
  const auto allow = [&](token_id id) {
    if (id < 0 || id >= config_.vocab_size) return;
    mask[static_cast<std::size_t>(id) / 32] |= 1u << (static_cast<std::uint32_t>(id) % 32);
    any = true;
  };
  for (const auto id : params.stop_token_ids) allow(id);
  if (!params.ignore_eos) {
    allow(config_.eos);
    for (const auto id : config_.eos_ids) allow(id);
  }
  if (!any) std::fill(mask.begin(), mask.end(), ~std::uint32_t{0});
}

// A live row needs every token before it: its sequence's earlier rows have settled [I42].
bool scheduler_core::can_open(const launched_step& record) const {
  for (std::size_t i = 0; i < record.rows.size(); ++i) {
    const auto& sequence = *record.rows[i];
    if (record.gated[i] == 0 || !is_live_row(sequence, record.epochs[i])) continue;
    if (sequence.ledger.row(0).step != record.step && !mutant(18)) return false;  // 18: too early
  }
  return true;
}

// Will the tokens of a launched row of that epoch be emitted? Of the life that a preempted sequence
// has just lost they will; what is in flight of lives before that one stands on a failed step.
bool scheduler_core::is_live_row(const sequence_state& sequence, std::uint32_t epoch) const {
  if (sequence.phase == sequence_phase::ended) return false;
  const auto lost = sequence.phase == sequence_phase::preempted ? 1u : 0u;
  return epoch + lost == sequence.ledger.epoch();
}

void scheduler_core::open_gates() {
  for (auto step = settled_ + 1; step <= launched_; ++step) {
    auto& record = record_of(step);
    if (!record.is_gate_closed || !can_open(record)) continue;
    record.is_gate_closed = false;
    const auto words = mask_words(config_.vocab_size);
    auto& gate = outbox_.gates.emplace_back();
    gate.step = record.step;
    gate.words = static_cast<std::int32_t>(words);
    gate.mask_begin.push_back(0);
    for (std::size_t i = 0; i < record.rows.size(); ++i) {
      if (record.gated[i] == 0) continue;
      auto& sequence = *record.rows[i];
      const auto width = record.masks[i];
      if (is_live_row(sequence, record.epochs[i]))
        fill_masks(sequence, width, words, gate.masks);
      else
        gate.masks.resize(gate.masks.size() + static_cast<std::size_t>(width) * words,
                          ~std::uint32_t{0});
      if (sequence.closed_gate == record.step) sequence.closed_gate = {};
      gate.rows.push_back(static_cast<std::int32_t>(i));
      gate.mask_begin.push_back(gate.mask_begin.back() + width);
    }
  }
}

}  // namespace deepinfer
