/// A pool with everything around it that decides whether its answers are right: sequences that hold
/// blocks, steps that write them and settle or fail, and the memory itself.
///
/// Memory is modelled by what a block's KV depends on: all ids up to its end. A block that changes
/// hands holds nothing; a failed step leaves nothing; moves copy. So a hit is judged by reading.
/// Each call that reaches the pool reaches `naive_pool` as well; both must say the same.
/// `wrong()` is the first thing that was not as it must be, "" as long as all is well.
/// Block size 2. Callers may only do what the `may_` functions allow.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/kv_pool.hpp"
#include "tests/core/naive_pool.hpp"

namespace deepinfer::test {

inline constexpr std::int32_t world_block_size = 2;

/// Ids of whole blocks, and the key of each.
struct world_prompt {
  std::shared_ptr<const std::vector<token_id>> ids;
  std::vector<prefix_key> keys;
};
world_prompt make_prompt(std::vector<token_id> ids, std::uint64_t salt = 0);

class prefix_world {
public:
  struct sequence {
    std::size_t prompt;
    std::vector<block_id> blocks;  ///< in table order
    bool is_lost = false;          ///< reads what a failed step left: can only be released
  };
  enum class outcome { confirmed, silent, failed };

  prefix_world(const kv_pool_config& config, const std::vector<world_prompt>* prompts)
    : prompts_(prompts),
      pool_(config),
      naive_(config),
      want_{.rank = config.rank} {}

  // Into the next message.
  void look_up(std::size_t prompt, std::size_t blocks);
  void ask(std::int32_t blocks, std::int32_t evict);
  bool may_publish(std::size_t of, std::size_t block) const;
  void publish(std::size_t of, std::size_t block);

  /// The message goes out, and the answer comes in.
  void send();

  /// A step is launched that writes the next block of a sequence, into one of the granted.
  bool may_write(std::size_t of) const;
  void write(std::size_t of);

  /// The oldest launched step is over. `silent`: nobody is left to confirm what it completed.
  bool may_settle() const { return !launched_.empty(); }
  void settle(outcome how);

  bool may_release(std::size_t of) const;
  void release(std::size_t of);
  void release_credit();
  void flush();

  const std::vector<sequence>& sequences() const { return sequences_; }
  std::size_t credit() const { return credit_.size(); }
  const kv_pool& pool() const { return pool_; }
  const std::string& wrong() const { return wrong_; }

  /// All that decides what may come: worlds of equal state have equal futures.
  std::vector<std::int64_t> state() const;

private:
  using content = std::vector<token_id>;  ///< ids up to the end of the block; empty: nothing

  content expected(const sequence& of, std::size_t block) const;
  bool is_settled(block_id block) const { return !written_by_.contains(block.value); }
  void require(bool truth, const std::string& what);
  void take(const kv_grant& real, const kv_grant& naive);
  void take_hit(const prefix_hit& hit);
  void lose(std::uint64_t step);
  void compare();

  const std::vector<world_prompt>* prompts_;
  kv_pool pool_;
  naive_pool naive_;
  kv_reserve want_;
  std::vector<std::size_t> asked_;  ///< prompt of each lookup in `want_`
  std::vector<sequence> sequences_;
  std::vector<block_id> credit_;
  std::map<std::int32_t, content> blocks_, places_;
  std::map<std::int32_t, std::uint64_t> written_by_;  ///< the launched step that completes a block
  std::vector<std::uint64_t> launched_;               ///< oldest first
  std::uint64_t next_step_ = 1;
  std::string wrong_;
};

}  // namespace deepinfer::test
