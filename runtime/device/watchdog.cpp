#include "runtime/device/watchdog.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

watchdog::watchdog(std::int64_t timeout_ns, std::size_t limit)
  : timeout_ns_(timeout_ns),
    limit_(limit) {
  DI_CHECK(timeout_ns > 0, "a watchdog of {} ns", timeout_ns);
}

void watchdog::open(ticket id, std::int64_t now_ns) {
  DI_CHECK(tickets_.empty() || tickets_.back().id < id, "ticket {} after ticket {}", id.value,
           tickets_.back().id.value);
  DI_CHECK(tickets_.size() < limit_, "{} tickets are open or in quarantine", tickets_.size());
  tickets_.push_back({id, now_ns + timeout_ns_, false});
}

watchdog::settlement watchdog::settle(ticket id, device_status status) {
  answer_.clear();
  const auto found = std::find_if(tickets_.begin(), tickets_.end(),
                                  [&](const watched& one) { return one.id == id; });
  if (found == tickets_.end()) return {};
  const auto verdict = found->is_quarantined ? ticket_verdict::late : ticket_verdict::on_time;
  if (status.is_sticky) {
    // The device's word counts for nothing any more: what is in quarantine stays there.
    if (verdict == ticket_verdict::on_time) tickets_.erase(found);
    return {verdict, {}};
  }
  const auto ended = [&](const watched& one) {
    return one.id == id || (one.is_quarantined && one.id < id);
  };
  for (const auto& one : tickets_)
    if (one.is_quarantined && ended(one)) answer_.push_back(one.id);
  std::erase_if(tickets_, ended);
  return {verdict, answer_};
}

std::span<const ticket> watchdog::expire(std::int64_t now_ns) {
  answer_.clear();
  for (auto& one : tickets_) {
    if (one.is_quarantined || one.deadline_ns > now_ns) continue;
    one.is_quarantined = true;
    answer_.push_back(one.id);
  }
  return answer_;
}

std::optional<std::int64_t> watchdog::next_deadline_ns() const {
  for (const auto& one : tickets_)
    if (!one.is_quarantined) return one.deadline_ns;  // launch order is deadline order
  return std::nullopt;
}

std::size_t watchdog::quarantined_count() const {
  return static_cast<std::size_t>(std::count_if(
    tickets_.begin(), tickets_.end(), [](const auto& one) { return one.is_quarantined; }));
}

std::size_t watchdog::open_count() const {
  return tickets_.size() - quarantined_count();
}

}  // namespace deepinfer
