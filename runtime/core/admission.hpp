/// Who starts next: the waiting queue.
///
/// A preempted sequence comes back to the place its arrival gave it [I57]. Errors: DI_CHECK for a
/// broken caller. Single-threaded.
#pragma once

#include <compare>
#include <cstdint>
#include <map>

namespace deepinfer {

struct sequence_state;

/// Waiting sequences by priority (higher first), then arrival. The caller bounds its size.
class admission_queue {
public:
  /// Place in the queue; smaller goes first.
  struct key {
    std::int64_t falling_priority = 0;  ///< minus the request's priority
    std::uint64_t arrival = 0;          ///< unique

    friend auto operator<=>(const key&, const key&) = default;
  };
  using entries = std::map<key, sequence_state*>;

  static key key_of(std::int32_t priority, std::uint64_t arrival) {
    return {-std::int64_t{priority}, arrival};
  }

  void push(key place, sequence_state& sequence);
  void remove(key place);

  std::int64_t size() const { return static_cast<std::int64_t>(waiting_.size()); }
  bool is_empty() const { return waiting_.empty(); }
  entries::const_iterator begin() const { return waiting_.begin(); }
  entries::const_iterator end() const { return waiting_.end(); }
  entries::const_reverse_iterator rbegin() const { return waiting_.rbegin(); }
  entries::const_reverse_iterator rend() const { return waiting_.rend(); }
  void clear() { waiting_.clear(); }

private:
  entries waiting_;
};

}  // namespace deepinfer
