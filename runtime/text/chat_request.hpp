/// A chat completion request: JSON body in, checked struct out.
///
/// The body is OpenAI's with DeepSeek's additions (`thinking`, `reasoning_effort`,
/// `reasoning_content`, `prefix`, the role `latest_reminder`) and vLLM's `cache_salt` and
/// `chat_template_kwargs` (template_kwargs.hpp). `null` means absent, unknown keys are ignored,
/// `max_completion_tokens` wins over `max_tokens`.
/// Errors name the field in `param`:
///   invalid_json, json_too_deep, invalid_utf8   the body is not JSON in UTF-8
///   model_not_found                             the model is not one of `options.models`
///   invalid_argument                            everything else
/// Beyond DeepSeek's own service: role `developer` (as `system`) and a `reasoning_effort` of 1 to
/// 100 are accepted. `n` other than 1 and images (for V4.1) are refused, never dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/json.hpp"
#include "runtime/text/chat_conversation.hpp"

namespace deepinfer {

/// What the request wants of the sampler, as sent; `sampling_policy.hpp` decides what is done.
struct sampling_wishes {
  std::optional<double> temperature;                   ///< [0, 2]
  std::optional<double> top_p;                         ///< (0, 1]
  std::optional<std::int64_t> top_k;                   ///< >= 0; 0 = off
  std::optional<double> min_p;                         ///< [0, 1]
  std::optional<double> presence_penalty;              ///< [-2, 2]
  std::optional<double> frequency_penalty;             ///< [-2, 2]
  std::optional<double> repetition_penalty;            ///< (0, 10]
  std::optional<std::uint64_t> seed;                   ///< [0, 2^63)
  std::optional<std::int64_t> max_tokens;              ///< [1, most_output_tokens]
  std::optional<std::int64_t> max_completion_tokens;   ///< the same; wins over max_tokens
  std::optional<std::int64_t> min_tokens;              ///< >= 0
  std::vector<std::string> stop;                       ///< none of them empty, at most 16
  std::vector<token_id> stop_token_ids;                ///< >= 0, at most 256
  std::vector<std::pair<token_id, float>> logit_bias;  ///< ids >= 0, [-100, 100]
  bool logprobs = false;
  std::int64_t top_logprobs = 0;  ///< [0, 20]
  bool ignore_eos = false;
};

/// What the sampler should be held to by a grammar. `none` where the output is free.
enum class constraint_kind : std::uint8_t { none, json, regex, tool_call, tool_call_required };

std::string_view name_of(constraint_kind kind);

struct output_constraint {
  constraint_kind kind = constraint_kind::none;
  std::optional<std::string> schema;  ///< JSON text of the schema, or the regex itself
};

struct chat_request {
  std::string model;
  chat_variant variant = chat_variant::v41;
  chat_conversation conversation;
  sampling_wishes sampling;
  output_constraint constraint;  ///< with tools theirs, whatever `response_format` asks for
  constraint_kind response_format = constraint_kind::none;
  bool parse_tool_calls = false;
  bool json_output = false;               ///< the answer is JSON: text around it is blanked
  std::optional<std::string> cache_salt;  ///< vLLM's: whose cached prefixes may be used
  bool stream = false;
  bool stream_usage = false;
};

struct served_model {
  std::string name;
  chat_variant variant = chat_variant::v41;
};

struct chat_request_options {
  /// The names a request may use. The defaults are those of DeepSeek's API.
  std::vector<served_model> models{{"DeepSeek-V4-Pro", chat_variant::v4},
                                   {"DeepSeek-V4.1-Flash", chat_variant::v41}};
  bool thinking_by_default = true;
  std::int64_t most_output_tokens = 393216;
  std::size_t most_messages = 65536;
};

/// What `reasoning_effort` takes, in words, and whether a value of it is among that.
std::string efforts_text();
bool is_effort(const json::value& value);

/// Reads a body that is already JSON.
result<chat_request> read_chat_request(const json::value& body,
                                       const chat_request_options& options = {});

/// Reads a body as it came: bytes.
result<chat_request> parse_chat_request(std::string_view body,
                                        const chat_request_options& options = {});

}  // namespace deepinfer
