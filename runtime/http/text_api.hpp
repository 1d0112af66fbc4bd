/// /tokenize, /detokenize and /render: bodies as calls of the client API, answers as JSON. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "messages/control.hpp"
#include "runtime/base/error.hpp"
#include "runtime/http/openai_request.hpp"

namespace deepinfer {

/// vLLM's form, and llama.cpp's `content`, `add_special` and `with_pieces`.
struct tokenize_body {
  std::string model;
  tokenize_call call;                ///< a text, or a chat whose prompt is meant
  bool with_pieces = false;          ///< tokens are {id, piece}
  bool token_strings = false;        ///< also what each spells
  std::vector<std::string> ignored;  ///< fields that had no effect
};

result<tokenize_body> read_tokenize(std::string_view body, const openai_limits& limits);
std::string tokenize_json(const tokenize_body& asked, const token_list& tokens,
                          std::int32_t max_model_len);

struct detokenize_body {
  std::string model;
  token_list tokens;
  std::vector<std::string> ignored;  ///< fields that had no effect
};

/// `vocab_size` 0: not known.
result<detokenize_body> read_detokenize(std::string_view body, const openai_limits& limits);
result<void> check_ids(const token_list& tokens, std::int32_t vocab_size);
std::string detokenize_json(const std::string& text);

/// A chat body; `tokenize_call` of its messages.
result<tokenize_body> read_render(std::string_view body, const openai_limits& limits);
std::string render_json(const token_list& tokens, std::int32_t max_model_len);

}  // namespace deepinfer
