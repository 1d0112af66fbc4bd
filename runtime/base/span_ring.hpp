/// Where requests spent their time, kept for the timeline: the newest that have ended, and when
/// sequences of any were preempted.
///
/// Thread-safe: fronts add, whoever draws the timeline reads. Bounded: the oldest is forgotten.
/// Times are nanoseconds of the clock of `step_trace`, the host's steady clock; 0 = did not happen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/trace_ring.hpp"

namespace deepinfer {

struct request_span {
  std::string id;
  rank_id rank;  ///< that served it
  std::int64_t queued_ns = 0;
  std::int64_t prefill_ns = 0;  ///< its first row was launched
  std::int64_t decode_ns = 0;   ///< its first token was there
  std::int64_t end_ns = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;
  std::int32_t output_tokens = 0;
  std::int32_t preemptions = 0;
  std::string finish;  ///< reason
};

/// A sequence had to give its blocks back, to be computed again later.
struct preemption_mark {
  std::string id;           ///< of its request
  std::int32_t answer = 0;  ///< of the request
  rank_id rank;
  std::int64_t at_ns = 0;
  std::string why;
};

class span_ring {
public:
  explicit span_ring(std::size_t spans) : limit_(spans == 0 ? 1 : spans) {}

  void add(request_span entry);
  void note(preemption_mark entry);

  /// Oldest first, at most `spans` of the newest.
  std::vector<request_span> newest(std::size_t spans) const;
  /// Oldest first, those that had not ended at that time.
  std::vector<request_span> since(std::int64_t begin_ns) const;
  /// Oldest first, from that time on.
  std::vector<preemption_mark> preempted_since(std::int64_t begin_ns) const;

private:
  mutable std::mutex guard_;
  std::size_t limit_;
  std::size_t next_ = 0;
  std::vector<request_span> entries_;
  std::deque<preemption_mark> marks_;
};

/// When the first of `steps` was planned; 0 where there is none.
std::int64_t begin_of(std::span<const step_trace> steps);

/// The trace of `chrome_trace` with more in it: an async event per request with its parts queued,
/// prefill and decode. Everything of it: slices (plan, settle, copy in, forward, sample, copy out),
/// arrows from each plan to its forward and from each sampling to its settle, counters (rows, steps
/// in flight, tokens emitted, blocks parked), an instant for each step whose rows go on from what
/// the device holds (remap), and one for each preemption. Complete JSON, whatever is in the rings.
std::string chrome_trace(std::span<const step_trace> steps, std::span<const request_span> requests,
                         std::span<const preemption_mark> preempted = {});
/// The same of what `ring` has of the time of `steps`.
std::string chrome_trace(std::span<const step_trace> steps, const span_ring& ring);

}  // namespace deepinfer
