/// Requests of the OpenAI-style API as requests of the client API. Pure: bytes in, structs out.
///
/// A chat goes to the engine as JSON, which reads messages, tools, thinking and sampling itself;
/// here it loses what the engine does not know (n, stream, user, ...), and every field that both
/// know is checked, so that its error names it. A completion becomes one request for each of its
/// prompts. `null` is absent. Fields that nobody knows are listed, or refused where
/// `strict_fields`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/client.hpp"
#include "messages/control.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/json_fields.hpp"
#include "runtime/http/openai_sampling.hpp"

namespace deepinfer {

enum class openai_endpoint : std::uint8_t { chat, completion };

struct openai_limits {
  std::int32_t max_n = 16;
  std::int32_t max_answers = 256;  ///< prompts times n
  std::size_t max_depth = 64;
  bool strict_fields = false;
};

/// What a client asked for: what its node is told, and how the answer is to look.
struct openai_job {
  openai_endpoint endpoint = openai_endpoint::chat;
  std::vector<generate_request> requests;  ///< one for each prompt, `n` answers each
  std::string model;                       ///< as asked; empty = the node's
  std::int32_t n = 1;
  bool stream = false;
  bool include_usage = false;  ///< in a stream
  bool timings = false;
  bool thinking = false;  ///< the answer begins with reasoning
  bool logprobs = false;
  std::vector<named_length> lengths;  ///< that the client has named
  std::vector<std::string> ignored;   ///< fields that had no effect

  std::int32_t num_answers() const { return n * static_cast<std::int32_t>(requests.size()); }
};

/// Errors: invalid_utf8, invalid_json, json_too_deep, invalid_argument with `param`.
result<openai_job> read_openai_request(openai_endpoint endpoint, std::string_view body,
                                       const openai_limits& limits);

/// Against what is served. Errors: model_not_found (the names), context_length_exceeded (a length
/// beyond the model's), invalid_argument (ids of a prompt beyond the vocabulary).
result<void> check_served(const openai_job& job, const model_info& served);
result<void> check_model_name(const std::string& asked, const model_info& served);

/// A body of /render or /tokenize with `messages`, as the engine reads chats. What has no effect is
/// added to `ignored`, but for fields that nobody has asked for.
result<std::string> read_chat_body(json_fields& body, std::vector<std::string>& ignored);

/// Errors: invalid_argument where some are, and the limits say that fields must be known.
result<void> check_ignored(const std::vector<std::string>& ignored, const openai_limits& limits);

}  // namespace deepinfer
