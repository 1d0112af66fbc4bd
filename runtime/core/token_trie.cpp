#include "runtime/core/token_trie.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

token_trie::token_trie(const token_texts& texts, std::int32_t vocabulary,
                       std::span<const token_id> markers)
  : vocabulary_(vocabulary) {
  DI_CHECK(vocabulary >= 0, "a vocabulary of {} ids", vocabulary);
  std::vector<token_id> sorted(markers.begin(), markers.end());
  std::sort(sorted.begin(), sorted.end());
  begin_.reserve(static_cast<std::size_t>(vocabulary) + 1);
  begin_.push_back(0);
  for (token_id id = 0; id < vocabulary; ++id) {
    const bool is_text =
      !texts.is_special(id) && !std::binary_search(sorted.begin(), sorted.end(), id);
    const auto spelled = is_text ? texts.bytes(id) : std::string_view();
    DI_CHECK(spelled.size() <= bytes_limit, "token {} has {} bytes", id, spelled.size());
    text_ += spelled;
    begin_.push_back(static_cast<std::uint32_t>(text_.size()));
    longest_ = std::max(longest_, spelled.size());
    if (!spelled.empty()) ids_.push_back(id);
  }
  // string_view compares bytes as unsigned, so children come in the order of their bytes.
  std::sort(ids_.begin(), ids_.end(), [this](token_id a, token_id b) {
    const auto order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });

  std::vector<std::uint32_t> path;  // nodes that spell the previous token
  std::string_view before;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
  };
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const auto spelled = bytes(ids_[i]);
    const auto [end, same] =
      std::mismatch(before.begin(), before.end(), spelled.begin(), spelled.end());
    const auto shared = static_cast<std::size_t>(end - before.begin());
    close(shared);
    for (auto depth = shared; depth < spelled.size(); ++depth) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(i), static_cast<std::uint16_t>(depth),
                        static_cast<std::uint8_t>(spelled[depth])});
    }
    nodes_[path.back()].ids_end = static_cast<std::uint32_t>(i + 1);
    before = spelled;
  }
  close(0);
}

std::string_view token_trie::bytes(token_id id) const {
  if (id < 0 || id >= vocabulary_) return {};
  const auto at = static_cast<std::size_t>(id);
  return std::string_view(text_).substr(begin_[at], begin_[at + 1] - begin_[at]);
}

}  // namespace deepinfer
