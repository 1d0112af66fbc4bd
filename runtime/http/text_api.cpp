#include "runtime/http/text_api.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/json_fields.hpp"
#include "runtime/http/json_text.hpp"
#include "runtime/http/openai_request.hpp"
#include "runtime/http/request_body.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t most_ids = 4u << 20;

/// A piece as llama.cpp shows it: a string, or the bytes of what is no UTF-8.
void append_piece(std::string& out, std::string_view piece) {
  if (!utf8_defect(piece)) return append_json_string(out, piece);
  out += '[';
  for (std::size_t i = 0; i < piece.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}{}", i > 0 ? "," : "",
                   static_cast<unsigned>(static_cast<unsigned char>(piece[i])));
  out += ']';
}

std::string_view piece_of(const token_list& tokens, std::size_t i) {
  return i < tokens.pieces.size() ? std::string_view(tokens.pieces[i]) : std::string_view();
}

void append_tokens(std::string& out, const token_list& tokens, bool with_pieces) {
  if (!with_pieces) {
    fmt::format_to(std::back_inserter(out), "[{}]", fmt::join(tokens.ids, ","));
    return;
  }
  out += '[';
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    fmt::format_to(std::back_inserter(out), R"({}{{"id":{},"piece":)", i > 0 ? "," : "",
                   tokens.ids[i]);
    append_piece(out, piece_of(tokens, i));
    out += '}';
  }
  out += ']';
}

std::string counts(const token_list& tokens, std::int32_t max_model_len) {
  return fmt::format(R"({{"count":{},"max_model_len":{})", tokens.ids.size(), max_model_len);
}

result<void> note_ignored(const json_fields& fields, const openai_limits& limits,
                          std::vector<std::string>& ignored) {
  const auto unknown = fields.unknown();
  ignored.insert(ignored.end(), unknown.begin(), unknown.end());
  return check_ignored(ignored, limits);
}

}  // namespace

result<tokenize_body> read_tokenize(std::string_view body, const openai_limits& limits) {
  DI_TRY(const auto parsed, parse_body(body, limits.max_depth));
  json_fields fields(parsed.get_object());
  tokenize_body out;
  DI_TRY(auto model, fields.text("model"));
  out.model = std::move(model).value_or("");
  DI_TRY(out.with_pieces, fields.flag("with_pieces", false));
  DI_TRY(out.token_strings, fields.flag("return_token_strs", false));
  DI_TRY(const auto special, fields.flag("add_special", true));
  DI_TRY(out.call.add_special, fields.flag("add_special_tokens", special));
  DI_TRY(auto prompt, fields.text("prompt"));
  DI_TRY(auto content, fields.text("content"));
  const bool has_chat = fields.find("messages") != nullptr;
  const int inputs = int{prompt.has_value()} + int{content.has_value()} + int{has_chat};
  if (inputs != 1)
    return fields.failure("prompt", fmt::format("{} of prompt, content and messages are given, "
                                                "exactly one is needed",
                                                inputs));
  if (has_chat) {
    DI_TRY(out.call.chat_json, read_chat_body(fields, out.ignored));
  } else {
    out.call.text = prompt ? std::move(prompt) : std::move(content);
  }
  DI_TRY_VOID(note_ignored(fields, limits, out.ignored));
  return out;
}

std::string tokenize_json(const tokenize_body& asked, const token_list& tokens,
                          std::int32_t max_model_len) {
  auto out = counts(tokens, max_model_len) + R"(,"tokens":)";
  append_tokens(out, tokens, asked.with_pieces);
  out += R"(,"token_strs":)";
  if (!asked.token_strings) return out + "null}";
  out += '[';
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, piece_of(tokens, i));
  }
  return out + "]}";
}

result<detokenize_body> read_detokenize(std::string_view body, const openai_limits& limits) {
  DI_TRY(const auto parsed, parse_body(body, limits.max_depth));
  json_fields fields(parsed.get_object());
  detokenize_body out;
  DI_TRY(auto model, fields.text("model"));
  out.model = std::move(model).value_or("");
  if (!fields.find("tokens")) return fields.failure("tokens", "is missing");
  DI_TRY(out.tokens.ids, fields.ids("tokens", most_ids));
  DI_TRY_VOID(note_ignored(fields, limits, out.ignored));
  return out;
}

result<void> check_ids(const token_list& tokens, std::int32_t vocab_size) {
  if (vocab_size <= 0) return {};
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    if (tokens.ids[i] >= vocab_size)
      return fail(
        errc::invalid_argument,
        fmt::format("tokens[{}]: found {}, expected 0 to {}", i, tokens.ids[i], vocab_size - 1),
        "tokens");
  return {};
}

std::string detokenize_json(const std::string& text) {
  std::string out = R"({"prompt":)";
  append_json_string(out, text);
  return out + "}";
}

result<tokenize_body> read_render(std::string_view body, const openai_limits& limits) {
  DI_TRY(const auto parsed, parse_body(body, limits.max_depth));
  json_fields fields(parsed.get_object());
  tokenize_body out;
  DI_TRY(auto model, fields.text("model"));
  out.model = std::move(model).value_or("");
  DI_TRY(out.call.chat_json, read_chat_body(fields, out.ignored));
  DI_TRY_VOID(note_ignored(fields, limits, out.ignored));
  return out;
}

std::string render_json(const token_list& tokens, std::int32_t max_model_len) {
  auto out = counts(tokens, max_model_len) + R"(,"prompt":)";
  append_json_string(out, tokens.text);
  out += R"(,"tokens":)";
  append_tokens(out, tokens, false);
  return out + "}";
}

}  // namespace deepinfer
