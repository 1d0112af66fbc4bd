/// When long texts are read that nobody generates from (/tokenize and its like): beside each other
/// while they are short, the longest one after the other, since reading may take a hundred times a
/// text's bytes. What waits is bounded, in number and in time. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace deepinfer {

struct text_lane_rules {
  std::size_t most_bytes = 4u << 20;      ///< read at a time; one with more is alone in its lane
  std::size_t most_waiting = 32;          ///< in each lane
  std::int64_t patience_us = 10'000'000;  ///< who asked has given up by then
};

class text_lanes {
public:
  explicit text_lanes(const text_lane_rules& rules = {}) : rules_(rules) {}

  /// False: too many wait already, and it does not.
  bool submit(std::uint64_t number, std::size_t bytes, std::int64_t now_us);

  struct turn {
    std::vector<std::uint64_t> begin;  ///< in the order in which they came
    std::vector<std::uint64_t> late;   ///< have waited too long, and are not read
  };
  /// What may begin now; each must `end`.
  turn next(std::int64_t now_us);
  void end(std::uint64_t number);

private:
  struct waiting_text {
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    std::int64_t asked_us = 0;
  };
  struct one_lane {
    std::size_t bytes = 0;  ///< being read
    std::deque<waiting_text> waiting;
  };
  one_lane& lane_of(std::size_t bytes) { return bytes > rules_.most_bytes ? long_ : short_; }

  text_lane_rules rules_;
  one_lane short_, long_;
  std::map<std::uint64_t, std::size_t> reading_;  ///< their bytes
};

}  // namespace deepinfer
