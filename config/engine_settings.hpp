/// What the engine is told at start-up: one field per setting of `messages/engine.proto`, checked.
///
/// Made by `make_effective` (config/effective.hpp) from flags, environment, file and defaults; read
/// by the actors. Times are durations, sizes bytes, and an absent optional means "decide at load".
/// `chunk_size` 0 means that only the token budget limits a prompt chunk.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.hpp"

namespace deepinfer {

enum class device_kind : std::uint8_t { automatic, cpu, virtual_clock };
enum class numeric_setting : std::uint8_t { exact, released, fast };
enum class kernel_setting : std::uint8_t { automatic, reference, avx2 };
enum class sampling_rule : std::uint8_t { as_requested, deepseek };
enum class log_format : std::uint8_t { text, json };

struct model_settings {
  std::string path;                           ///< checkpoint directory; empty = the embedded model
  std::vector<std::string> served_names;      ///< empty = the directory's name
  std::optional<std::int32_t> max_model_len;  ///< tokens; absent = what the model was made for
};

struct server_settings {
  std::int32_t max_queued_requests = 1024;
};

struct step_settings {
  std::int32_t max_num_seqs = 256;             ///< rows of a step
  std::int32_t max_num_batched_tokens = 8192;  ///< query tokens of a step
  std::int32_t block_size = 64;                ///< tokens per KV block
  std::optional<std::int32_t> num_kv_blocks;  ///< absent: from `kv_cache_memory`, or chosen at load
  std::optional<std::uint64_t> kv_cache_memory;  ///< bytes; never set together with num_kv_blocks
  std::int32_t depth = 2;                        ///< most steps in flight, 1..3; 1 = synchronous
  std::int32_t chunk_size = 2048;  ///< most prompt tokens of a row in one step; 0 = no limit
  bool mixed_steps = false;        ///< may a step hold prefill and decode rows together
  device_kind device = device_kind::automatic;
  std::optional<std::int32_t> num_threads;  ///< of the kernel team; absent = the machine's cores
  bool pin_threads = true;  ///< each to its core, where the team has one thread per core
  numeric_setting numeric = numeric_setting::exact;
  kernel_setting kernels = kernel_setting::automatic;
  std::optional<std::uint64_t> seed;  ///< of requests that bring none; absent = drawn for each
  sampling_rule sampling_policy = sampling_rule::as_requested;
  std::chrono::milliseconds watchdog{
    60'000};  ///< a device step unanswered for this long has failed
};

struct observability_settings {
  severity level = severity::info;
  log_format format = log_format::text;
  std::string trace_file;  ///< Chrome trace written at the end; empty = none
  std::int32_t trace_buffer_steps = 4096;
};

struct engine_settings {
  model_settings model;
  server_settings server;
  step_settings engine;
  observability_settings observability;
};

}  // namespace deepinfer
