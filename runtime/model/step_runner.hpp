/// What a worker drives: a model with all device-resident state of one rank, behind two calls.
///
/// `stage` turns a plan into device work (host arrays of a staging ring slot, nothing else); the
/// device runs the work; `collect` reads what it left. DeepSeek-V4.1 and the hash model implement
/// it; nobody above knows which one runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/isa.hpp"
#include "kernels/linear/packed_matrix.hpp"
#include "messages/plan.hpp"
#include "runtime/base/device_work.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// `exact`: dequantised weights, unrounded f32 activations. `released`: every rounding of the
/// published numerics. `fast`: inputs of the large products as int8, their weights int8 or FP4.
enum class numeric_mode : std::uint8_t { exact, released, fast };

/// How the weights of a model that runs in `mode` are packed.
constexpr kernels::packing packing_of(numeric_mode mode) {
  return mode == numeric_mode::fast ? kernels::packing::fast : kernels::packing::exact;
}

/// Where drafts come from: the checkpoint's block drafter, or n-grams of the sequence's own ids.
enum class drafter_kind : std::uint8_t { none, dspark, ngram };

/// `coupled`: a draft is accepted iff it equals the token that plain decoding would choose.
/// `rejection`: the classical rule with a residual; equal in distribution only.
enum class acceptance_rule : std::uint8_t { coupled, rejection };

/// Bounded replay of a prompt in the late layers (replay.hpp): all of it, or its last keep_tokens;
/// `mask` computes what `compact` leaves out, with the same results.
enum class replay_mode : std::uint8_t { off, mask, compact };

/// Sizes of the device-resident state. All fixed at construction.
struct runner_config {
  std::int32_t depth = 2;       ///< most steps in flight: the staging ring has depth + 1 slots
  std::int32_t num_drafts = 0;  ///< d: rings hold depth * (1 + d) + draft_overhang positions more
  std::int32_t draft_overhang = 0;
  std::int32_t max_num_seqs = 256;
  std::int32_t state_slots = 512;
  std::int32_t max_num_batched_tokens = 8192;
  std::int32_t max_model_len = 0;
  std::int32_t num_kv_blocks = 0;
  std::int32_t block_size = 64;  ///< tokens per block; a multiple of every compression ratio
  numeric_mode numeric = numeric_mode::exact;
  kernels::isa kernels = kernels::best_isa();

  drafter_kind drafter = drafter_kind::none;
  acceptance_rule acceptance = acceptance_rule::coupled;
  bool stop_mask = false;     ///< rows of sequences that have ended compute nothing
  bool prefix_cache = false;  ///< full blocks carry what a sequence needs to go on behind them
  std::int32_t resume_stride = 1;  ///< every so many blocks of a sequence do
  std::int32_t host_blocks = 0;    ///< places of the cache's host tier

  replay_mode replay = replay_mode::off;  ///< not together with prefix_cache
  std::int32_t keep_tokens = 0;           ///< of replay: at least the window; 0 without it
};

class step_runner {
public:
  virtual ~step_runner() = default;

  virtual const runner_config& config() const = 0;
  virtual std::int32_t vocab_size() const = 0;

  /// Fills the staging slot of plan->step and returns its work. At most `depth` works may be
  /// unfinished. The plan is kept until the work is collected.
  virtual std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) = 0;

  /// Masks for the rows of `work` that wait for them, before its phase sample_gated is launched.
  virtual void set_masks(device_work& work, std::shared_ptr<const sample_gate> masks) = 0;

  /// Reads the result of finished work into `out` (cleared first; `times` is the caller's).
  virtual void collect(const device_work& work, step_result& out) = 0;

  /// Forgets every sequence, as after a rank's restart. No work may be unfinished.
  virtual void reset() = 0;

  /// Fills freed slots and blocks with NaN or poison, for tests: results must not change.
  virtual void poison(std::span<const block_id> blocks, std::span<const slot_id> slots) = 0;
};

}  // namespace deepinfer
