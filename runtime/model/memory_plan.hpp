/// What fits where: bytes of weights and state per rank, and the sequences that leaves room for.
///
/// A pure function of the config and of a few sizes; nothing is loaded. Routed experts are split
/// over the ranks (the largest rank counts: ceil), Engram tables by rows padded to a multiple of
/// lcm(256, ranks), everything else is replicated. `headroom` is the share of device memory left
/// for activations, buffers and the allocator. Units: bytes unless said otherwise.
/// For the released config: 890 bytes per token, 528 per window row, 2,883,408 per resume point,
/// 18,800,640 per expert.
/// Source: model-v41.md 14.1 (state), 18 (resume points), 19 (sharding).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/checkpoint_tensors.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {

/// How rows and keys are kept.
enum class state_format : std::uint8_t {
  released,  ///< windows FP8 with scales, main rows FP4 (or FP8), index keys FP4
  bf16,
  f32,  ///< this CPU engine
};
std::string_view name_of(state_format format);

struct plan_request {
  std::int32_t ranks = 1;          ///< expert-parallel ranks (--ep-size), >= 1
  std::int64_t device_memory = 0;  ///< of one rank
  double headroom = 0.1;           ///< share of it, in [0, 1)
  std::int32_t spare_experts = 0;  ///< extra copies over all ranks, per layer
  bool engram_on_device = true;    ///< false: tables in host memory, or left out of the sum
  state_format format = state_format::released;
  std::int32_t depth = 2;  ///< most steps in flight
  std::int32_t num_drafts = 0;
  std::int32_t draft_overhang = 0;  ///< positions a draft pass writes past its step
  std::int32_t block_size = 64;     ///< tokens per block, a multiple of every ratio
  std::int64_t max_model_len = 0;   ///< 0: the model's
  bool prefix_cache = false;        ///< blocks carry resume points, each of them in the worst case
  std::int64_t host_blocks = 0;     ///< places of the cache's host tier, in host memory
};

/// State of one sequence and of one block of tokens.
struct state_bytes {
  std::int64_t window_rows = 0;  ///< rows of one ring
  std::int64_t window = 0;       ///< all window rings of a sequence
  std::int64_t pooling = 0;      ///< all pooling rings of a sequence, f32 in every format
  std::int64_t block_rows = 0;   ///< compressed rows of a block, all sources
  std::int64_t block_keys = 0;   ///< index keys of a block, all sources
  double per_token = 0;          ///< growth: (block_rows + block_keys) / block_size
  /// What a block of a prefix cache may keep besides: window - 1 rows of every ring.
  std::int64_t resume_point = 0;
  bool has_resume_points = false;

  std::int64_t sequence() const { return window + pooling; }
  std::int64_t block() const {
    return block_rows + block_keys + (has_resume_points ? resume_point : 0);
  }
};

struct kind_bytes {
  tensor_kind kind = tensor_kind::embeddings;
  std::int64_t bytes = 0;
  bool is_on_device = true;
};

/// How many sequences of one length fit beside the weights.
struct plan_fit {
  std::int64_t tokens_each = 0;
  std::int64_t sequences = 0;
};

struct memory_plan {
  plan_request request;
  std::int64_t max_model_len = 0;
  std::vector<kind_bytes> weights;    ///< the fullest rank, by kind
  std::int64_t weight_bytes = 0;      ///< of those on the device
  std::int64_t all_weight_bytes = 0;  ///< of the whole model, once
  std::int64_t bytes_per_expert = 0;  ///< one routed expert of one layer
  std::int64_t experts_per_rank = 0;  ///< per layer, spares included
  state_bytes state;
  std::int64_t free_bytes = 0;    ///< for state; negative: the weights do not fit
  std::int64_t tokens = 0;        ///< that free_bytes holds in blocks, with no sequence state
  std::int64_t resume_bytes = 0;  ///< resume points of these blocks
  std::int64_t host_bytes = 0;    ///< the host tier, not on the device
  std::vector<plan_fit> fits;
};

/// Sizes of the per-sequence state. Requires block_size to be a multiple of every ratio.
state_bytes state_bytes_of(const model_config& config, const plan_request& request);

/// Errors: invalid_argument names the request field, e.g. "ep_size: found 0, expected at least 1".
result<memory_plan> plan_memory(const model_config& config, const plan_request& request);

/// Lines for a terminal, aligned.
std::string to_table(const memory_plan& plan);
json::object to_json(const memory_plan& plan);

/// "18.80 MB", "890 B": decimal units, as disks and the release count.
std::string bytes_text(std::int64_t bytes);

}  // namespace deepinfer
