/// Byte-pair encoding over token ids: the vocabulary of byte strings, and the merges.
///
/// A piece starts as one token per byte; while neighbours have a merge, the one of lowest rank
/// (leftmost of equals) is replaced by its product. Source: model-v41.md 21.1.
/// Both classes are immutable once filled; `bpe_merges::encode` may run in any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// Token id to bytes and back, from the keys of `model.vocab`.
class bpe_vocabulary {
public:
  explicit bpe_vocabulary(std::size_t token_count);

  /// Adds a token under its key. Errors: bad_checkpoint (id out of range or given twice).
  result<void> add(std::string_view name, std::int64_t id);

  /// The id whose key is `name`.
  std::optional<token_id> find(std::string_view name) const;

  /// The id of a byte string; keys outside of the byte alphabet are not found.
  std::optional<token_id> find_bytes(std::string_view bytes) const;

  std::string_view bytes_of(token_id id) const;  ///< empty for unknown ids
  std::string name_of(token_id id) const;
  bool is_known(token_id id) const;
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }  ///< last id + 1

private:
  struct token {
    std::uint32_t begin = 0, size = 0;
    bool is_known = false, is_raw = false;  ///< raw: key is not in the byte alphabet
  };
  std::size_t home_of(std::string_view bytes) const;

  std::string blob_;
  std::vector<token> tokens_;
  std::vector<token_id> table_;  ///< open addressing by bytes; -1 where free
  std::unordered_map<std::string, token_id> raw_;
};

class bpe_merges {
public:
  bpe_merges(std::array<token_id, 256> byte_ids, std::size_t merge_count);

  /// The next merge in rank order; a pair that comes again takes the later rank.
  void add(token_id left, token_id right, token_id product);

  /// Working memory of one call; remembers short pieces once a text is long enough to repeat some.
  class scratch;

  void encode(std::string_view piece, scratch& memory, std::vector<token_id>& ids) const;

private:
  using rank = std::uint32_t;
  static constexpr rank no_rank = 0xFFFFFFFFu;
  struct entry {
    std::uint64_t key = free_key;
    rank at = no_rank;
    token_id product = 0;
  };
  static constexpr std::uint64_t free_key = ~std::uint64_t{0};

  const entry* find(token_id left, token_id right) const;
  rank rank_of(token_id left, token_id right) const;
  void merge_short(scratch& memory) const;
  void merge_long(scratch& memory) const;

  std::array<token_id, 256> byte_ids_;
  std::vector<entry> table_;  ///< open addressing by (left, right)
  rank next_rank_ = 0;
};

class bpe_merges::scratch {
public:
  /// `text_bytes`: how much will be encoded with this memory.
  explicit scratch(std::size_t text_bytes);

private:
  friend class bpe_merges;

  struct symbol {
    token_id id;
    rank with_next;              ///< rank of the merge with the next symbol
    std::uint32_t before, next;  ///< long pieces only
  };
  struct remembered {  // one short piece and its ids
    std::uint8_t size = 0, id_count = 0;
    std::array<char, 30> bytes{};
    std::array<token_id, 8> ids{};
  };
  remembered* place_of(std::string_view piece);

  std::vector<symbol> symbols_;
  std::vector<std::uint64_t> heap_;  ///< rank << 32 | place of the left symbol
  std::vector<remembered> cache_;
};

}  // namespace deepinfer
