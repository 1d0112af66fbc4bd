/// What a gateway counts of its requests, and where: one call per event. Without metrics nothing is
/// counted. Times are microseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "messages/client.hpp"
#include "runtime/base/metrics.hpp"

namespace deepinfer {

/// What a request is doing, for counts and people.
enum class request_phase : std::uint8_t { queued, prefill, decode };

std::string_view name_of(request_phase phase);

class request_counts {
public:
  explicit request_counts(metrics* to = nullptr) : to_(to) {}

  void accepted(std::int32_t prompt_tokens, std::optional<std::int32_t> max_tokens) const;
  void tokenized(std::int64_t us) const;
  /// A sequence starts for the first time.
  void started(std::int32_t prompt_tokens, std::int32_t cached_tokens,
               std::int64_t queued_us) const;
  /// An answer has its first token, so long after its start.
  void first_token(std::int64_t prefill_us) const;
  /// The first token of a request.
  void answered(std::int64_t us) const;
  /// Tokens of an answer, so long after those before them.
  void gained(std::int32_t tokens, std::optional<std::int64_t> gap_us) const;
  /// `inference_us`: since its start; none: it never started.
  void answer_ended(finish_reason reason, std::int32_t tokens,
                    std::optional<std::int64_t> inference_us, std::int64_t decode_us) const;
  void request_ended(std::int64_t us) const;
  void aborted(request_phase phase) const;
  void refused(std::string_view reason) const;
  void slow() const;
  /// So many more, or less, chunks are sent and not taken.
  void pending(std::int32_t change) const;

private:
  metrics* to_;
};

}  // namespace deepinfer
