/// What kv_pool must do, said as plainly as possible: maps and lists, searched from end to end.
///
/// A second opinion for tests: it shares no code with kv_pool and prefix_index, and is compared
/// with them answer by answer. Errors: none; it is asked only for what the contract allows.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "messages/kv.hpp"
#include "runtime/core/kv_pool.hpp"

namespace deepinfer::test {

class naive_pool {
public:
  explicit naive_pool(const kv_pool_config& config);

  kv_grant reserve(const kv_reserve& want);
  kv_grant release(const kv_release& done);
  kv_grant flush();

  std::int64_t free_blocks() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t cached_blocks() const { return static_cast<std::int64_t>(cached_.size()); }
  std::int64_t held_blocks() const;
  std::int64_t host_entries() const { return static_cast<std::int64_t>(spilled_.size()); }
  std::int64_t owed_blocks() const { return owed_blocks_; }
  std::int32_t references(std::int32_t block) const { return refs_.at(block); }
  const prefix_counters& counters() const { return counters_; }

  /// Everything that matters to what it will do, as numbers.
  std::vector<std::int64_t> state() const;

private:
  using key = std::pair<std::uint64_t, std::uint64_t>;
  struct name {
    bool on_host;
    std::int32_t number;
    std::vector<token_id> ids;
    std::uint64_t pending;
  };

  const name* name_of_block(std::int32_t block) const;
  void forget_block(std::int32_t block);
  void forget_all();
  void publish(std::int32_t block, key at, std::vector<token_id> ids, std::uint64_t pending);
  void look_up(const prefix_lookup& lookup, kv_grant& out);
  void evict(kv_grant& out, std::int32_t kept_place = -1);
  void pay(kv_grant& out);

  kv_pool_config config_;
  std::map<key, name> names_;
  std::map<std::int32_t, std::int32_t> refs_;
  std::vector<std::int32_t> free_, free_places_, free_slots_;  ///< next one at the back
  std::list<std::int32_t> cached_, spilled_;                   ///< next victim at the front
  std::int64_t owed_blocks_ = 0, owed_slots_ = 0;
  prefix_counters counters_;
};

}  // namespace deepinfer::test
