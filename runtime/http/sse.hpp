/// Server-sent events: the frames of a `text/event-stream` body.
///
///   data: {"a":1}\n\n        one event; a client joins several data lines by line ends
///   : keep-alive\n\n         a comment, which clients skip
///   data: [DONE]\n\n         the end, as OpenAI's clients expect it
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

/// What an answer of events says of itself: neither caches nor proxies may hold events back.
inline constexpr std::string_view sse_content_type = "text/event-stream; charset=utf-8";

/// Appends one event. A line end within `data` becomes a further data line.
void append_sse_event(std::string& out, std::string_view data);
std::string sse_event(std::string_view data);

/// A comment of one line; line ends within `text` become blanks.
std::string sse_comment(std::string_view text);

std::string sse_done();

}  // namespace deepinfer
