/// Slots and block tables of the hash model: what the device knows of each sequence, and the canary
/// that watches every read and write.
///
/// A row reads the entries of its prefix through its slot's block table: each must be written, have
/// its position, and a chain that follows from its neighbour and the sequence's ids; ring, partial
/// sum and compressed entries must be those of the slot's length. A write must go into a block that
/// plans gave this sequence and nobody else can see. Any violation goes to the log; nothing crashes
/// on a wrong table. Touched by compute phases only, so one step after the other.
/// Names of errors are those of scenarios 6. Source: scenarios 3 and 4.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "messages/plan.hpp"
#include "runtime/model/hash_kv.hpp"

namespace deepinfer {

/// What the device is told when an epoch of a sequence starts.
struct hash_start {
  slot_id slot;
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t outputs = 0;   ///< already known
  std::int32_t position = 0;  ///< of its first query: what is before it is in cached blocks
  std::int32_t output_limit = 0;
  hash_sampling sampling;
  std::shared_ptr<const hash_script> script;  ///< may be null
};

/// What the device knows of the sequence in one slot.
struct hash_slot {
  bool is_live = false;
  bool is_stale = false;   ///< a failed step left a hole: results are not looked at any more
  bool has_ended = false;  ///< the stop mask saw its end
  step_id gated_by;        ///< its newest row waits for this step's gate; 0: none
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::int32_t length = 0;   ///< true positions written: accepted ones
  token_id last_token = -1;  ///< newest id, not written yet
  std::int32_t prompt_tokens = 0;
  std::int32_t known_outputs = 0;  ///< when the epoch started
  std::int32_t output_limit = 0;
  std::int32_t decode_rows = 0;  ///< of this epoch
  hash_history history;          ///< of the outputs among the written positions
  std::uint64_t partial = 0;     ///< S: of the group that is not complete
  std::int32_t draft_count = 0;
  std::vector<token_id> drafts{};    ///< [num_drafts]
  std::vector<float> confidences{};  ///< [num_drafts]
  hash_sampling sampling;
  std::shared_ptr<const hash_script> script;
  std::unique_ptr<hash_sequence> truth;  ///< the rules alone, where the script has the prompt
  std::int32_t table_blocks = 0;         ///< ordinals that may be in use
  std::int32_t next_checked = 0;         ///< of hash_check::last_block
  std::int32_t* written_end = nullptr;

  /// What rows fell short of their width, by step.
  struct shortfall {
    step_id step;
    std::int32_t tokens = 0;
  };
  static constexpr std::size_t steps_remembered = 8;
  std::array<shortfall, steps_remembered> shortfalls{};
};

/// Where a row is while it writes.
struct hash_cursor {
  std::uint64_t chain = 0;
  std::uint64_t partial = 0;
};

class hash_state {
public:
  hash_state(const runner_config& config, const hash_model_config& model, canary_log* log);

  hash_kv& kv() { return kv_; }
  std::span<const hash_expert> experts() const { return experts_; }
  hash_slot& slot(slot_id id) { return slots_[static_cast<std::size_t>(id.value)]; }
  bool is_slot(slot_id id) const {
    return id.value >= 0 && static_cast<std::size_t>(id.value) < slots_.size();
  }

  void start(const hash_start& what);

  /// The first `hits` of a start's blocks are cached ones.
  void append_blocks(step_id step, slot_id slot, std::int32_t first_ordinal,
                     std::span<const block_id> blocks, std::int32_t hits);

  /// What the slot keeps of the cached prefix before its length, from the last of its blocks.
  void resume(step_id step, slot_id slot);

  /// Reads the prefix of the sequence in `slot` and checks it; where its next position starts from.
  hash_cursor read_prefix(step_id step, slot_id slot);

  /// Writes one position and moves the cursor behind it.
  void write(step_id step, slot_id slot, std::int32_t position, token_id id, hash_cursor& cursor);
  void write_overhang(step_id step, slot_id slot, std::int32_t position);

  /// Positions [slot.length, end) are accepted: `chains` are theirs.
  void accept(slot_id slot, std::int32_t end, std::span<const std::uint64_t> chains);

  /// Highest written position + 1 of a sequence, over all its epochs; 0 where ends are not kept.
  std::int32_t written_end(seq_id sequence) const;

  void poison_slot(slot_id slot);
  void reset();

private:
  static constexpr std::int32_t trap_block = -1;

  std::int32_t& table_at(slot_id slot, std::int32_t ordinal) {
    return tables_[static_cast<std::size_t>(std::int64_t{slot.value} * table_stride_ + ordinal)];
  }
  std::uint64_t& ring_at(slot_id slot, std::int32_t position) {
    return rings_[static_cast<std::size_t>(std::int64_t{slot.value} * ring_size_ +
                                           position % ring_size_)];
  }
  block_id block_of(slot_id slot, std::int32_t position);
  hash_entry* find(slot_id slot, std::int32_t position);
  hash_entry* find_writable(step_id step, slot_id slot, std::int32_t position);
  std::string place(step_id step, slot_id slot, std::int32_t position);
  void clear_slot(slot_id slot);
  bool check_entry(step_id step, slot_id slot, std::int32_t position, const hash_entry* entry,
                   std::uint64_t before);
  hash_cursor read_range(step_id step, slot_id slot, std::int32_t from, std::int32_t to);
  void check_ring(step_id step, slot_id slot, std::int32_t position, std::uint64_t chain);
  void save_resume_point(slot_id slot, std::int32_t end, const hash_cursor& cursor);

  runner_config config_;
  hash_model_config model_;
  canary_log* log_;
  hash_kv kv_;
  std::vector<hash_expert> experts_;
  std::int32_t table_stride_ = 0;
  std::int32_t ring_size_ = 0;
  std::vector<std::int32_t> tables_;  ///< [state_slots, table_stride], -1: trap block
  std::vector<std::uint64_t> rings_;  ///< [state_slots, ring_size]
  std::vector<hash_slot> slots_;
  std::unordered_map<seq_id, std::int32_t> written_ends_;
};

}  // namespace deepinfer
