/// The client API's own words: what a program asks a node for and the pieces it gets back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/describe.hpp"
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
  std::optional<std::int32_t> max_tokens;  ///< within the context; absent: what that leaves
  std::int32_t min_tokens = 0;
  std::int32_t n = 1;  ///< answers; number i > 0 has the seed mix(seed, i)
  std::optional<std::int32_t> logprobs;
  bool ignore_eos = false;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::string grammar;  ///< what outputs must be: "" = anything, "json_object"
  std::vector<token_id> stop_token_ids;
  std::vector<std::string> stop;
  std::vector<std::pair<token_id, float>> logit_bias;

  static constexpr auto describe() {
    using s = sampling_request;
    return fields(field{"temperature", &s::temperature}, field{"top_p", &s::top_p},
                  field{"top_k", &s::top_k}, field{"min_p", &s::min_p},
                  field{"presence_penalty", &s::presence_penalty},
                  field{"frequency_penalty", &s::frequency_penalty},
                  field{"repetition_penalty", &s::repetition_penalty}, field{"seed", &s::seed},
                  field{"max_tokens", &s::max_tokens}, field{"min_tokens", &s::min_tokens},
                  field{"n", &s::n}, field{"logprobs", &s::logprobs},
                  field{"ignore_eos", &s::ignore_eos}, field{"include_stop", &s::include_stop},
                  field{"skip_special_tokens", &s::skip_special_tokens},
                  field{"grammar", &s::grammar}, field{"stop_token_ids", &s::stop_token_ids},
                  field{"stop", &s::stop}, field{"logit_bias", &s::logit_bias});
  }
};

/// client -> gateway. Exactly one of `text`, `ids`, `chat` is set.
struct generate_request {
  std::string request_id;                    ///< unique among open ones; empty = the node names it
  std::string model;                         ///< a served name; empty = the node's
  std::optional<std::string> text;           ///< continued as it stands, BOS first
  std::optional<std::vector<token_id>> ids;  ///< used as given
  std::optional<std::string> chat;           ///< JSON of a chat request: messages, tools, options
  sampling_request sampling;
  std::int32_t priority = 0;
  /// Of a tenant: requests share cached prefixes only with those of the same salt, or of none.
  std::optional<std::string> cache_salt;
  std::string tenant;             ///< whose fair share this is: the name of a key, never the key
  std::string session;            ///< requests of one session go to the same replica where they can
  std::string traceparent;        ///< W3C trace context, logged
  std::string client_request_id;  ///< what the client calls it: logged, never a key
  std::int32_t window = 0;        ///< chunks that may be sent and not taken; 0: no bound
  bool is_forwarded = false;      ///< another node's router has sent it: here it stays
  std::int64_t waited_us = 0;     ///< in this node's router, before its gateway; on no wire

  static constexpr auto describe() {
    using s = generate_request;
    return fields(
      field{"request_id", &s::request_id}, field{"model", &s::model}, field{"text", &s::text},
      field{"token_ids", &s::ids}, field{"chat_json", &s::chat}, field{"sampling", &s::sampling},
      field{"priority", &s::priority}, field{"cache_salt", &s::cache_salt},
      field{"tenant", &s::tenant}, field{"session", &s::session},
      field{"traceparent", &s::traceparent}, field{"client_request_id", &s::client_request_id},
      field{"window", &s::window}, field{"is_forwarded", &s::is_forwarded});
  }
};

/// Where the time of a request went, by the node's clock.
struct request_timings {
  std::int64_t queued_us = 0;   ///< from its arrival to the launch of its first row
  std::int64_t prefill_us = 0;  ///< from then to its first token
  std::int64_t decode_us = 0;   ///< from its first token to its last
  std::int32_t preemptions = 0;

  static constexpr auto describe() {
    using s = request_timings;
    return fields(field{"queued_us", &s::queued_us}, field{"prefill_us", &s::prefill_us},
                  field{"decode_us", &s::decode_us}, field{"preemptions", &s::preemptions});
  }
};

struct tool_call_delta {
  std::int32_t index = 0;
  std::string id;         ///< set with the first delta of a call
  std::string name;       ///< set with the first delta of a call
  std::string arguments;  ///< a piece of the JSON text

  static constexpr auto describe() {
    using s = tool_call_delta;
    return fields(field{"index", &s::index}, field{"id", &s::id}, field{"name", &s::name},
                  field{"arguments", &s::arguments});
  }
};

/// gateway -> client. Chunks of a request are numbered from 0 without a gap. The last one of each
/// of its answers carries `finish`; with the last of these, `is_last`, the request has ended.
struct token_chunk {
  std::string request_id;
  std::uint64_t seq = 0;
  std::int32_t index = 0;      ///< of the answer, 0 to n - 1
  std::string text;            ///< whole UTF-8 sequences only; stop strings already cut
  std::string reasoning_text;  ///< chat only
  std::vector<tool_call_delta> tool_calls;
  std::vector<token_id> ids;
  std::vector<token_logprobs> logprobs;  ///< of the tokens of which text is shown, in their order
  std::optional<sequence_finish> finish;
  std::optional<request_timings> timings;  ///< with `finish`
  bool is_last = false;
  std::optional<std::uint64_t> seed;  ///< with the first chunk: the request's, drawn or given

  static constexpr auto describe() {
    using s = token_chunk;
    return fields(field{"request_id", &s::request_id}, field{"seq", &s::seq},
                  field{"index", &s::index}, field{"text", &s::text},
                  field{"reasoning_text", &s::reasoning_text}, field{"tool_calls", &s::tool_calls},
                  field{"tokens", &s::ids}, field{"logprobs", &s::logprobs},
                  field{"finish", &s::finish}, field{"timings", &s::timings},
                  field{"is_last", &s::is_last}, field{"seed", &s::seed});
  }
};

/// The chunks of one client's requests that came together.
struct chunk_list {
  std::vector<token_chunk> chunks;

  static constexpr auto describe() { return fields(field{"chunks", &chunk_list::chunks}); }
};

/// What a node is doing, for people and tests.
struct node_stats {
  std::int32_t running = 0;
  std::int32_t queued = 0;
  std::int32_t inflight_steps = 0;
  std::int64_t kv_blocks_total = 0;
  std::int64_t kv_blocks_free = 0;    ///< in the allocator's free list, or the scheduler's credit
  std::int64_t kv_blocks_cached = 0;  ///< in no table, kept for the prefix cache
  std::int64_t slots_total = 0;
  std::int64_t slots_free = 0;
  std::int64_t deferred_blocks = 0;  ///< parked behind a fence
  std::uint64_t steps = 0;
  std::uint64_t tokens_out = 0;
  std::int64_t device_busy_ns = 0;  ///< forward and sample, summed over settled steps
  std::int64_t device_span_ns = 0;  ///< first forward to last sample of busy periods, summed
  /// Idle time within that span, by what the host was doing when the stream ran dry.
  std::int64_t idle_plan_ns = 0, idle_settle_ns = 0, idle_vote_ns = 0, idle_transfer_ns = 0;
  std::int64_t exposed_host_ns = 0;  ///< host work that ran beside an idle device
  std::uint64_t host_waits = 0;      ///< for results of steps
  std::uint64_t preemptions = 0;
  std::uint64_t cached_tokens = 0;    ///< prompt tokens served from the prefix cache
  std::int64_t prefix_host_hits = 0;  ///< cached blocks that came back from host memory
  std::uint64_t draft_tokens = 0;     ///< drafts verified
  std::uint64_t accepted_tokens = 0;  ///< of these, emitted
  std::uint64_t overrun_rows = 0;     ///< rows settled after their sequence had ended
  std::uint64_t rank_restarts = 0;
  std::uint64_t step_messages = 0;  ///< between the rank's actors, for all steps so far

  static constexpr auto describe() {
    using s = node_stats;
    return fields(
      field{"running", &s::running}, field{"queued", &s::queued},
      field{"inflight_steps", &s::inflight_steps}, field{"kv_blocks_total", &s::kv_blocks_total},
      field{"kv_blocks_free", &s::kv_blocks_free}, field{"kv_blocks_cached", &s::kv_blocks_cached},
      field{"preemptions", &s::preemptions}, field{"cached_tokens", &s::cached_tokens},
      field{"prefix_host_hits", &s::prefix_host_hits}, field{"draft_tokens", &s::draft_tokens},
      field{"accepted_tokens", &s::accepted_tokens}, field{"overrun_rows", &s::overrun_rows},
      field{"idle_plan_ns", &s::idle_plan_ns}, field{"idle_settle_ns", &s::idle_settle_ns},
      field{"idle_vote_ns", &s::idle_vote_ns}, field{"idle_transfer_ns", &s::idle_transfer_ns},
      field{"exposed_host_ns", &s::exposed_host_ns}, field{"host_waits", &s::host_waits},
      field{"slots_total", &s::slots_total}, field{"slots_free", &s::slots_free},
      field{"deferred_blocks", &s::deferred_blocks}, field{"steps", &s::steps},
      field{"tokens_out", &s::tokens_out}, field{"device_busy_ns", &s::device_busy_ns},
      field{"device_span_ns", &s::device_span_ns}, field{"rank_restarts", &s::rank_restarts},
      field{"step_messages", &s::step_messages});
  }
};

}  // namespace deepinfer
