/// Gateway: the clients' side of one replica. Messages: protocol.hpp.
///
/// Checks and tokenizes requests (`request_intake`; long prompts in a thread of their own), names
/// them, hands their sequences to the rank, turns tokens into text and sends chunks to the clients'
/// sinks (`open_request`): one message for all chunks of a settled step and a sink. A request whose
/// sink leaves is cancelled. One whose client does not take its chunks is held once its window is
/// full, and ended with slow_consumer when nothing is taken for too long.
///
/// If the rank is lost, requests that had started (their first row was launched) end with one
/// error, `rank_lost`; the others are given back to the watcher, in order. Without one they are
/// queued again when the rank is back.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/intake_worker.hpp"
#include "actors/open_request.hpp"
#include "actors/pending.hpp"
#include "actors/protocol.hpp"
#include "config/engine_settings.hpp"
#include "runtime/base/span_ring.hpp"

namespace deepinfer {

struct gateway_config {
  gateway_config() = default;

  std::shared_ptr<const request_intake> intake;
  std::optional<std::uint64_t> seed;           ///< for requests that bring none; absent = drawn
  std::int32_t max_open_requests = 1024;       ///< answers; more are refused with queue_full
  metrics* counts = nullptr;                   ///< null: nothing is counted
  request_watcher_actor watcher;               ///< null: nobody is told how requests fare
  std::int32_t replica = 0;                    ///< what the watcher calls this one
  std::int32_t max_n = 16;                     ///< answers of a request
  std::chrono::milliseconds queue_timeout{0};  ///< until a request starts; 0: none
  std::chrono::milliseconds slow_consumer_timeout{60'000};  ///< 0: none
  request_logging log_requests = request_logging::off;
  std::shared_ptr<span_ring> spans;      ///< gets where the time of each request went; null: nobody
  std::size_t inline_bytes = 16 << 10;   ///< a longer text is tokenized elsewhere
  std::size_t max_long_prompts = 64;     ///< that wait for that; more are refused
  std::function<std::int64_t()> now_us;  ///< null: the steady clock
  std::function<void(const sequence_request&)> on_accepted;  ///< null: nobody
  std::function<void(seq_id)> on_forgotten;
};

/// Where chunks of some requests go.
struct client_sink {
  caf::actor handle;
  std::int32_t requests = 0;
  chunk_list due;  ///< sent together
};

struct gateway_request {
  gateway_request(open_request it, client_sink* to) : what(std::move(it)), sink(to) {}

  open_request what;
  client_sink* sink;
  bool is_cancelled = false;
  bool is_touched = false;
  std::optional<request_phase> gone_in;  ///< its client has ended it
  std::int32_t pending_counted = 0;
};

/// A request whose long prompt is being tokenized.
struct long_intake {
  ticket number;
  intake_job_ptr job;
  client_sink* sink = nullptr;
  std::int64_t arrived_us = 0;
};

struct gateway_state {
  static inline const char* name = "gateway";

  gateway_state() = default;

  gateway_config config;
  request_counts counts;
  std::optional<scheduler_actor> rank;  ///< absent while it is lost
  bool is_down = false;                 ///< and nobody tries to bring it back: requests are refused
  std::map<std::uint64_t, std::unique_ptr<gateway_request>> requests;  ///< in arrival order
  std::unordered_map<std::string, std::uint64_t> by_id;
  std::unordered_map<seq_id, std::pair<gateway_request*, std::int32_t>> by_sequence;
  std::unordered_map<caf::actor_addr, client_sink> sinks;  ///< each is monitored
  std::vector<gateway_request*> touched;                   ///< in this message
  std::map<std::string, long_intake> intakes;
  pending<std::string> intake_answers;
  intake_worker_actor worker;  ///< null: no long prompt has come
  std::uint64_t sequences = 0;
  std::uint64_t requests_seen = 0;
  std::uint64_t tickets = 0;
  bool has_tick = false;  ///< a tick is on its way
};

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self,
                                     gateway_config config);

}  // namespace deepinfer
