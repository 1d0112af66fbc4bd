#include <algorithm>

#include <fmt/format.h>

#include "runtime/http/json_text.hpp"
#include "runtime/http/openai_shapes.hpp"

namespace deepinfer {
namespace {

std::string_view text_of(const token_logprobs& token, std::size_t i) {
  return i < token.texts.size() ? std::string_view(token.texts[i]) : std::string_view();
}

float logprob_of(const token_logprobs& token, std::size_t i) {
  return i < token.logprobs.size() ? token.logprobs[i] : -9999.0f;
}

/// Characters that begin in `text`.
std::int64_t characters_in(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void separate(std::string& list) {
  if (!list.empty()) list += ',';
}

void append_alternative(std::string& out, const token_logprobs& token, std::size_t i) {
  const auto text = text_of(token, i);
  out += R"({"token":)";
  append_json_string(out, text);
  out += R"(,"logprob":)";
  append_json_number(out, logprob_of(token, i));
  out += R"(,"bytes":[)";
  for (std::size_t at = 0; at < text.size(); ++at)
    fmt::format_to(std::back_inserter(out), "{}{}", at > 0 ? "," : "",
                   static_cast<unsigned>(static_cast<unsigned char>(text[at])));
  out += ']';
}

/// A token as a word: what is no UTF-8 by its bytes, so that different tokens stay different.
std::string legacy_word(std::string_view text) {
  if (!utf8_defect(text)) return std::string(text);
  std::string out = "bytes:";
  for (const char c : text)
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

void logprob_text::add(const token_logprobs& token) {
  if (token.ids.empty()) return;
  is_empty_ = false;
  if (endpoint_ == openai_endpoint::chat)
    add_chat(token);
  else
    add_completion(token);
}

void logprob_text::add_chat(const token_logprobs& token) {
  separate(content_);
  append_alternative(content_, token, 0);
  content_ += R"(,"top_logprobs":[)";
  for (std::size_t i = 1; i < token.ids.size(); ++i) {
    if (i > 1) content_ += ',';
    append_alternative(content_, token, i);
    content_ += '}';
  }
  content_ += "]}";
}

void logprob_text::add_completion(const token_logprobs& token) {
  const auto word = legacy_word(text_of(token, 0));
  separate(tokens_);
  append_json_string(tokens_, word);
  separate(numbers_);
  append_json_number(numbers_, logprob_of(token, 0));
  separate(tops_);
  tops_ += '{';
  std::vector<std::string> said;  // an object says a word once
  for (std::size_t i = 1; i <= token.ids.size(); ++i) {
    const auto at = i % token.ids.size();  // the chosen one last, where it is not among the best
    auto it = legacy_word(text_of(token, at));
    if (std::find(said.begin(), said.end(), it) != said.end()) continue;
    if (!said.empty()) tops_ += ',';
    append_json_string(tops_, it);
    tops_ += ':';
    append_json_number(tops_, logprob_of(token, at));
    said.push_back(std::move(it));
  }
  tops_ += '}';
  separate(offsets_);
  offsets_ += std::to_string(offset_);
  offset_ += characters_in(text_of(token, 0));
}

void logprob_text::append(std::string& out) const {
  if (endpoint_ == openai_endpoint::chat) {
    out += R"({"content":[)" + content_ + R"(],"refusal":null})";
    return;
  }
  out += R"({"tokens":[)" + tokens_ + R"(],"token_logprobs":[)" + numbers_ +
         R"(],"top_logprobs":[)" + tops_ + R"(],"text_offset":[)" + offsets_ + "]}";
}

}  // namespace deepinfer
