/// The sampling fields of a request, checked: those that chats and completions share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "messages/client.hpp"
#include "runtime/base/error.hpp"
#include "runtime/http/body_fields.hpp"

namespace deepinfer {

/// Reads everything but `n` and `logprobs` into `sampling`.
result<void> read_sampling(body_fields& body, sampling_request& sampling);

/// Where the output is held to a grammar. Errors: what is not built.
result<void> read_response_format(body_fields& body, sampling_request& sampling);

}  // namespace deepinfer
