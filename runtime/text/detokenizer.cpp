#include "runtime/text/detokenizer.hpp"

namespace deepinfer {

std::string_view detokenizer::bytes_of(token_id id) const {
  return options_.skip_special && words_.is_special(id) ? std::string_view{} : words_.bytes_of(id);
}

void detokenizer::push_into(std::string& text, token_id id) {
  stream_.push_into(text, bytes_of(id));
}

std::string detokenizer::push(token_id id) {
  std::string text;
  push_into(text, id);
  return text;
}

std::string detokenizer::finish() {
  return stream_.finish();
}

std::string detokenize(const tokenizer& words, std::span<const token_id> ids,
                       detokenizer_options options) {
  detokenizer stream(words, options);
  std::string text;
  for (const auto id : ids) stream.push_into(text, id);
  return text + stream.finish();
}

}  // namespace deepinfer
