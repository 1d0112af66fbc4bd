/// The device-resident state of the hash model, and the canary that watches it.
///
/// An entry (block, offset) of KV holds the position, the id that was fed, its chain and the step
/// that wrote it. A row reads every entry before its first query through its slot's block table:
/// each must be written, have its position, and a chain that follows from its neighbour and the
/// sequence's ids. Any violation goes to the error list; nothing crashes on a wrong table. Touched
/// by compute phases only, so one step after the other; the error list may be read from any thread.
/// Names of errors are those of scenarios 6. Source: scenarios 3 and 4.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "messages/plan.hpp"
#include "runtime/model/hash_model.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

struct canary_error {
  std::string name;  ///< e.g. "canary_mismatch"
  std::string text;  ///< step, sequence, place, found, expected
};

/// At most 100 errors are kept; all are counted. Thread-safe.
class canary_log {
public:
  void add(std::string_view name, std::string text);
  std::vector<canary_error> errors() const;
  std::uint64_t count() const;
  void clear();

private:
  mutable std::mutex mutex_;
  std::vector<canary_error> errors_;
  std::uint64_t count_ = 0;
};

/// What the device is told when an epoch of a sequence starts.
struct hash_start {
  slot_id slot;
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t position = 0;  ///< of its first query: what is before it is in the cache
  hash_sampling sampling;
  std::shared_ptr<const hash_script> script;  ///< may be null
};

/// What the device knows of the sequence in one slot.
struct hash_slot {
  bool is_live = false;
  bool is_stale = false;  ///< a failed step left a hole: results are not looked at any more
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::int32_t length = 0;   ///< positions written
  token_id last_token = -1;  ///< newest id, not written yet
  std::int32_t prompt_tokens = 0;
  std::uint64_t penalty_sum = 0;  ///< over the outputs among the written positions
  hash_sampling sampling;
  std::shared_ptr<const hash_script> script;
  std::unique_ptr<hash_sequence> truth;  ///< the rules alone, where the script has the prompt
};

class hash_state {
public:
  hash_state(const runner_config& config, const hash_model_config& model, canary_log* log);

  hash_slot& slot(slot_id id) { return slots_[static_cast<std::size_t>(id.value)]; }
  bool is_slot(slot_id id) const {
    return id.value >= 0 && static_cast<std::size_t>(id.value) < slots_.size();
  }

  void start(const hash_start& what);
  void append_blocks(step_id step, slot_id slot, std::int32_t first_ordinal,
                     std::span<const block_id> blocks);

  /// Reads the entries before `end` of the sequence in `slot`, checks each, and gives the last
  /// chain.
  std::uint64_t read_prefix(step_id step, slot_id slot, std::int32_t end);

  /// Writes one position; the new chain.
  std::uint64_t write(step_id step, slot_id slot, std::int32_t position, token_id id,
                      std::uint64_t chain_before);

  void poison_block(block_id block);
  void poison_slot(slot_id slot);
  void reset();

private:
  enum class entry_state : std::uint8_t { unwritten, written, freed };
  struct kv_entry {
    entry_state state = entry_state::unwritten;
    token_id id = -1;
    std::int32_t position = -1;
    std::uint64_t chain = 0;
    step_id writer;
  };

  kv_entry* find(slot_id slot, std::int32_t position);
  std::string place(step_id step, slot_id slot, std::int32_t position);

  runner_config config_;
  hash_model_config model_;
  canary_log* log_;
  std::int32_t table_stride_;
  std::vector<kv_entry> entries_;     ///< [num_kv_blocks, block_size]
  std::vector<std::int32_t> tables_;  ///< [state_slots, table_stride], -1: trap block
  std::vector<hash_slot> slots_;
};

}  // namespace deepinfer
