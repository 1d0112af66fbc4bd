#include "runtime/text/chat_conversation.hpp"

#include <array>

namespace deepinfer {

std::string_view name_of(parse_start start) {
  constexpr std::array<std::string_view, 5> names{"reasoning", "reasoning_continuation",
                                                  "content_continuation", "content", "tool_calls"};
  return names[static_cast<std::size_t>(start)];
}

parse_start parse_start_of(const chat_conversation& conversation) {
  if (conversation.calls_required && !conversation.tools.empty()) return parse_start::tool_calls;
  if (!conversation.thinking) return parse_start::content;
  const auto& messages = conversation.messages;
  if (messages.empty() || !messages.back().prefix) return parse_start::reasoning;
  const auto& last = messages.back();
  if (!last.content.empty() || !last.calls.empty()) return parse_start::content_continuation;
  return last.reasoning.empty() ? parse_start::reasoning : parse_start::reasoning_continuation;
}

}  // namespace deepinfer
