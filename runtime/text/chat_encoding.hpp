/// Turns a conversation into the prompt text and token ids a DeepSeek V4 or V4.1 model expects.
///
/// Every byte counts: the model was trained on this text. What the template writes as a special
/// token is listed in `special`; all else, whatever it spells, is ordinary text and is tokenized
/// with added tokens off, so that a message holding `<｜User｜>` cannot forge a turn.
/// Source: the format notes of DeepSeek's recipe, checked against chat_v4.jsonl and chat_v41.jsonl.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/text/chat_conversation.hpp"

namespace deepinfer {

class tokenizer;

/// Bytes [begin, end) of the prompt are one special token.
struct special_range {
  std::size_t begin = 0;
  std::size_t end = 0;

  friend bool operator==(const special_range&, const special_range&) = default;
};

struct rendered_prompt {
  std::string text;
  std::vector<special_range> special;  ///< rising, disjoint
};

/// The number V4.1 writes for each effort level: low, high, xhigh, max. Snapshots of the release
/// differ, so a model folder may bring its own.
using effort_scale = std::array<int, 4>;
inline constexpr effort_scale default_effort_scale{50, 75, 75, 100};

/// Renders `conversation` with its generation prompt (none after a trailing prefix message). Total:
/// any conversation gives a prompt, also orders of messages that no client may send.
rendered_prompt render_chat(const chat_conversation& conversation, chat_variant variant,
                            const effort_scale& scale = default_effort_scale);

/// Token ids of a prompt. Error: invalid_argument when the tokenizer lacks a special token of the
/// template, naming it.
result<std::vector<token_id>> encode_prompt(const rendered_prompt& prompt,
                                            const tokenizer& vocabulary);

}  // namespace deepinfer
