/// The client API's own words: what a program asks a node for and the pieces it gets back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// Sampling as a client states it: what is absent is filled by the node's sampling policy.
struct sampling_request {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> repetition_penalty;
  std::optional<std::uint64_t> seed;
  std::optional<std::int32_t> max_tokens;  ///< absent: what the policy and the context leave
  std::int32_t min_tokens = 0;
  std::optional<std::int32_t> logprobs;
  bool ignore_eos = false;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::vector<token_id> stop_token_ids;
  std::vector<std::string> stop;
  std::vector<std::pair<token_id, float>> logit_bias;
};

/// client -> gateway. Exactly one of `text`, `ids`, `chat` is set.
struct generate_request {
  std::string request_id;                    ///< chosen by the client; empty = the node names it
  std::optional<std::string> text;           ///< continued as it stands, BOS first
  std::optional<std::vector<token_id>> ids;  ///< used as given
  std::optional<std::string> chat;           ///< JSON of a chat request: messages, tools, options
  sampling_request sampling;
  std::int32_t priority = 0;
};

struct tool_call_delta {
  std::int32_t index = 0;
  std::string id;         ///< set with the first delta of a call
  std::string name;       ///< set with the first delta of a call
  std::string arguments;  ///< a piece of the JSON text
};

/// gateway -> client. Chunks of a request are numbered from 0 without a gap; the last one, and only
/// the last one, carries `finish`.
struct token_chunk {
  std::string request_id;
  std::uint64_t seq = 0;
  std::string text;            ///< whole UTF-8 sequences only; stop strings already cut
  std::string reasoning_text;  ///< chat only
  std::vector<tool_call_delta> tool_calls;
  std::vector<token_id> ids;
  std::vector<token_logprobs> logprobs;
  std::optional<sequence_finish> finish;
};

/// What a node is doing, for people and tests.
struct node_stats {
  std::int32_t running = 0;
  std::int32_t queued = 0;
  std::int32_t inflight_steps = 0;
  std::int64_t kv_blocks_total = 0;
  std::int64_t kv_blocks_free =
    0;  ///< in the allocator's free list or held as the scheduler's credit
  std::int64_t slots_total = 0;
  std::int64_t slots_free = 0;
  std::int64_t deferred_blocks = 0;  ///< parked behind a fence
  std::uint64_t steps = 0;
  std::uint64_t tokens_out = 0;
  std::int64_t device_busy_ns = 0;  ///< forward and sample, summed over settled steps
  std::int64_t device_span_ns =
    0;  ///< from a busy period's first forward to its last sample, summed
  std::uint64_t rank_restarts = 0;
};

}  // namespace deepinfer
