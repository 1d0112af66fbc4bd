#include "runtime/core/seq_ledger.hpp"

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"

namespace deepinfer {

seq_ledger::seq_ledger(std::int64_t prompt_tokens) : prompt_(prompt_tokens), known_(prompt_tokens) {
  DI_CHECK(prompt_tokens > 0, "a prompt of {} tokens", prompt_tokens);
}

const ledger_row& seq_ledger::row(std::int32_t i) const {
  DI_CHECK(0 <= i && i < count_, "row {} of {} in flight", i, count_);
  return rows_[static_cast<std::size_t>((first_ + i) % depth_limit)];
}

void seq_ledger::shrink_capacity(std::int64_t tokens, std::int64_t overhang) {
  capacity_ -= tokens;
  const auto need = reserve_tokens(committed_, widths_, overhang);
  DI_CHECK(capacity_ >= need, "{} tokens taken back leave {}, launched rows need {}", tokens,
           capacity_, need);
}

void seq_ledger::launch(const ledger_row& row, std::int64_t overhang) {
  DI_CHECK(count_ < depth_limit, "{} rows in flight already", count_);
  DI_CHECK(row.epoch == epoch_, "row of epoch {}, sequence is in {}", row.epoch, epoch_);
  DI_CHECK(newest_ < row.step, "step {} after step {}", row.step.value, newest_.value);
  DI_CHECK(row.width > 0, "a row of width {}", row.width);
  DI_CHECK(0 <= row.yields_min, "fewest yield {}", row.yields_min);
  DI_CHECK(row.yields_min <= row.yields_max, "yields {}..{}", row.yields_min, row.yields_max);
  const auto need = reserve_tokens(committed_, widths_ + row.width, overhang);
  DI_CHECK(need <= capacity_, "step {} may write {} tokens, the table holds {}", row.step.value,
           need, capacity_);
  rows_[static_cast<std::size_t>((first_ + count_) % depth_limit)] = row;
  ++count_;
  newest_ = row.step;
  widths_ += row.width;
  yields_max_ += row.yields_max;
  yields_min_ += row.yields_min;
  if (row.kind == row_kind::prefill) {
    chunk_widths_ += row.width;
  } else {
    decode_max_ += row.yields_max;
    decode_min_ += row.yields_min;
  }
}

ledger_row seq_ledger::pop(step_id step) {
  DI_CHECK(count_ > 0, "step {} settles a sequence that nothing launched names", step.value);
  const ledger_row oldest = row(0);
  DI_CHECK(oldest.step == step, "step {} settles before step {}", step.value, oldest.step.value);
  first_ = (first_ + 1) % depth_limit;
  --count_;
  if (oldest.epoch == epoch_) take_out(oldest);
  return oldest;
}

void seq_ledger::take_out(const ledger_row& row) {
  widths_ -= row.width;
  yields_max_ -= row.yields_max;
  yields_min_ -= row.yields_min;
  if (row.kind == row_kind::prefill) {
    chunk_widths_ -= row.width;
  } else {
    decode_max_ -= row.yields_max;
    decode_min_ -= row.yields_min;
  }
}

bool seq_ledger::settle(step_id step, std::int64_t kept) {
  const auto oldest = pop(step);
  if (oldest.epoch != epoch_) return false;
  DI_CHECK(0 <= kept, "{} tokens kept", kept);
  DI_CHECK(kept <= oldest.yields_max, "{} tokens kept, step {} yields at most {}", kept, step.value,
           oldest.yields_max);
  // Mutant: the width is committed, not what was kept.
  const bool takes_width = oldest.kind == row_kind::prefill || mutant(15);
  committed_ += takes_width ? oldest.width : kept;
  known_ += kept;
  DI_CHECK(committed_ <= known_, "{} committed, {} known", committed_, known_);
  check_sums();
  return true;
}

void seq_ledger::drop(step_id step) {
  pop(step);
  check_sums();
}

void seq_ledger::restart() {
  ++epoch_;
  committed_ = capacity_ = 0;
  widths_ = yields_max_ = yields_min_ = 0;
  chunk_widths_ = decode_max_ = decode_min_ = 0;
}

void seq_ledger::begin_at(std::int64_t tokens) {
  DI_CHECK(widths_ == 0, "{} tokens in flight: the epoch has begun", widths_);
  DI_CHECK(0 <= tokens && tokens < known_, "an epoch that begins at {} of {} ids", tokens, known_);
  committed_ = tokens;
}

void seq_ledger::check_sums() const {
  DI_CHECK(widths_ >= 0, "widths in flight {}", widths_);
  DI_CHECK(yields_min_ >= 0, "fewest in flight {}", yields_min_);
  DI_CHECK(yields_min_ <= yields_max_, "in flight {}..{}", yields_min_, yields_max_);
  DI_CHECK(count_ > 0 || widths_ == 0, "width {} in flight, no row", widths_);
  DI_CHECK(count_ > 0 || yields_max_ == 0, "{} tokens in flight, no row", yields_max_);
}

void seq_ledger::check_invariants() const {
  check_sums();
  std::int64_t widths = 0, most = 0, fewest = 0;
  step_id last{};
  for (std::int32_t i = 0; i < count_; ++i) {
    const auto& it = row(i);
    DI_CHECK(last < it.step, "step {} behind step {}", it.step.value, last.value);
    last = it.step;
    if (it.epoch != epoch_) continue;
    widths += it.width;
    most += it.yields_max;
    fewest += it.yields_min;
  }
  DI_CHECK(widths == widths_, "widths {} in flight, rows sum to {}", widths_, widths);
  DI_CHECK(most == yields_max_, "most {} in flight, rows sum to {}", yields_max_, most);
  DI_CHECK(fewest == yields_min_, "fewest {} in flight, rows sum to {}", yields_min_, fewest);
  DI_CHECK(next_position() <= capacity_, "rows write up to {}, the table holds {}", next_position(),
           capacity_);
}

}  // namespace deepinfer
