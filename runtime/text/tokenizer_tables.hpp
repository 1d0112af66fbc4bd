/// What a loaded tokenizer consists of. Private to tokenizer.cpp and tokenizer_file.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/text/bpe.hpp"
#include "runtime/text/pre_tokenizer.hpp"
#include "runtime/text/tokenizer.hpp"
#include "runtime/text/tokenizer_added.hpp"

namespace deepinfer {

/// The large parts are shared between a tokenizer and its V4.1 reading.
struct tokenizer::tables {
  std::shared_ptr<const bpe_vocabulary> words;
  std::shared_ptr<const bpe_merges> merges;
  std::shared_ptr<const pre_tokenizer> splitter;
  added_tokens added;
  bool ignores_merges = false;  ///< a piece that is a token as a whole is that token
  std::vector<std::string> warnings;
};

/// Reads the text of a tokenizer.json. Errors: bad_checkpoint.
result<tokenizer::tables> read_tokenizer_file(std::string_view json_text);

}  // namespace deepinfer
