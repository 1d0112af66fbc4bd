/// A node over the hash model on the CPU device: real actors and threads, tokens that any test can
/// compute, and a canary that reports every wrong read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/node.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/model/hash_runner.hpp"

namespace deepinfer {

struct hash_node_options {
  std::int32_t depth = 2;
  std::int32_t max_num_seqs = 8;
  std::int32_t num_kv_blocks = 256;
  std::int32_t block_size = 4;
  std::int32_t max_model_len = 1024;
  std::int32_t max_num_batched_tokens = 64;
  std::int32_t chunk_size = 16;
  std::int32_t max_queued_requests = 256;
  std::chrono::milliseconds watchdog{10'000};
  std::int32_t dp_size = 1;  ///< replicas
  bool prefix_cache = false;
  server_settings server{};  ///< but for max_queued_requests
  node_parts parts{};  ///< shared with the node, as its actor system
  /// Wraps the runner, for faults; null: as it is.
  std::function<std::shared_ptr<step_runner>(std::shared_ptr<hash_runner>)> wrap{};
};

struct hash_node {
  std::shared_ptr<hash_runner> runner;                ///< of the first replica
  std::vector<std::shared_ptr<hash_runner>> runners;  ///< of all
  std::shared_ptr<metrics> counts;
  std::unique_ptr<node> engine;
};

hash_node start_hash_node(const hash_node_options& options = {});

/// How long a test waits for what must come.
inline constexpr std::chrono::seconds patience{60};

/// A node where a request for `many_tokens` does not end by itself within a test.
hash_node_options endless();
inline constexpr std::int32_t many_tokens = 700'000;

/// Ids of the prompt text `name`, and what the model continues it with.
std::vector<token_id> prompt_ids(const std::string& name, std::int32_t count);
std::vector<token_id> expected_ids(const std::vector<token_id>& prompt, std::int32_t count);

/// A greedy request for `max_tokens` more ids.
generate_request greedy(std::vector<token_id> prompt, std::int32_t max_tokens);

/// Waits until nothing runs, then checks that every block and slot is free and no read was wrong.
void check_at_rest(const hash_node& it);

}  // namespace deepinfer
