/// Builds a prompt from template text, in which special tokens are recognised, and plain text, in
/// which nothing is. Private to the chat encoding.
#pragma once

#include <string_view>
#include <utility>

#include "runtime/text/chat_encoding.hpp"

namespace deepinfer {

/// Spellings of the special tokens the templates use.
namespace chat_tokens {
inline constexpr std::string_view begin = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view end = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view system = "<｜System｜>";
inline constexpr std::string_view user = "<｜User｜>";
inline constexpr std::string_view assistant = "<｜Assistant｜>";
inline constexpr std::string_view reminder = "<｜latest_reminder｜>";
inline constexpr std::string_view think = "<think>";
inline constexpr std::string_view think_end = "</think>";
inline constexpr std::string_view dsml = "｜DSML｜";
}  // namespace chat_tokens

class prompt_writer {
public:
  /// One special token.
  void special(std::string_view token) {
    prompt_.special.push_back({prompt_.text.size(), prompt_.text.size() + token.size()});
    prompt_.text += token;
  }

  /// Text of a client or a schema: ordinary, whatever it spells.
  void plain(std::string_view text) { prompt_.text += text; }

  /// Text of the format: `<think>`, `</think>` and `｜DSML｜` in it are tokens.
  void fixed(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const auto rest = text.substr(at);
      const auto token = token_at(rest);
      if (token.empty()) {
        prompt_.text += text[at++];
      } else {
        special(token);
        at += token.size();
      }
    }
  }

  rendered_prompt take() { return std::move(prompt_); }

private:
  static std::string_view token_at(std::string_view text) {
    for (const auto token : {chat_tokens::dsml, chat_tokens::think, chat_tokens::think_end})
      if (text.starts_with(token)) return token;
    return {};
  }

  rendered_prompt prompt_;
};

}  // namespace deepinfer
