/// What a client's request is about: exactly one of text, ids and chat.
///
/// Looked at before it goes over a wire, whose messages hold one of the three or none, and where it
/// comes in.
#pragma once

#include "messages/client.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Errors: invalid_argument (`input`) for none or several, invalid_utf8 (`chat`).
result<void> check_input(const generate_request& request);

}  // namespace deepinfer
