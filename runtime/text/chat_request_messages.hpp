/// The `messages` of a request: each message by itself, and the order they must have. Private to
/// the request reader.
#pragma once

#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/json_fields.hpp"
#include "runtime/text/chat_conversation.hpp"

namespace deepinfer {

/// Messages of a client. Errors (invalid_argument): an unknown role, content of a wrong form,
/// images for V4.1; an assistant message with neither content nor calls; calls that are not
/// answered, each once, by the tool messages right after them; `prefix` on an assistant message
/// that is not the last. In chat mode thoughts of the past are dropped.
result<std::vector<chat_message>> read_messages(json_fields& body, chat_variant variant,
                                                bool thinking, std::size_t most);

/// Messages as they stand: any order, tools on system messages, ids optional.
result<std::vector<chat_message>> read_loose_messages(json_fields& body, chat_variant variant,
                                                      std::size_t most);

/// Tools as {"name", "description", "parameters", "defer_loading"}, unchecked schemas.
result<std::vector<tool_definition>> read_loose_tools(json_fields& holder, chat_variant variant);

}  // namespace deepinfer
