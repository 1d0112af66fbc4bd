/// What a sequence leaves on the device between steps: how many bytes of each kind, and the arrays.
///
/// Per slot: a ring of window rows in every layer (draft stages included), a ring of pooling sums
/// in every compressor, length, newest id, block table. Per block of `block_size` positions:
/// compressed rows and index keys of every source, token ids and, with a prefix cache, its resume
/// point: the window rows before its end of every ring. All values are f32 (in released mode the
/// rounded ones). Position p of a ring lies at p mod ring. A ring is longer than what is read
/// of it (window, ratio) by depth * (1 + drafts) + overhang: as many positions as launched steps
/// and a draft pass may write past the committed length. So a rewind is only "set the length", and
/// no reader ever looks at a position at or above its own.
/// With a host tier, blocks may also lie in places of it, in one piece (kernels/step/copy_blocks).
/// Errors: invalid_argument where the sizes of a runner_config do not fit the model.
/// Source: model-v41.md 14.1, 14.3; architecture.md 6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/step/copy_blocks.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/model/lazy_array.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

struct kv_layout {
  static constexpr std::int32_t none = std::numeric_limits<std::int32_t>::max();

  std::int32_t slots = 0;
  std::int32_t blocks = 0;
  std::int32_t block_size = 0;    ///< positions per block
  std::int32_t table_stride = 0;  ///< block table entries per slot
  std::int32_t window_ring = 0;   ///< rows of a window ring
  std::int32_t head_dim = 0;
  std::int32_t index_head_dim = 0;
  std::int32_t resume_every = 0;   ///< positions between two resume points; 0: blocks have none
  std::int32_t resume_rows = 0;    ///< window rows of one, per ring
  std::int32_t host_blocks = 0;    ///< places of the host tier
  std::int32_t late_layer = none;  ///< first one that replay bounds

  /// One per layer, draft stages last.
  struct layer {
    std::int32_t pool_ring = 0;  ///< positions of the pooling ring; 0: no compressor, or ratio 1
    std::int32_t rows_per_block = 0;  ///< compressed rows; 0: owns none
    std::int32_t keys_per_block = 0;  ///< index keys; 0: owns none
    bool has_window = false;
  };
  std::vector<layer> layers;

  std::int64_t slot_bytes() const;     ///< rings of one slot, its table and counters
  std::int64_t block_bytes() const;    ///< rows, keys, ids and resume point of one block
  std::int64_t resume_bytes() const;   ///< of block_bytes: the resume point
  std::int64_t window_bytes() const;   ///< of slot_bytes: window rings
  std::int64_t pooling_bytes() const;  ///< of slot_bytes: pooling rings
  std::int64_t host_bytes() const { return host_blocks * block_bytes(); }
  /// The host tier included. Any block may come to be a resume point, whatever the stride.
  std::int64_t total_bytes() const {
    return slots * slot_bytes() + blocks * block_bytes() + host_bytes();
  }
};

/// `with_draft`: also rings for the draft stages.
result<kv_layout> make_kv_layout(const model_config& model, const runner_config& runner,
                                 bool with_draft);

/// The arrays of a layout, zero until written.
struct kv_state {
  explicit kv_state(kv_layout sizes);

  struct layer {
    lazy_array<float> window;   ///< [slots, window_ring, head_dim]
    lazy_array<float> pooling;  ///< [slots, pool_ring, 2, head_dim]
    lazy_array<float> rows;     ///< [blocks, rows_per_block, head_dim]
    lazy_array<float> keys;     ///< [blocks, keys_per_block, index_head_dim]
    lazy_array<float> resume;   ///< [blocks, resume_rows, head_dim] oldest first
  };

  kv_layout layout;
  std::vector<layer> layers;
  lazy_array<std::int32_t> tokens;      ///< [blocks, block_size]
  lazy_array<std::int32_t> tables;      ///< [slots, table_stride], -1: no block
  lazy_array<std::int32_t> length;      ///< [slots] positions written by the steps that ran
  lazy_array<std::int32_t> newest;      ///< [slots] id that belongs to position `length`, or -1
  lazy_array<std::int32_t> late_begin;  ///< [slots] oldest position the late layers have rows of
  lazy_array<std::byte> host;           ///< [host_blocks, block_bytes]
  std::vector<kernels::block_part> block_parts;  ///< everything a block holds

  /// No slot has a sequence any more. What the rings and blocks hold stays: nobody will read it.
  void forget_all();
  /// Overwrites what freed blocks and slots hold: floats with NaN, ids with -1.
  void poison(std::span<const block_id> freed_blocks, std::span<const slot_id> freed_slots);
};

}  // namespace deepinfer
