#include "runtime/text/detokenizer.hpp"

#include <fmt/format.h>

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

result<void> check_known_ids(std::span<const token_id> ids, std::int32_t vocab_size,
                             const std::string& place) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size)
      return fail(
        errc::invalid_argument,
        fmt::format("{}: entry {} is {}, expected 0 to {}", place, i, ids[i], vocab_size - 1),
        place);
  return {};
}

}  // namespace deepinfer
