/// What a serving process says about itself: banner, warnings, the line when it is ready, the line
/// every few seconds. Plain functions of facts.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node.hpp"
#include "config/effective.hpp"
#include "messages/client.hpp"

namespace deepinfer {

/// 131072 is "131,072".
std::string grouped(std::int64_t number);

/// "http://127.0.0.1:8000"; an IPv6 address gets its brackets.
std::string url_of(std::string_view host, std::uint16_t port);

/// Settings that are not at their default, as "key value (origin)"; keys of clients are masked.
std::vector<std::string> changed_settings(const effective_config& config);

/// Doors that others than this machine can open, and nothing that asks who they are.
std::vector<std::string> exposure_warnings(const engine_settings& settings);

/// "Ready: http://127.0.0.1:8000 (model tiny-v41, 2048 KV blocks x 64 = 131,072 tokens, about 16
/// requests at full length)".
std::string ready_line(const node_facts& facts, const std::string& url);

/// What it means that the device's threads take every core; nothing where one is left, or where
/// there is no other way.
std::optional<std::string> cores_hint(std::int32_t device_threads, std::int32_t cores);

/// What a process that is asked to stop says of the requests that are open.
std::string stopping_line(std::chrono::milliseconds limit);

/// How long answers may still be made when a drain has ended and its limit is `left` away. It ends
/// early only where every request has ended: their last words get a moment, whatever is left. With
/// nothing left, what is open ends now.
std::chrono::milliseconds time_for_answers(std::chrono::milliseconds left);

/// What the status line is made of: gauges and totals since the start.
struct service_counts {
  node_stats stats;
  double prompt_tokens = 0;  ///< of prompts that have started
  double prefix_queries = 0, prefix_hits = 0;
};

/// "run 12 wait 3 | prompt 1834 tok/s gen 412 tok/s | kv 37.1 % hit 62 % | step 7.9 ms idle 0.3 % |
/// defer 4 preempt 0": rates and shares of the time since the last look.
class status_line {
public:
  /// Nothing where nothing has moved.
  std::optional<std::string> next(const service_counts& now, double seconds);

private:
  service_counts last_;
};

}  // namespace deepinfer
