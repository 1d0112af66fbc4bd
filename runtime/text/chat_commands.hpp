/// The text commands `render` and `parse` as functions: a JSON object in, a JSON object out. One
/// object per call, so that thousands of lines of a .jsonl file need one start.
///
/// render: {"model", "messages", "tools", "options"} -> {"prompt", "ids", "special_ranges",
///   "parse_start", "parse_tool_calls", "constraint"}. The body checked is {model, messages, tools,
///   ...options}. With "via": "conversation" the messages are taken as they stand, also in orders
///   that no client may send, with tools on messages and deferred tools. "ids" is null without a
///   tokenizer.
/// parse: {"mode": {"start", "tools", "json", "stop"}, "text" or "ids", "finish"} ->
///   {"reasoning", "content", "tool_calls": [{"name", "arguments"}], "finish_reason"}. "finish" is
///   what the sampler reported (default "stop").
/// Errors: those of chat_request.hpp; invalid_argument for a missing or mistyped field, in `param`.
#pragma once

#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"
#include "runtime/text/chat_encoding.hpp"
#include "runtime/text/chat_request.hpp"

namespace deepinfer {

class tokenizer;

/// `vocabulary` may be null: the prompt is rendered, without ids.
result<json::object> render_command(const json::value& request, const tokenizer* vocabulary,
                                    const chat_request_options& options = {},
                                    const effort_scale& scale = default_effort_scale);

/// `vocabulary` may be null unless the object holds "ids".
result<json::object> parse_command(const json::value& request, const tokenizer* vocabulary);

/// {"error": {"code", "message", "param", "type"}}: what a line of a .jsonl file answers when it
/// fails. The message is at most 4 KB.
json::object error_object(const error& failure);

}  // namespace deepinfer
