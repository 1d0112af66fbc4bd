/// A scheduler small enough to trust, which drives a step_runner with plans: chunked prefill beside
/// decode, up to `depth` steps staged ahead, every way a row can get its tokens, blocks and slots
/// that are reused, rows of several widths, rows whose sampling waits for masks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "messages/plan.hpp"
#include "model_fixture.hpp"
#include "runtime/device/device.hpp"
#include "runtime/model/model_runner.hpp"

namespace deepinfer::test {

struct drive_request {
  ids prompt;
  std::int32_t max_tokens = 8;
  sampling_params params;
  std::int32_t arrival = 0;  ///< first step that may name it
  bool is_gated = false;     ///< its tokens wait for drive_options::mask
};

/// Drafts that are known in advance: of the sequence with this seed, draft i is right iff
/// i < accepts[position of the anchor mod size]. `known` are a request's outputs.
struct forced_drafts {
  std::vector<std::int32_t> accepts;
  struct sequence {
    std::uint64_t seed = 0;
    std::int32_t prompt_tokens = 0;
    ids outputs;
  };
  std::vector<sequence> known;
};

struct drive_options {
  std::int32_t depth = 1;
  std::int32_t chunk = 0;        ///< most prompt tokens per row; 0: whole
  std::uint64_t chunk_seed = 0;  ///< not 0: random chunks of 1 to `chunk`
  std::int32_t rows_max = 64;
  std::uint64_t skip_seed = 0;          ///< not 0: decode rows sit out at random steps
  bool settled_rows_from_slot = false;  ///< a settled row's id comes from its slot, not the host
  bool poisons = false;  ///< freed blocks and slots are overwritten before they are reused
  bool reverses_rows = false;
  std::int32_t threads = 1;
  numeric_mode numeric = numeric_mode::exact;
  std::int32_t blocks = 96;
  std::int32_t block_size = 16;
  std::int32_t slots = 8;
  std::int32_t batched_tokens = 512;
  std::int32_t num_drafts = 0;
  drafter_kind drafter = drafter_kind::none;
  acceptance_rule acceptance = acceptance_rule::coupled;
  const forced_drafts* forced = nullptr;  ///< instead of the drafter
  bool stop_mask = false;
  bool prefix_cache = false;  ///< blocks keep resume points
  replay_mode replay = replay_mode::off;
  std::int32_t keep_tokens = 0;
  std::uint64_t width_seed = 0;  ///< not 0: decode rows are planned with 1 to 1 + d tokens
  std::uint64_t split_seed = 0;  ///< not 0: decode steps have fewer tokens than their rows together
  bool delays_masks = false;     ///< masks are sent when the step is settled, not at once
  /// Bits of the ids that output `output` of a gated sequence may be; null: all.
  std::function<std::vector<std::uint32_t>(std::size_t sequence, std::int32_t output)> mask;
  device* on = nullptr;  ///< launches steps there; null: runs them in place when they settle
};

struct driven_output {
  ids tokens;
  std::vector<token_logprobs> logprobs;
  row_error error = row_error::none;  ///< what ended it, if not its length

  bool operator==(const driven_output& other) const;
};

/// What the rows of a drive were like.
struct drive_counts {
  std::int64_t decode_rows = 0;  ///< that gave tokens
  std::int64_t given = 0;        ///< tokens of these
  std::int64_t queries = 0;      ///< tokens that all decode rows had
  std::int64_t dead_rows = 0;
  std::int64_t gated_behind = 0;  ///< gated steps that were sampled behind a later forward
};

/// A runner with the sizes of `options`.
std::unique_ptr<model_runner> make_runner(const weights_ptr& weights, const drive_options& options);

/// Runs all requests to their max_tokens (or id `stop`, cut after it) and returns their outputs.
/// Nothing is launched for a sequence beyond max_tokens; rows past a stop over-run.
std::vector<driven_output> drive(step_runner& runner, const std::vector<drive_request>& requests,
                                 const drive_options& options, token_id stop = -1,
                                 drive_counts* counts = nullptr);

/// On a fresh runner.
std::vector<driven_output> drive(const weights_ptr& weights,
                                 const std::vector<drive_request>& requests,
                                 const drive_options& options, token_id stop = -1,
                                 drive_counts* counts = nullptr);

}  // namespace deepinfer::test
