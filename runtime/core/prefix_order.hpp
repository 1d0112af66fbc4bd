/// Numbers 0..limit-1 in the order in which they came; any of them may leave. Order of eviction.
///
/// A doubly linked list in two arrays: every operation takes the same time and allocates nothing.
/// Errors: DI_CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/check.hpp"

namespace deepinfer {

class prefix_order {
public:
  explicit prefix_order(std::int32_t limit)
    : next_(static_cast<std::size_t>(limit) + 1, absent),
      prev_(next_) {
    clear();
  }

  void clear() {
    next_.assign(next_.size(), absent);
    prev_.assign(prev_.size(), absent);
    next_.back() = prev_.back() = end();
    count_ = 0;
  }

  std::int32_t size() const { return count_; }
  bool contains(std::int32_t number) const { return next_[at(number)] != absent; }

  void push_back(std::int32_t number) {
    DI_CHECK(!contains(number), "{} is in the order already", number);
    const auto last = prev_.back();
    next_[at(last)] = number;
    prev_[at(number)] = last;
    next_[at(number)] = end();
    prev_.back() = number;
    ++count_;
  }

  void remove(std::int32_t number) {
    DI_CHECK(contains(number), "{} is not in the order", number);
    next_[at(prev_[at(number)])] = next_[at(number)];
    prev_[at(next_[at(number)])] = prev_[at(number)];
    next_[at(number)] = prev_[at(number)] = absent;
    --count_;
  }

  /// Who came first. Not of an empty order.
  std::int32_t front() const {
    DI_CHECK(count_ > 0, "front of an empty order of {}", end());
    return next_.back();
  }

  /// Who came first but for `other`; nobody where that is all.
  std::optional<std::int32_t> front_but(std::optional<std::int32_t> other) const {
    auto first = next_.back();
    if (other && first == *other) first = next_[at(first)];
    return first == end() ? std::nullopt : std::optional(first);
  }

  /// In their order.
  std::vector<std::int32_t> all() const {
    std::vector<std::int32_t> out;
    for (auto it = next_.back(); it != end(); it = next_[at(it)]) out.push_back(it);
    return out;
  }

private:
  static constexpr std::int32_t absent = -1;

  std::int32_t end() const { return static_cast<std::int32_t>(next_.size()) - 1; }
  static std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }

  std::vector<std::int32_t> next_;  ///< [limit + 1]; the last one is both ends
  std::vector<std::int32_t> prev_;
  std::int32_t count_ = 0;
};

}  // namespace deepinfer
