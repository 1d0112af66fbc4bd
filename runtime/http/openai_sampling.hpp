/// The sampling fields of a request, checked: those that chats and completions share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/client.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/json_fields.hpp"

namespace deepinfer {

/// A field that is a number of tokens, as it was given: what is served bounds it.
struct named_length {
  const char* field = "";
  std::int64_t tokens = 0;
};

/// Reads max_tokens, max_completion_tokens and min_tokens into `sampling`, and says which are
/// there.
result<std::vector<named_length>> read_lengths(json_fields& body, sampling_request& sampling);

/// Reads everything but these, `n` and `logprobs` into `sampling`.
result<void> read_sampling(json_fields& body, sampling_request& sampling);

/// Where the output is held to a grammar. Errors: what is not built.
result<void> read_response_format(json_fields& body, sampling_request& sampling);

}  // namespace deepinfer
