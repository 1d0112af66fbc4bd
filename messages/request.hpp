/// What a client asks for and what it is told: plain structs, no behaviour.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/describe.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// How tokens are chosen and when a sequence ends. Defaults are the product's.
/// Order on the device: logit bias, penalties, min_tokens mask, grammar mask, temperature, top-k,
/// top-p, min-p, renormalise, choose.
struct sampling_params {
  float temperature = 1.0f;         ///< >= 0; below 1e-5 is greedy
  float top_p = 1.0f;               ///< (0, 1]; 1 = off
  std::int32_t top_k = 0;           ///< 0 = off
  float min_p = 0.0f;               ///< [0, 1]; 0 = off
  float presence_penalty = 0.0f;    ///< [-2, 2], outputs only
  float frequency_penalty = 0.0f;   ///< [-2, 2], outputs only
  float repetition_penalty = 1.0f;  ///< [0.01, 100], prompt and outputs; 1 = off
  std::uint64_t seed = 0;           ///< drawn by the gateway where the client gave none
  std::int32_t max_tokens = -1;     ///< most output ids; -1 = what the context leaves
  std::int32_t min_tokens = 0;      ///< stop ids are masked before this many outputs
  std::int32_t logprobs = -1;       ///< -1 = none, 0 = of the chosen token, k = also of the k best
  bool ignore_eos = false;
  bool include_stop = false;  ///< keep the matched stop string in the text
  bool skip_special_tokens = true;
  bool reasoning = false;  ///< outputs begin with reasoning, which the end-of-thinking id ends
  std::string grammar;     ///< what outputs must be: "" = anything, "json_object"
  std::vector<token_id> stop_token_ids;
  std::vector<std::string> stop;  ///< matched on the text's bytes, across tokens
  std::vector<std::pair<token_id, float>> logit_bias;  ///< [-100, 100]

  static constexpr auto describe() {
    using s = sampling_params;
    return fields(
      field{"temperature", &s::temperature}, field{"top_p", &s::top_p}, field{"top_k", &s::top_k},
      field{"min_p", &s::min_p}, field{"presence_penalty", &s::presence_penalty},
      field{"frequency_penalty", &s::frequency_penalty},
      field{"repetition_penalty", &s::repetition_penalty}, field{"seed", &s::seed},
      field{"max_tokens", &s::max_tokens}, field{"min_tokens", &s::min_tokens},
      field{"logprobs", &s::logprobs}, field{"ignore_eos", &s::ignore_eos},
      field{"include_stop", &s::include_stop},
      field{"skip_special_tokens", &s::skip_special_tokens}, field{"reasoning", &s::reasoning},
      field{"grammar", &s::grammar}, field{"stop_token_ids", &s::stop_token_ids},
      field{"stop", &s::stop}, field{"logit_bias", &s::logit_bias});
  }
};

/// gateway -> scheduler. One sequence, tokenized, checked, seeded. Ended by exactly one final
/// record in a `chunk_batch`.
struct sequence_request {
  seq_id sequence;
  std::shared_ptr<const std::vector<token_id>> prompt;  ///< never empty
  std::shared_ptr<const sampling_params> params;
  std::int32_t priority = 0;     ///< higher first
  std::uint64_t cache_salt = 0;  ///< requests of different salts share no cached prefix
};

enum class finish_reason : std::uint8_t { none, stop, length, abort, error, resource, tool_calls };

std::string_view name_of(finish_reason reason);

/// Alternatives for one output position, from the raw distribution. `ids[0]` is the chosen token;
/// the others are the best, in falling order (the chosen one may be among them again).
struct token_logprobs {
  std::vector<token_id> ids;
  std::vector<float> logprobs;
  std::vector<std::string> texts;  ///< bytes of each id; only towards clients

  static constexpr auto describe() {
    return fields(field{"ids", &token_logprobs::ids}, field{"logprobs", &token_logprobs::logprobs},
                  field{"texts", &token_logprobs::texts});
  }
};

struct usage_counts {
  std::int32_t prompt_tokens = 0;
  std::int32_t completion_tokens = 0;
  std::int32_t cached_tokens = 0;
  std::int32_t reasoning_tokens = 0;

  static constexpr auto describe() {
    return fields(field{"prompt_tokens", &usage_counts::prompt_tokens},
                  field{"completion_tokens", &usage_counts::completion_tokens},
                  field{"cached_tokens", &usage_counts::cached_tokens},
                  field{"reasoning_tokens", &usage_counts::reasoning_tokens});
  }
};

/// How a sequence ended. `stop_bytes`: bytes of output text before the matched stop string, or -1.
struct sequence_finish {
  finish_reason reason = finish_reason::none;
  std::string stop_detail;  ///< the stop string or stop id that matched
  std::int64_t stop_bytes = -1;
  usage_counts usage;
  errc code = errc::ok;  ///< set with `error` and `resource`
  std::string message;
  /// The request's, drawn or given; of all its answers: the same request with it says the same.
  std::uint64_t seed = 0;

  static constexpr auto describe() {
    using f = sequence_finish;
    return fields(field{"reason", &f::reason}, field{"stop_detail", &f::stop_detail},
                  field{"stop_bytes", &f::stop_bytes}, field{"usage", &f::usage},
                  field{"code", &f::code}, field{"message", &f::message}, field{"seed", &f::seed});
  }
};

/// What one sequence gained in one settled step.
struct sequence_chunk {
  seq_id sequence;
  std::int32_t first_output = 0;  ///< number of output ids before this chunk: gapless
  std::vector<token_id> tokens;
  std::vector<token_logprobs> logprobs;  ///< one per token, or empty
  std::optional<sequence_finish> finish;

  static constexpr auto describe() {
    using c = sequence_chunk;
    return fields(field{"sequence", &c::sequence}, field{"first_output", &c::first_output},
                  field{"tokens", &c::tokens}, field{"logprobs", &c::logprobs},
                  field{"finish", &c::finish});
  }
};

/// Why a running sequence had to give its blocks back.
enum class preempt_cause : std::uint8_t {
  room,      ///< one that comes before it lacked blocks
  own_room,  ///< it lacked blocks itself, and all others come before it
  priority,  ///< one of a higher priority was to start
  held,      ///< its client takes nothing, and nothing else could go on
  stall,     ///< nothing could go on, and it comes last
  order      ///< an operator's word
};

std::string_view name_of(preempt_cause cause);

/// scheduler -> gateway, at most one a settled step: the chunks of all its rows.
struct chunk_batch {
  /// Its first row has been launched, behind so many prompt tokens from the cache.
  struct start {
    seq_id sequence;
    std::int32_t cached_tokens = 0;
  };

  rank_id rank;
  step_id step;
  std::vector<sequence_chunk> chunks;
  std::vector<start> started;  ///< since the last batch; again where one comes back
  struct preemption {
    seq_id sequence;
    preempt_cause why{};
    std::int64_t at_ns = 0;  ///< by the clock of the rank's device
  };
  std::vector<preemption> preempted;  ///< since the last batch
};

}  // namespace deepinfer
