/// What happened to each request of `bench serve`, and what that sums up to. Pure.
///
/// Rules: the time to the first token is that to the first content or reasoning that is not empty;
/// tokens are the server's own count (`usage`); what failed is in no latency; gaps are taken
/// between events with content. Keys of the JSON are those of vLLM's result files, so that its
/// plots work.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

struct serve_record {
  std::int64_t sent_ns = 0;    ///< when it was due: waiting for a free connection counts
  std::int64_t first_ns = -1;  ///< first content
  std::int64_t last_ns = -1;   ///< last content
  std::int64_t end_ns = 0;
  std::vector<std::int64_t> gaps_ns;  ///< between events with content
  std::int32_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  bool has_usage = false;
  std::string failure;       ///< empty: none; else its code
  std::string failure_text;  ///< what the server said, or why it said nothing

  /// An event's JSON, or "[DONE]", at this time.
  void take_event(std::string_view data, std::int64_t now_ns);
  /// The body of an answer that is no stream.
  void take_body(std::string_view body, std::int64_t now_ns);
  /// Its end: the HTTP status, or why there was none.
  void end(const result<int>& status, std::string_view body, std::int64_t now_ns);
  bool has_ended() const { return end_ns != 0; }

private:
  void take_usage(const json::object& usage);
};

/// Bounds of a request that counts as good; absent: any.
struct goodput_bounds {
  std::optional<double> ttft_ms, tpot_ms, itl_ms, e2el_ms;
};
/// "ttft:500ms,itl:50ms". Error bad_config.
result<goodput_bounds> parse_goodput(std::string_view text);

/// mean, median, p90, p99 in milliseconds.
struct latency_summary {
  double mean = 0, median = 0, deviation = 0, p90 = 0, p99 = 0;
  std::size_t count = 0;
};
latency_summary latency_of(std::vector<double> ms);

struct serve_report {
  double seconds = 0;
  std::int32_t completed = 0;
  std::map<std::string, std::int32_t> failures;  ///< by code
  std::int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;
  std::int32_t good = 0;
  double tokens_per_event = 0;
  latency_summary ttft, tpot, itl, e2el;
};

serve_report report_of(const std::vector<serve_record>& records, const goodput_bounds& bounds);

json::object report_object(const serve_report& report);
std::string report_text(const serve_report& report);

/// Value of a series without labels but the common ones in a Prometheus text, summed over its
/// label sets, or over those that hold `label`; nothing where there is none. `name` without prefix.
std::optional<double> metric_in(std::string_view text, std::string_view name,
                                std::string_view label = {});

}  // namespace deepinfer
