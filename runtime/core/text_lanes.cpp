#include "runtime/core/text_lanes.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer {

bool text_lanes::submit(std::uint64_t number, std::size_t bytes, std::int64_t now_us) {
  auto& lane = lane_of(bytes);
  if (lane.waiting.size() >= rules_.most_waiting) return false;
  lane.waiting.push_back({number, bytes, now_us});
  return true;
}

text_lanes::turn text_lanes::next(std::int64_t now_us) {
  turn out;
  for (auto* lane : {&short_, &long_}) {
    auto& waiting = lane->waiting;
    while (!waiting.empty()) {
      const auto it = waiting.front();
      const bool is_late = now_us - it.asked_us >= rules_.patience_us;
      if (!is_late && lane->bytes > 0 && lane->bytes + it.bytes > rules_.most_bytes) break;
      waiting.pop_front();
      (is_late ? out.late : out.begin).push_back(it.number);
      if (is_late) continue;
      lane->bytes += it.bytes;
      reading_.emplace(it.number, it.bytes);
    }
  }
  return out;
}

void text_lanes::end(std::uint64_t number) {
  const auto found = reading_.find(number);
  DI_CHECK(found != reading_.end(), "text {} is not being read", number);
  lane_of(found->second).bytes -= found->second;
  reading_.erase(found);
}

}  // namespace deepinfer
