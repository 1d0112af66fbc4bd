#include "runtime/text/bpe.hpp"

#include <map>

#include <doctest/doctest.h>

#include "runtime/base/random.hpp"
#include "runtime/text/bpe_alphabet.hpp"

using namespace deepinfer;

namespace {

/// Merges of ids, with the definition spelled out: the lowest rank first, the leftmost of equals.
struct plain_merges {
  std::map<std::pair<token_id, token_id>, std::pair<int, token_id>> ranks;

  std::vector<token_id> encode(std::string_view piece) const {
    std::vector<token_id> ids;
    for (const char byte : piece) ids.push_back(static_cast<unsigned char>(byte));
    while (true) {
      auto best = ranks.end();
      std::size_t place = 0;
      for (std::size_t at = 0; at + 1 < ids.size(); ++at) {
        const auto found = ranks.find({ids[at], ids[at + 1]});
        if (found == ranks.end()) continue;
        if (best != ranks.end() && best->second.first <= found->second.first) continue;
        best = found;
        place = at;
      }
      if (best == ranks.end()) return ids;
      ids[place] = best->second.second;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
  }
};

/// Random merges over the first `letters` byte values; products are new ids.
std::pair<bpe_merges, plain_merges> random_merges(std::uint64_t seed, std::uint64_t letters,
                                                  std::size_t count) {
  std::array<token_id, 256> byte_ids{};
  for (std::size_t byte = 0; byte < 256; ++byte) byte_ids[byte] = static_cast<token_id>(byte);
  std::pair<bpe_merges, plain_merges> made{bpe_merges(byte_ids, count), {}};
  const auto pick = [&](std::uint64_t products) {
    const auto n = split_mix64(seed++) % (letters + products);
    return static_cast<token_id>(n < letters ? n : 256 + (n - letters));
  };
  for (std::size_t rank = 0; rank < count; ++rank) {
    const auto left = pick(rank), right = pick(rank), product = static_cast<token_id>(256 + rank);
    made.first.add(left, right, product);
    made.second.ranks[{left, right}] = {static_cast<int>(rank), product};
  }
  return made;
}

std::string random_piece(std::uint64_t& seed, std::uint64_t letters, std::size_t size) {
  std::string piece;
  while (piece.size() < size) piece.push_back(static_cast<char>(split_mix64(seed++) % letters));
  return piece;
}

}  // namespace

TEST_CASE("pieces of any length are merged by the lowest rank, leftmost first") {
  std::uint64_t seed = 11;
  for (std::uint64_t round = 0; round < 60; ++round) {
    const auto letters = 1 + round % 5;
    const auto [merges, plain] = random_merges(1000 * round, letters, 40);
    for (const std::size_t size : {1u, 2u, 3u, 7u, 22u, 23u, 24u, 25u, 60u, 300u}) {
      CAPTURE(round);
      CAPTURE(size);
      const auto piece = random_piece(seed, letters, size);
      bpe_merges::scratch memory(0);
      std::vector<token_id> ids;
      merges.encode(piece, memory, ids);
      REQUIRE(ids == plain.encode(piece));
    }
  }
}

TEST_CASE("the memory of short pieces changes no id") {
  const auto [merges, plain] = random_merges(5, 2, 30);
  bpe_merges::scratch fresh(0), warm(1 << 20);
  std::uint64_t seed = 3;
  for (int round = 0; round < 20'000; ++round) {
    const auto piece = random_piece(seed, 2, 1 + split_mix64(seed++) % 14);
    std::vector<token_id> plainly, remembered;
    merges.encode(piece, fresh, plainly);
    merges.encode(piece, warm, remembered);
    REQUIRE(plainly == remembered);
  }
}

TEST_CASE("a pair merged twice takes the later rank") {
  std::array<token_id, 256> byte_ids{};
  for (std::size_t byte = 0; byte < 256; ++byte) byte_ids[byte] = static_cast<token_id>(byte);
  bpe_merges merges(byte_ids, 3);
  merges.add('a', 'b', 300);
  merges.add('b', 'c', 301);
  merges.add('a', 'b', 300);
  bpe_merges::scratch memory(0);
  std::vector<token_id> ids;
  merges.encode("abc", memory, ids);
  CHECK(ids == std::vector<token_id>{'a', 301});
}

TEST_CASE("the byte alphabet names every byte by one character, and back") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  CHECK(bytes_of_name(name_of_bytes(all)) == all);
  const std::pair<std::string, std::string> table[] = {{" ", "Ġ"},    {"\n", "Ċ"},
                                                       {"A~", "A~"},  {"\xC3\xA9", "Ã©"},
                                                       {"\xAD", "Ń"}, {std::string(1, 0), "Ā"}};
  for (const auto& [bytes, name] : table) {
    CHECK(name_of_bytes(bytes) == name);
    CHECK(bytes_of_name(name) == bytes);
  }
  for (const auto* outside : {"a b", "｜", "Ń\x7F", "ń", "\xFF"}) {
    CAPTURE(outside);
    CHECK_FALSE(bytes_of_name(outside).has_value());
  }
}

TEST_CASE("a vocabulary finds tokens by key, by bytes and by id") {
  bpe_vocabulary words(4);
  REQUIRE(words.add("Ġthe", 7).has_value());
  REQUIRE(words.add("<｜User｜>", 0).has_value());
  CHECK(words.size() == 8);
  CHECK(words.find("Ġthe") == 7);
  CHECK(words.find_bytes(" the") == 7);
  CHECK(words.bytes_of(7) == " the");
  CHECK(words.name_of(7) == "Ġthe");
  CHECK(words.find("<｜User｜>") == 0);
  CHECK(words.bytes_of(0) == "<｜User｜>");
  CHECK(words.name_of(0) == "<｜User｜>");
  CHECK_FALSE(words.find_bytes("<｜User｜>").has_value());
  CHECK_FALSE(words.find("the").has_value());
  for (const token_id unknown : {-1, 1, 6, 8, 1 << 30}) {
    CHECK_FALSE(words.is_known(unknown));
    CHECK(words.bytes_of(unknown).empty());
  }
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{7}, std::int64_t{1} << 40})
    CHECK_FALSE(words.add("x", wrong).has_value());
}
