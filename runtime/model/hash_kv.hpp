/// KV blocks of the hash model: entries, who may write them, what a cached prefix needs, host tier.
///
/// An entry (block, offset) holds the position, the id that was fed, its chain, the compressed
/// entry of the group that its position completes, and the step that wrote it. A block is leased to
/// the sequence whose plan appended it last, and shared once a prefix hit names it or note_shared
/// says so. With prefix_cache every resume_stride-th block of a sequence keeps the window and the
/// partial sum at its end: its resume point. Blocks and host places exchange all of it. Phases
/// only, one after the other, but note_shared: any thread. Errors go to the log.
/// Source: scenarios 3, 4.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "messages/kv.hpp"
#include "runtime/model/hash_canary.hpp"
#include "runtime/model/hash_model.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

enum class hash_entry_state : std::uint8_t {
  unwritten,
  written,
  overhang,  ///< by a drafter, past its row: nobody reads it
  freed,
};

struct hash_entry {
  hash_entry_state state = hash_entry_state::unwritten;
  token_id id = -1;
  std::int32_t position = -1;
  std::uint64_t chain = 0;
  std::uint64_t compressed = 0;  ///< where the position is the last of its group
  step_id writer;
};

struct hash_lease {
  slot_id slot{-1};
  seq_id sequence;
  std::uint32_t epoch = 0;
  bool is_shared = false;
};

/// State at the end of a block; its window, apart: the chains of the last W positions before `end`,
/// or of all of them where there are fewer.
struct hash_resume_point {
  std::int32_t end = -1;  ///< -1: there is none
  std::uint64_t partial = 0;
};

class hash_kv {
public:
  hash_kv(const runner_config& config, const hash_model_config& model, canary_log* log);

  void reset();

  bool is_block(block_id block) const {
    return block.value >= 0 && block.value < config_.num_kv_blocks;
  }
  std::span<hash_entry> entries(block_id block) { return entries_at(block.value); }
  hash_lease& lease(block_id block) { return leases_[static_cast<std::size_t>(block.value)]; }
  hash_resume_point& resume_point(block_id block) {
    return points_[static_cast<std::size_t>(block.value)];
  }
  std::span<std::uint64_t> resume_window(block_id block) { return window_at(block.value); }

  /// The block becomes `holder`'s alone: what a free block held is gone.
  void take(block_id block, const hash_lease& holder);

  /// Whether writes into the block would be seen by somebody else.
  bool is_shared(block_id block) const {
    const auto i = static_cast<std::size_t>(block.value);
    return leases_[i].is_shared || noted_[i].load(std::memory_order_relaxed);
  }
  void note_shared(block_id block, bool is_shared);

  /// A step that was to write into the block has failed: until the block is taken or freed, who
  /// begins behind it begins behind a hole.
  void note_hole(block_id block) {
    if (is_block(block)) holes_[static_cast<std::size_t>(block.value)] = 1;
  }
  bool has_hole(block_id block) const { return holes_[static_cast<std::size_t>(block.value)] != 0; }

  void move(step_id step, const block_move& what);
  void poison(block_id block);

  /// A padded token: position `offset` of the reserved block, which no table can name.
  void write_padding(step_id step, std::int32_t offset);

private:
  std::span<hash_entry> entries_at(std::int32_t place) {
    const auto size = static_cast<std::size_t>(config_.block_size);
    return std::span(entries_).subspan(static_cast<std::size_t>(place) * size, size);
  }
  std::span<std::uint64_t> window_at(std::int32_t place) {
    return std::span(windows_).subspan(static_cast<std::size_t>(place) * window_, window_);
  }
  void copy_place(std::int32_t from, std::int32_t to);

  runner_config config_;
  canary_log* log_;
  std::size_t window_ = 0;
  std::vector<hash_entry> entries_;             ///< [blocks + host places + reserved, block_size]
  std::vector<hash_resume_point> points_;       ///< [blocks + host places]
  std::vector<std::uint64_t> windows_;          ///< [blocks + host places, W]
  std::vector<hash_lease> leases_;              ///< [blocks]
  std::vector<std::uint8_t> holes_;             ///< [blocks]
  std::unique_ptr<std::atomic<bool>[]> noted_;  ///< [blocks]
};

}  // namespace deepinfer
