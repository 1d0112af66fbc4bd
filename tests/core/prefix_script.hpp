/// Short sentences for tests of the prefix cache: a text is a prompt, each letter a block of two
/// equal ids. A pool of rank 1 and what is said to it; invariants are checked after each sentence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/check.hpp"
#include "runtime/core/kv_pool.hpp"
#include "runtime/core/prefix_key.hpp"

namespace deepinfer::test {

using numbers = std::vector<std::int32_t>;

inline numbers numbers_of(const std::vector<block_id>& blocks) {
  numbers out;
  for (const auto block : blocks) out.push_back(block.value);
  return out;
}

inline std::vector<prefix_key> keys_of(std::string_view text) {
  std::vector<prefix_key> out;
  auto key = prefix_root(0);
  for (const char letter : text) out.push_back(key = prefix_next(key, std::vector(2, int{letter})));
  return out;
}

inline prefix_lookup lookup_of(std::string_view text) {
  std::vector<token_id> ids;
  for (const char letter : text) ids.insert(ids.end(), 2, letter);
  return {{1}, 1, std::make_shared<const std::vector<token_id>>(std::move(ids)), keys_of(text)};
}

/// `block` holds the last letter of `text`.
inline void add_entry(prefix_entries& out, block_id block, std::string_view text, step_id pending) {
  out.blocks.push_back(block);
  out.keys.push_back(keys_of(text).back());
  out.ids.insert(out.ids.end(), 2, text.back());
  out.pending.push_back(pending);
}

struct script_hit {
  numbers blocks;
  step_id pending_first, pending_last;
};

class script {
public:
  explicit script(std::int32_t blocks, std::int32_t host = 0) : pool_({{1}, blocks, 1, 2, host}) {}

  kv_pool& pool() { return pool_; }
  /// Moves ordered by the last sentence.
  const std::vector<block_move>& moves() const { return moves_; }

  numbers grant(std::int32_t blocks, std::int32_t evict = 0) {
    return numbers_of(say({.rank = {1}, .blocks = blocks, .evict = evict}).blocks);
  }

  script_hit look_up(std::string_view text) {
    kv_reserve want{.rank = {1}};
    want.lookups = {lookup_of(text)};
    const auto hit = say(want).hits.front();
    return {numbers_of(hit.blocks), hit.pending_first, hit.pending_last};
  }

  void publish(block_id block, std::string_view text, step_id pending = {}) {
    kv_reserve want{.rank = {1}};
    add_entry(want.publish, block, text, pending);
    DI_CHECK(say(want).is_empty(), "a publication of {} was granted something", block.value);
  }

  void retract(step_id step) {
    kv_reserve want{.rank = {1}};
    want.retract = {step};
    DI_CHECK(say(want).is_empty(), "a failure of step {} was granted something", step.value);
  }

  /// A sequence is admitted: what is cached is hit, the rest written into granted blocks and
  /// published. The blocks it holds.
  numbers compute(std::string_view text, std::int32_t evict = 0) {
    auto blocks = look_up(text).blocks;
    for (auto i = blocks.size(); i < text.size(); ++i) {
      const auto granted = grant(1, evict);
      DI_CHECK(granted.size() == 1, "no block for {}", text);
      publish({granted[0]}, text.substr(0, i + 1));
      blocks.push_back(granted[0]);
    }
    return blocks;
  }

  /// In the order given; what it paid.
  numbers release(const numbers& blocks) {
    kv_release done{{1}, {}, {}};
    for (const auto block : blocks) done.blocks.push_back({block});
    const auto paid = pool_.release(done);
    pool_.check_invariants();
    return numbers_of(paid.blocks);
  }

private:
  kv_grant say(const kv_reserve& want) {
    auto granted = pool_.reserve(want);
    pool_.check_invariants();
    moves_ = granted.moves;
    return granted;
  }

  kv_pool pool_;
  std::vector<block_move> moves_;
};

}  // namespace deepinfer::test
