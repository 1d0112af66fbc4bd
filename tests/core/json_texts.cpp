#include "tests/core/json_texts.hpp"

#include <array>

#include "runtime/base/json.hpp"

namespace deepinfer::test {

namespace {

std::string random_space(draws& random) {
  std::string space;
  if (random.chance(70)) return space;
  for (auto n = random.below(6); n > 0; --n) space += " \t\n\r"[random.below(4)];
  return space;
}

std::string random_string(draws& random) {
  static const std::vector<std::string> parts{"a",
                                              "key",
                                              " ",
                                              "\xC3\xA4",
                                              "\xE2\x82\xAC",
                                              "\xE0\xA0\x80",
                                              "\xED\x9F\xBF",
                                              "\xF0\x9F\x98\x80",
                                              "\xF4\x8F\xBF\xBF",
                                              "\xF1\x80\x80\x80",
                                              "\\\"",
                                              "\\\\",
                                              "\\/",
                                              "\\b",
                                              "\\n",
                                              "\\u0000",
                                              "\\u00e9",
                                              "\\uD7fF",
                                              "\\uE000",
                                              "\\ud83D\\uDe00",
                                              "}",
                                              "]",
                                              ",",
                                              ":",
                                              "/",
                                              "\x7F"};
  std::string text = "\"";
  for (auto n = random.below(5); n > 0; --n) text += random.one_of(parts);
  return text + "\"";
}

std::string random_digits(draws& random) {
  std::string digits;
  for (auto n = 1 + random.below(4); n > 0; --n)
    digits += static_cast<char>('0' + random.below(10));
  return digits;
}

std::string random_number(draws& random) {
  std::string text = random.chance(30) ? "-" : "";
  if (random.chance(30))
    text += "0";
  else
    text += static_cast<char>('1' + random.below(9)) + random_digits(random);
  if (random.chance(40)) text += "." + random_digits(random);
  static const std::vector<std::string> exponents{"e5", "E12", "e+03", "E-99", "e0"};
  if (random.chance(30)) text += random.one_of(exponents);
  return text;
}

std::string random_value(draws& random, int depth) {
  const auto kind = random.below(depth > 4 ? 5 : 8);
  if (kind == 0) return random_number(random);
  if (kind == 1) return "true";
  if (kind == 2) return "false";
  if (kind == 3) return "null";
  if (kind == 4) return random_string(random);
  if (kind < 7) return random_object(random, depth + 1);
  std::string text = "[" + random_space(random);
  for (auto n = random.below(4); n > 0; --n) {
    text += random_value(random, depth + 1) + random_space(random);
    if (n > 1) text += "," + random_space(random);
  }
  return text + "]";
}

/// The byte-level alphabet of tokenizer files, backwards; nothing for names outside of it.
std::string bytes_of_letters(std::string_view name) {
  static const auto byte_of = [] {
    std::array<int, 0x144> table{};
    table.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_itself =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      table[static_cast<std::size_t>(is_itself ? byte : next++)] = byte;
    }
    return table;
  }();
  std::string bytes;
  for (std::size_t i = 0; i < name.size(); ++i) {
    auto code = static_cast<std::size_t>(static_cast<unsigned char>(name[i]));
    if (code >= 0xC0) code = (code & 0x1F) << 6 | (static_cast<std::size_t>(name[++i]) & 0x3F);
    if (code >= byte_of.size() || byte_of[code] < 0) return {};
    bytes += static_cast<char>(byte_of[code]);
  }
  return bytes;
}

json::value tiny_tokenizer() {
  return read_json_file(DI_SOURCE_DIR "/examples/models/tiny-v41/tokenizer.json").value();
}

}  // namespace

std::string random_object(draws& random, int depth) {
  std::string text = (depth == 0 ? random_space(random) : "") + "{" + random_space(random);
  for (auto n = random.below(4); n > 0; --n) {
    text += random_string(random) + random_space(random) + ":" + random_space(random);
    text += random_value(random, depth) + random_space(random);
    if (n > 1) text += "," + random_space(random);
  }
  return text + "}";
}

word_texts random_vocabulary(draws& random, int strings) {
  std::vector<std::string> words{"<eos>", "<pad>"};
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  static const std::vector<std::string> parts{
    "{",    "}",    "[",       "]",    ":",    ",",    "\"",   " ",   "\n",   "    ", "0",
    "1",    "99",   "1234567", ".",    "-",    "e",    "E",    "+",   "\\",   "u",    "d",
    "8",    "c",    "0000",    "true", "fal",  "se",   "null", "a",   "\xC3", "\xA4", "\xE0",
    "\xED", "\xF0", "\xF4",    "\x80", "\x90", "\xA0", "\x1F", "\"}", "]}",   "{\"",  "\":"};
  for (int i = 0; i < strings; ++i) {
    std::string word;
    for (auto n = 1 + random.below(6); n > 0; --n) word += random.one_of(parts);
    words.push_back(word);
    if (random.chance(5)) words.push_back(word);
    if (random.chance(2)) words.emplace_back();
  }
  // Words that reach every limit in one go.
  words.emplace_back(15, ' ');
  words.emplace_back(25, '9');
  words.push_back(std::string(25, '9') + ".");
  words.emplace_back(40, '[');
  words.emplace_back(30, ']');
  return {std::move(words), 2};
}

word_texts tiny_vocabulary() {
  const auto file = tiny_tokenizer();
  std::vector<std::string> words;
  const auto put = [&](const json::value& id, std::string word) {
    const auto at = id.to_number<std::size_t>();
    if (words.size() <= at) words.resize(at + 1);
    words[at] = std::move(word);
  };
  for (const auto& [name, id] : file.at("model").at("vocab").as_object())
    put(id, bytes_of_letters(std::string_view(name)));
  token_id specials = 0;
  for (const auto& added : file.at("added_tokens").as_array()) {
    put(added.at("id"), std::string(std::string_view(added.at("content").as_string())));
    specials += added.at("special").as_bool();
  }
  return {std::move(words), specials};  // they are the first ids
}

std::vector<token_id> tiny_markers() {
  std::vector<token_id> markers;
  const auto file = tiny_tokenizer();
  for (const auto& added : file.at("added_tokens").as_array())
    if (!added.at("special").as_bool()) markers.push_back(added.at("id").to_number<token_id>());
  return markers;
}

}  // namespace deepinfer::test
