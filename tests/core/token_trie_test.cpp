#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/token_trie.hpp"
#include "tests/core/json_texts.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// Every node's path, by following ends from the root down.
void read_nodes(const token_trie& trie, std::uint32_t first, std::uint32_t last,
                const std::string& above, std::map<std::string, std::vector<token_id>>& out) {
  int byte_before = -1;
  for (auto at = first; at < last; at = trie.nodes()[at].end) {
    const auto& node = trie.nodes()[at];
    REQUIRE(node.depth == above.size());
    REQUIRE(node.end > at);
    REQUIRE(node.end <= last);
    REQUIRE(int{node.byte} > byte_before);  // siblings differ and are in order
    byte_before = node.byte;
    const auto path = above + static_cast<char>(node.byte);
    const auto ids = trie.ids_at(at);
    out[path] = {ids.begin(), ids.end()};
    read_nodes(trie, at + 1, node.end, path, out);
  }
}

void check_trie(const word_texts& texts, std::int32_t vocabulary,
                const std::vector<token_id>& markers = {}) {
  const token_trie trie(texts, vocabulary, markers);
  std::map<std::string, std::vector<token_id>> expected;
  std::size_t longest = 0;
  for (token_id id = 0; id < vocabulary; ++id) {
    std::string word(texts.is_special(id) ? std::string_view() : texts.bytes(id));
    if (std::find(markers.begin(), markers.end(), id) != markers.end()) word.clear();
    CHECK(trie.bytes(id) == word);
    longest = std::max(longest, word.size());
    for (std::size_t size = 1; size < word.size(); ++size) expected[word.substr(0, size)];
    if (!word.empty()) expected[word].push_back(id);
  }
  std::map<std::string, std::vector<token_id>> found;
  read_nodes(trie, 0, static_cast<std::uint32_t>(trie.nodes().size()), "", found);
  CHECK(found == expected);
  CHECK(trie.nodes().size() == expected.size());
  CHECK(trie.longest() == longest);
  CHECK(trie.vocabulary() == vocabulary);
}

}  // namespace

TEST_CASE("a trie holds every token with bytes once, at the node that its bytes spell") {
  check_trie(word_texts({"<eos>", "ab", "a", "abc", "b", "ab", "", "ac", "\xFF", "\x7F\x80"}, 1),
             10);
  draws random(7);
  for (int n = 0; n < 10; ++n) {
    const auto texts = random_vocabulary(random, 300);
    check_trie(texts, texts.size());
  }
  const auto tiny = tiny_vocabulary();
  REQUIRE(tiny.size() > 1000);
  check_trie(tiny, tiny.size());
  check_trie(tiny, tiny.size(), tiny_markers());
  check_trie(tiny, tiny.size(), {tiny.size(), 70, 9, -1, 8});
}

TEST_CASE("an empty vocabulary has no nodes, and ids outside of one have no bytes") {
  const word_texts texts({"<eos>", "a"}, 1);
  CHECK(token_trie(texts, 0, {}).nodes().empty());
  CHECK(token_trie(texts, 1, {}).nodes().empty());
  const token_trie trie(texts, 40, {});  // padded
  CHECK(trie.nodes().size() == 1);
  for (const token_id id : {-1, 0, 2, 39, 40, 1000}) CHECK(trie.bytes(id).empty());
  CHECK(trie.bytes(1) == "a");
}
