/// A table that holds at most so many keys: where one more comes, the one that was put or touched
/// longest ago leaves. Every operation takes constant time. Not thread-safe. Errors: none.
#pragma once

#include <cstddef>
#include <list>
#include <unordered_map>
#include <utility>

namespace deepinfer {

template <class Key, class Value>
class bounded_table {
public:
  explicit bounded_table(std::size_t most) : most_(most) {}

  /// Null where the key is not there. The place of the key stays.
  const Value* find(const Key& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? nullptr : &found->second->second;
  }

  /// Sets a key's value; the key is the newest from now on.
  void put(const Key& key, Value value) {
    if (most_ == 0) return;
    const auto found = places_.find(key);
    if (found != places_.end()) {
      found->second->second = std::move(value);
      entries_.splice(entries_.end(), entries_, found->second);
      return;
    }
    if (entries_.size() == most_) {
      places_.erase(entries_.front().first);
      entries_.pop_front();
    }
    entries_.emplace_back(key, std::move(value));
    places_.emplace(key, std::prev(entries_.end()));
  }

  void clear() {
    places_.clear();
    entries_.clear();
  }

  std::size_t size() const { return entries_.size(); }

private:
  using entry_list = std::list<std::pair<Key, Value>>;

  std::size_t most_;
  entry_list entries_;  ///< the oldest first
  std::unordered_map<Key, typename entry_list::iterator> places_;
};

}  // namespace deepinfer
