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
enum class drafter_setting : std::uint8_t { automatic, dspark, ngram };
enum class acceptance_setting : std::uint8_t { coupled, rejection };
enum class verify_setting : std::uint8_t { fixed, confidence };
enum class victim_setting : std::uint8_t { youngest, longest_output, lowest_cost, lowest_priority };
enum class preempt_setting : std::uint8_t { deliver, drop };
enum class failure_setting : std::uint8_t { fail_rows, retry };
enum class replay_setting : std::uint8_t { off, mask, compact };
enum class sampling_rule : std::uint8_t { as_requested, deepseek };
enum class log_format : std::uint8_t { text, json };

enum class load_format : std::uint8_t { automatic, safetensors, drawn_weights };
enum class routing_rule : std::uint8_t { prefix, least_load, round_robin };
enum class request_logging : std::uint8_t { off, meta, full };

struct model_settings {
  std::string path;                           ///< checkpoint directory; empty = the embedded model
  std::vector<std::string> served_names;      ///< empty = the directory's name
  std::optional<std::int32_t> max_model_len;  ///< tokens; absent = what the model was made for
  load_format format = load_format::automatic;
  std::string script;  ///< answers of a scripted model (actors/scripted_model.hpp); empty = none
};

/// HTTP and the limits of requests.
struct server_settings {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  ///< 0: any free one
  std::int32_t max_queued_requests = 1024;
  std::chrono::milliseconds queue_timeout{600'000};  ///< 0: none
  std::vector<std::string> api_keys;                 ///< KEY or NAME=KEY
  std::string api_key_file;
  bool open_metrics = false;
  std::vector<std::string> cors_origins;
  std::uint64_t max_request_bytes = 32 << 20;
  std::int32_t max_json_depth = 64;
  std::int32_t max_n = 16;
  std::int32_t max_connections = 4096;
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};
  std::chrono::milliseconds idle_timeout{120'000};
  std::chrono::milliseconds keep_alive_interval{10'000};  ///< of comments in a stream
  bool eof_is_gone = true;
  bool strict_fields = false;
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::int32_t client_window = 64;  ///< chunks
  std::chrono::milliseconds slow_consumer_timeout{60'000};
  routing_rule routing = routing_rule::prefix;
  bool fair_shares = true;
  bool nonstream_keep_alive = false;
};

/// Remote clients and other nodes.
struct actor_settings {
  std::string host = "127.0.0.1";
  std::uint16_t port = 4242;  ///< 0: any free one
  bool is_enabled = true;
  std::vector<std::string> peers;  ///< HOST:PORT, nodes to send requests to
  std::vector<std::string> join;   ///< HOST:PORT, nodes that may send requests here
  std::string node_name;           ///< empty: host name and port
  std::chrono::milliseconds heartbeat_interval{1'000};
  std::chrono::milliseconds connection_timeout{5'000};
  std::string tls_certificate, tls_key, tls_ca;  ///< all or none
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
  std::int32_t num_drafts = 0;     ///< d: a decode row verifies so many
  drafter_setting drafter = drafter_setting::automatic;
  acceptance_setting acceptance = acceptance_setting::coupled;
  verify_setting verify = verify_setting::fixed;
  bool stop_mask = true;  ///< rows of ended sequences compute nothing
  bool prefix_cache = true;
  std::int32_t resume_stride = 1;  ///< blocks from one resume point of a prefix to the next
  std::int32_t prefix_host_blocks = 0;
  victim_setting victim = victim_setting::lowest_cost;
  preempt_setting preempt_output = preempt_setting::deliver;
  failure_setting on_step_failure = failure_setting::fail_rows;
  bool priority_preempts = false;
  bool stop_in_reasoning = false;
  std::int32_t min_decode_gap = 4;   ///< decode steps between prefill steps
  std::int32_t max_prefill_run = 0;  ///< prefill steps in a row while rows decode; 0: see the core
  replay_setting replay = replay_setting::off;
  std::int32_t replay_keep_tokens = 0;
  device_kind device = device_kind::automatic;
  std::optional<std::int32_t> num_threads;  ///< of the kernel team; absent = the machine's cores
  bool pin_threads = true;  ///< each to its core, where the team has one thread per core
  numeric_setting numeric = numeric_setting::exact;
  kernel_setting kernels = kernel_setting::automatic;
  std::optional<std::uint64_t> seed;  ///< of requests that bring none; absent = drawn for each
  sampling_rule sampling_policy = sampling_rule::as_requested;
  std::chrono::milliseconds watchdog{
    60'000};  ///< a device step unanswered for this long has failed
  std::int32_t dp_size = 1;  ///< replicas
};

struct observability_settings {
  severity level = severity::info;
  log_format format = log_format::text;
  std::string trace_file;  ///< Chrome trace written at the end; empty = none
  std::int32_t trace_buffer_steps = 4096;
  std::chrono::milliseconds stats_interval{5'000};  ///< 0: none
  request_logging log_requests = request_logging::meta;
  std::string metrics_prefix = "deepinfer:";
};

struct engine_settings {
  model_settings model;
  server_settings server;
  actor_settings actor;
  step_settings engine;
  observability_settings observability;
};

}  // namespace deepinfer
