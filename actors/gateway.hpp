/// Gateway: the clients' side of a node. Messages: protocol.hpp.
///
/// Checks and tokenizes requests (`request_intake`), names them, hands sequences to the rank, turns
/// tokens into text (`output_stream`) and sends chunks to the client's sink. A request whose sink
/// leaves is cancelled. If the rank is lost, requests that had started (their first row was
/// launched) end with one error, `rank_lost`; the others are given back to the watcher, in order.
/// Without one they are queued again when the rank is back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "actors/output_stream.hpp"
#include "actors/protocol.hpp"
#include "actors/request_intake.hpp"
#include "runtime/base/metrics.hpp"

namespace deepinfer {

struct gateway_config {
  gateway_config() = default;

  std::shared_ptr<const request_intake> intake;
  std::optional<std::uint64_t> seed;      ///< for requests that bring none; absent = drawn
  std::int32_t max_open_requests = 1024;  ///< more are refused with queue_full
  metrics* counts = nullptr;              ///< null: nothing is counted
  request_watcher_actor watcher;          ///< null: nobody is told how requests fare
  std::int32_t replica = 0;               ///< what the watcher calls this one
  std::function<void(const sequence_request&)> on_accepted;  ///< null: nobody
  std::function<void(seq_id)> on_forgotten;
};

struct gateway_request {
  std::string id;
  sequence_request sequence;
  output_stream output;
  caf::actor sink;
  std::uint64_t next_seq = 0;
  bool has_started = false;
  std::int32_t cached_tokens = 0;  ///< of the prompt, when it started
  bool is_cancelled = false;
};

struct gateway_state {
  static inline const char* name = "gateway";

  gateway_config config;
  std::optional<scheduler_actor> rank;  ///< absent while it is lost
  bool is_down = false;                 ///< and nobody tries to bring it back: requests are refused
  std::map<seq_id, std::unique_ptr<gateway_request>> requests;  ///< in arrival order
  std::unordered_map<std::string, seq_id> by_id;
  std::uint64_t sequences = 0;
  std::uint64_t requests_seen = 0;
};

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self,
                                     gateway_config config);

}  // namespace deepinfer
