/// Records of tests/golden/text as the tests want them.
#pragma once

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/base/file.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/json.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

/// Calls `check` with each record of a JSON Lines file; returns how many there were.
inline int each_record(const std::string& name,
                       const std::function<void(const json::object&)>& check) {
  const auto text = read_file(DI_SOURCE_DIR "/tests/golden/text/" + name);
  REQUIRE(text.has_value());
  std::istringstream lines(*text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto record = parse_json(line);
    REQUIRE(record.has_value());
    const auto& object = record->as_object();
    CAPTURE(std::string(object.at("id").as_string()));
    check(object);
  }
  return count;
}

inline std::string string_of(const json::value& value) {
  return {value.as_string().data(), value.as_string().size()};
}

template <class Number>
std::vector<Number> numbers_of(const json::value& value) {
  std::vector<Number> numbers;
  for (const auto& number : value.as_array()) numbers.push_back(number.to_number<Number>());
  return numbers;
}

inline std::vector<std::string> strings_of(const json::value& value) {
  std::vector<std::string> strings;
  for (const auto& text : value.as_array()) strings.push_back(string_of(text));
  return strings;
}

inline std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2)
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16)));
  return bytes;
}

/// The text of a tokenize.jsonl record: `text`, `bytes_hex`, `repeat` or `concat`.
inline std::string text_of_record(const json::object& record) {
  if (const auto* text = record.if_contains("text")) return string_of(*text);
  if (const auto* hex = record.if_contains("bytes_hex")) return from_hex(string_of(*hex));
  std::string text;
  const auto repeat = [&text](const json::value& pair) {
    for (auto left = pair.as_array()[1].as_int64(); left > 0; --left)
      text += string_of(pair.as_array()[0]);
  };
  if (const auto* pair = record.if_contains("repeat"))
    repeat(*pair);
  else
    for (const auto& part : record.at("concat").as_array()) repeat(part);
  return text;
}

inline tokenizer open_tokenizer(const std::string& folder) {
  auto opened = tokenizer::open(DI_SOURCE_DIR "/" + folder);
  REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
  return *std::move(opened);
}
inline tokenizer tiny_tokenizer() {
  return open_tokenizer("examples/models/tiny-v41");
}
inline tokenizer random_model_tokenizer() {
  return open_tokenizer("tests/golden/model/v41-a-plain");
}

}  // namespace deepinfer
