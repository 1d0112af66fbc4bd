/// What the future of the cores depends on, as one number: for checkers that walk every state of a
/// small world and have to know whether one is new.
///
/// Names do not count: blocks and slots are numbered in the order in which they come up, steps by
/// their distance to the newest settled one. So two states that differ only in which block, slot or
/// step number somebody was given are one. Counters that decide nothing are left out.
/// Each core adds its own state by `describe`; one digest may take several, always in one order.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/ids.hpp"

namespace deepinfer {

class state_digest {
public:
  /// 128 bits: of the states of one walk no two are taken for one.
  using value_type = std::pair<std::uint64_t, std::uint64_t>;

  state_digest(std::int64_t blocks, std::int64_t slots, step_id settled)
    : blocks_(static_cast<std::size_t>(blocks)),
      slots_(static_cast<std::size_t>(slots)),
      settled_(settled) {}

  void add(std::uint64_t word) {
    low_ = (low_ ^ word) * 0x9E3779B97F4A7C15u;
    low_ ^= low_ >> 29;
    high_ = (high_ + word) * 0xD6E8FEB86659FD93u;
    high_ ^= high_ >> 32;
  }
  void add(std::int64_t number) { add(static_cast<std::uint64_t>(number)); }
  void add(std::int32_t number) { add(static_cast<std::int64_t>(number)); }
  void add(std::uint32_t number) { add(static_cast<std::uint64_t>(number)); }
  void add(bool flag) { add(std::uint64_t{flag}); }
  void add(seq_id id) { add(id.value); }

  /// A step that has settled is as good as any other that has.
  void add(step_id step) { add(step.value == 0 ? -1 : step <= settled_ ? 0 : distance(step)); }
  /// Where the order of settled steps still counts.
  void add_exactly(step_id step) { add(step.value == 0 ? std::int64_t{-1} << 32 : distance(step)); }

  void add(block_id block) { add(number_of(blocks_, block.value)); }
  void add(slot_id slot) { add(number_of(slots_, slot.value)); }
  template <class Item>
  void add(std::span<const Item> items) {
    add(std::uint64_t{items.size()});
    for (const auto& it : items) add(it);
  }
  template <class Item>
  void add(const std::vector<Item>& items) {
    add(std::span<const Item>(items));
  }

  /// All blocks in the order of their numbers; who has not come up yet comes last.
  std::vector<block_id> blocks_in_order() { return in_order<block_id>(blocks_); }
  std::vector<slot_id> slots_in_order() { return in_order<slot_id>(slots_); }

  value_type value() const { return {low_, high_}; }

private:
  struct numbering {
    explicit numbering(std::size_t size) : number(size, -1) {}
    std::vector<std::int32_t> number;  ///< -1: has not come up
    std::vector<std::int32_t> order;
  };

  std::int64_t distance(step_id step) const {
    return static_cast<std::int64_t>(step.value) - static_cast<std::int64_t>(settled_.value);
  }
  static std::int32_t number_of(numbering& names, std::int32_t name) {
    auto& number = names.number.at(static_cast<std::size_t>(name));
    if (number < 0) {
      number = static_cast<std::int32_t>(names.order.size());
      names.order.push_back(name);
    }
    return number;
  }
  template <class Id>
  static std::vector<Id> in_order(numbering& names) {
    std::vector<Id> out;
    for (std::size_t i = 0; i < names.number.size(); ++i)
      number_of(names, static_cast<std::int32_t>(i));
    for (const auto name : names.order) out.push_back(Id{name});
    return out;
  }

  numbering blocks_, slots_;
  step_id settled_;
  std::uint64_t low_ = 1, high_ = 2;
};

}  // namespace deepinfer
