/// Serves a workload with the product's actors and cores on a virtual clock: one rank, a device
/// whose steps take what a step model says, the hash model instead of weights, clients that only
/// look at the clock.
///
/// Everything runs on the calling thread; nothing waits. Two runs with equal arguments do the same
/// things in the same order. Tokens are hash tokens, and the model's canary watches every read: a
/// run in which it saw something is not to be trusted, and says so.
/// Errors: `internal` where a rank is lost or nothing more can happen, with the time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/simulate/step_model.hpp"
#include "actors/simulate/workload.hpp"
#include "runtime/base/error.hpp"
#include "runtime/core/bubble_accountant.hpp"
#include "runtime/core/scheduler_config.hpp"

namespace deepinfer {

/// Sizes as in the engine's settings; check_simulation says what fits together.
struct simulation_settings {
  std::int32_t depth = 2;
  std::int32_t num_drafts = 0;
  std::int32_t num_kv_blocks = 4096;
  std::int32_t block_size = 64;
  std::int32_t chunk_size = 2048;
  std::int32_t max_num_seqs = 256;
  std::int32_t max_num_batched_tokens = 8192;
  bool prefix_cache = true;
  bool mixed_steps = false;
  scheduler_policy policy;
  std::int64_t plan_ns = 100'000;   ///< what planning a step costs the host
  std::int64_t settle_ns = 50'000;  ///< and settling one
  step_model steps;
  acceptance_model acceptance;
  std::uint64_t seed = 1;  ///< of acceptance
};

/// bad_config where sizes contradict each other.
result<void> check_simulation(const simulation_settings& settings);

/// What became of one request. Times since the start; -1: never.
struct request_record {
  std::int64_t arrival_ns = 0;
  std::int64_t first_token_ns = -1;
  std::int64_t last_token_ns = -1;
  std::int32_t tokens = 0;
  bool has_finished = false;
  bool has_failed = false;  ///< ended otherwise than by its length
};

struct simulation_outcome {
  std::vector<request_record> requests;  ///< by request
  std::string failure;                   ///< why the first of those that failed did
  std::int64_t begin_ns = 0;             ///< the first arrival
  std::int64_t end_ns = 0;               ///< the last request's end
  scheduler_stats scheduler;
  bubble_totals device;
  std::uint64_t messages = 0;       ///< between actors
  std::uint64_t canary_errors = 0;  ///< 0, or the engine is broken
  std::string canary_text;          ///< the first of them
};

result<simulation_outcome> simulate(const simulation_settings& settings,
                                    std::span<const workload_request> workload);

}  // namespace deepinfer
