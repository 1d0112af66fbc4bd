#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/node/commands.hpp"
#include "actors/node/text_command.hpp"
#include "runtime/text/detokenizer.hpp"

namespace deepinfer {

namespace {

constexpr std::size_t max_text_bytes = std::size_t{64} << 20;

tl::unexpected<error> wrong_field(std::string_view name, std::string_view expected) {
  return fail(errc::invalid_argument, fmt::format("{}: expected {}", name, expected),
              std::string(name));
}

result<void> append_times(std::string& text, const json::value& pair, std::string_view name) {
  const auto* list = pair.if_array();
  if (!list || list->size() != 2 || !list->at(0).is_string() || !list->at(1).is_int64() ||
      list->at(1).get_int64() < 0)
    return wrong_field(name, "[text, count]");
  const auto& piece = list->at(0).get_string();
  const auto count = static_cast<std::size_t>(list->at(1).get_int64());
  if (piece.size() > 0 &&
      count > (max_text_bytes - std::min(max_text_bytes, text.size())) / piece.size())
    return wrong_field(name, fmt::format("at most {} bytes in all", max_text_bytes));
  for (std::size_t i = 0; i < count && !piece.empty(); ++i) text.append(piece.data(), piece.size());
  return {};
}

result<std::string> from_hex(std::string_view hex) {
  std::string bytes;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  if (hex.size() % 2 != 0) return wrong_field("bytes_hex", "pairs of hexadecimal digits");
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]), low = digit(hex[i + 1]);
    if (high < 0 || low < 0) return wrong_field("bytes_hex", "pairs of hexadecimal digits");
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

/// The text of a request: `text`, `bytes_hex`, `repeat` [text, count] or `concat` of such pairs.
result<std::string> request_text(const json::object& request) {
  std::string text;
  if (const auto* plain = request.if_contains("text")) {
    if (!plain->is_string()) return wrong_field("text", "a string");
    return std::string(plain->get_string());
  }
  if (const auto* hex = request.if_contains("bytes_hex")) {
    if (!hex->is_string()) return wrong_field("bytes_hex", "a string");
    return from_hex(hex->get_string());
  }
  if (const auto* repeat = request.if_contains("repeat")) {
    DI_TRY_VOID(append_times(text, *repeat, "repeat"));
    return text;
  }
  const auto* concat = request.if_contains("concat");
  if (!concat || !concat->is_array())
    return wrong_field("text", "one of text, bytes_hex, repeat, concat");
  for (const auto& pair : concat->get_array()) DI_TRY_VOID(append_times(text, pair, "concat"));
  return text;
}

json::array array_of(const std::vector<token_id>& ids) {
  return json::array(ids.begin(), ids.end());
}

result<json::object> tokenize_object(const tokenizer& words, const json::value& request,
                                     specials otherwise, bad_bytes rule) {
  const auto* object = request.if_object();
  if (!object) return wrong_field("request", "an object");
  DI_TRY(const std::string text, request_text(*object));
  auto mode = otherwise;
  if (const auto* special = object->if_contains("special")) {
    // "both" says that the ids are the same either way.
    if (*special != "on" && *special != "off" && *special != "both")
      return wrong_field("special", "on, off or both");
    mode = *special == "off" ? specials::off : specials::on;
  }
  json::object out;
  out["ids"] = array_of(words.encode(text, mode, rule));
  return out;
}

result<int> run_tokenize(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const tokenizer words, open_tokenizer(context, flags, false));
  const auto mode = flags.is_on("special", true) ? specials::on : specials::off;
  const auto rule = flags.is_on("keep-bytes") ? bad_bytes::keep : bad_bytes::replace;
  DI_TRY(const auto file, jsonl_file(flags));
  if (file)
    return answer_lines(context, *file, [&](const json::value& request) {
      return tokenize_object(words, request, mode, rule);
    });
  DI_TRY(const std::string text, text_argument(flags));
  const auto ids = words.encode(text, mode, rule);
  if (flags.is_on("json")) {
    json::object out;
    out["ids"] = array_of(ids);
    fmt::print(context.out, "{}\n", to_text(out));
  } else {
    fmt::print(context.out, "{}\n", fmt::join(ids, ","));
  }
  return 0;
}

result<json::object> detokenize_ids(const tokenizer& words, const std::vector<token_id>& ids,
                                    bool skip_special) {
  DI_TRY_VOID(check_known_ids(ids, words.vocab_size(), "ids"));
  detokenizer stream(words, {.skip_special = skip_special});
  std::string text;
  json::array pieces;
  for (const auto id : ids) {
    const auto piece = stream.push(id);
    text += piece;
    pieces.emplace_back(piece);
  }
  const auto tail = stream.finish();
  json::object out;
  out["text"] = text + tail;
  out["pieces"] = std::move(pieces);
  out["tail"] = tail;
  return out;
}

result<json::object> detokenize_object(const tokenizer& words, const json::value& request,
                                       bool skip_special) {
  DI_TRY(const auto ids, ids_field(request, "ids"));
  if (const auto* skip = request.get_object().if_contains("skip_special")) {
    if (!skip->is_bool()) return wrong_field("skip_special", "true or false");
    skip_special = skip->get_bool();
  }
  return detokenize_ids(words, ids, skip_special);
}

result<int> run_detokenize(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const tokenizer words, open_tokenizer(context, flags, false));
  const bool skip_special = flags.is_on("skip-special");
  DI_TRY(const auto file, jsonl_file(flags));
  if (file)
    return answer_lines(context, *file, [&](const json::value& request) {
      return detokenize_object(words, request, skip_special);
    });
  DI_TRY(std::string list, text_argument(flags));
  if (list.find_first_not_of(" \n") == std::string::npos) list.clear();
  std::vector<token_id> ids;
  if (!list.empty()) {
    DI_TRY(ids, parse_ids(list));
  }
  DI_TRY(const auto done, detokenize_ids(words, ids, skip_special));
  if (flags.is_on("json"))
    fmt::print(context.out, "{}\n", to_text(done));
  else
    fmt::print(context.out, "{}\n", std::string_view(done.at("text").get_string()));
  return 0;
}

std::vector<flag> with_text_flags(std::vector<flag> own) {
  own.push_back({.name = "json", .help = "one JSON object"});
  for (auto& shared : text_flags()) own.push_back(std::move(shared));
  return own;
}

}  // namespace

command tokenize_command() {
  return {.name = "tokenize",
          .summary = "print the token ids of a text (an argument, or standard input)",
          .positionals = "[TEXT]",
          .positionals_max = 1,
          .flags = with_text_flags(
            {{.name = "special",
              .help = "read added tokens such as <think> as tokens, not as text",
              .default_text = "on",
              .is_negatable = true},
             {.name = "keep-bytes",
              .help = "bytes that are not UTF-8 get ids of their own, instead of U+FFFD"}}),
          .run = run_tokenize};
}

command detokenize_command() {
  return {.name = "detokenize",
          .summary = "print the text of token ids, e.g. 1,2,3 (an argument, or standard input)",
          .positionals = "[ID,ID,...]",
          .positionals_max = 1,
          .flags = with_text_flags(
            {{.name = "skip-special", .help = "leave out special tokens such as the end of text"}}),
          .run = run_detokenize};
}

}  // namespace deepinfer
