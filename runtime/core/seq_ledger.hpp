/// Lengths of one sequence, kept apart: committed, known, in flight, reserved [I03].
///
/// - committed C: positions [0, C) have KV written by settled steps;
/// - known: ids the host has, prompt and outputs; C + 1 in steady decode (the last has no KV yet);
/// - in flight: sums over the launched, unsettled rows of the current epoch (widths, most and
///   fewest tokens they yield). total_inflight_tokens of the article is `inflight_max` here, a sum
///   and not a toggle, so that any depth up to depth_limit works;
/// - capacity: tokens the block table holds.
/// Only `settle` moves in flight to committed. `restart` begins a new epoch: rows of older ones
/// still count as references, and settling them changes no counter of the new one [I04].
///
/// Owns [I02][I03][I04][I08]. Single-threaded, never allocates. Errors: DI_CHECK with values.
#pragma once

#include <array>
#include <cstdint>

#include "messages/plan.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/core/capacity.hpp"

namespace deepinfer {

class state_digest;

/// What a launched step holds of one sequence. Whether a chunk was final is stored here when it is
/// launched and never derived from the sequence's later state [I58].
struct ledger_row {
  step_id step;
  std::uint32_t epoch = 0;
  row_kind kind = row_kind::prefill;
  std::int32_t width = 0;
  std::int32_t yields_max = 0;  ///< 0: a chunk that is not final
  std::int32_t yields_min = 0;
};

class seq_ledger {
public:
  explicit seq_ledger(std::int64_t prompt_tokens);

  /// Adds tokens to what the block table holds.
  void grow_capacity(std::int64_t tokens) { capacity_ += tokens; }
  /// Takes back the tail of the table; what launched rows may write must stay [I16].
  void shrink_capacity(std::int64_t tokens, std::int64_t overhang);

  /// Launches a row; steps grow. Capacity must hold it and all rows in flight [I08].
  void launch(const ledger_row& row, std::int64_t overhang);

  /// Settles the oldest row, which must be of `step`. Of its tokens the first `kept` are emitted. A
  /// chunk commits its width, a decode row what it emits. False: the row was of an older epoch, and
  /// only the reference is gone.
  bool settle(step_id step, std::int64_t kept);

  /// The oldest row, of `step`, gave nothing that counts (its step failed, or the sequence has
  /// ended): it leaves the sums and commits nothing.
  void drop(step_id step);

  /// New epoch: nothing is committed or reserved; ids stay known. Launched rows turn stale.
  void restart();

  /// The epoch begins behind `tokens` positions that lie in cached blocks.
  void begin_at(std::int64_t tokens);

  /// Ids that a stale row gave and that are emitted all the same: known, not committed [I53].
  void learn(std::int64_t ids) { known_ += ids; }

  std::int64_t prompt_tokens() const { return prompt_; }
  std::int64_t committed() const { return committed_; }
  std::int64_t known() const { return known_; }
  std::int64_t emitted() const { return known_ - prompt_; }
  std::int64_t capacity() const { return capacity_; }
  std::int64_t inflight_widths() const { return widths_; }
  std::int64_t inflight_max() const { return yields_max_; }
  std::int64_t inflight_min() const { return yields_min_; }
  /// First position of the next row: exact in a prompt, else an upper bound.
  std::int64_t next_position() const { return committed_ + widths_; }
  /// Bounds of the device's length once all launched rows have run [I05]: a chunk advances by its
  /// width, a decode row by what it yields.
  std::int64_t length_max() const { return committed_ + chunk_widths_ + decode_max_; }
  std::int64_t length_min() const { return committed_ + chunk_widths_ + decode_min_; }
  std::uint32_t epoch() const { return epoch_; }
  /// Launched, unsettled steps that name the sequence, of all epochs.
  std::int32_t refs() const { return count_; }
  /// Newest launched step that names the sequence; 0: none ever did. The fence of its leases.
  step_id newest() const { return newest_; }
  /// The i-th oldest launched row.
  const ledger_row& row(std::int32_t i) const;

  /// The sums equal those over the rows; all are zero without rows [I02].
  void check_invariants() const;
  void describe(state_digest& out) const;

private:
  void take_out(const ledger_row& row);
  ledger_row pop(step_id step);
  void check_sums() const;

  std::int64_t prompt_;
  std::int64_t committed_ = 0;
  std::int64_t known_;
  std::int64_t capacity_ = 0;
  std::int64_t widths_ = 0;
  std::int64_t yields_max_ = 0;
  std::int64_t yields_min_ = 0;
  std::int64_t chunk_widths_ = 0;
  std::int64_t decode_max_ = 0;
  std::int64_t decode_min_ = 0;
  std::uint32_t epoch_ = 0;
  step_id newest_;
  std::array<ledger_row, depth_limit> rows_;  ///< ring
  std::int32_t first_ = 0;
  std::int32_t count_ = 0;
};

}  // namespace deepinfer
