#include "runtime/core/bubble_accountant.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace deepinfer {

std::int64_t bubble_totals::idle_ns_total() const {
  return std::accumulate(idle_ns.begin(), idle_ns.end(), std::int64_t{0});
}

double bubble_totals::overlap_ratio() const {
  const auto host_ns = hidden_host_ns + exposed_host_ns;
  return host_ns == 0 ? 1.0 : static_cast<double>(hidden_host_ns) / static_cast<double>(host_ns);
}

bubble_accountant::bubble_accountant() {
  host_.reserve(interval_limit);
  no_work_.reserve(interval_limit);
}

void bubble_accountant::note(std::vector<interval>& list, interval added) {
  if (added.end_ns <= added.begin_ns) return;
  if (list.size() == interval_limit) list.erase(list.begin());
  list.push_back(added);
}

void bubble_accountant::note_host(idle_cause what, std::int64_t begin_ns, std::int64_t end_ns) {
  note(host_, {begin_ns, end_ns, what});
}

void bubble_accountant::note_no_work(std::int64_t begin_ns, std::int64_t end_ns) {
  note(no_work_, {begin_ns, end_ns, idle_cause::no_work});
}

/// Accounts for [passed_ns_, until_ns), from one beginning or end of an interval to the next.
void bubble_accountant::pass(std::int64_t until_ns, bool is_busy) {
  while (passed_ns_ < until_ns) {
    auto next_ns = until_ns;
    const interval* doing = nullptr;
    bool has_work = true;
    const auto cut = [&](const interval& it) {
      for (const auto edge : {it.begin_ns, it.end_ns})
        if (edge > passed_ns_) next_ns = std::min(next_ns, edge);
      return it.begin_ns <= passed_ns_ && passed_ns_ < it.end_ns;
    };
    for (const auto& it : host_)
      if (cut(it) && (!doing || it.begin_ns >= doing->begin_ns)) doing = &it;
    for (const auto& it : no_work_)
      if (cut(it)) has_work = false;
    const auto ns = next_ns - passed_ns_;
    if (doing) last_ = doing->what;
    if (doing) (is_busy ? totals_.hidden_host_ns : totals_.exposed_host_ns) += ns;
    const auto cause = doing || has_work ? last_ : idle_cause::no_work;
    (is_busy ? totals_.busy_ns : totals_.idle_ns[static_cast<std::size_t>(cause)]) += ns;
    passed_ns_ = next_ns;
  }
}

void bubble_accountant::pass_busy(std::int64_t begin_ns, std::int64_t end_ns) {
  if (!has_begun_) {
    // What the host did last before the span is what its first gap may go to.
    std::pair latest{std::numeric_limits<std::int64_t>::min(), std::int64_t{0}};
    for (const auto& it : host_) {
      const std::pair order{std::min(it.end_ns, begin_ns), it.begin_ns};
      if (it.begin_ns >= begin_ns || order < latest) continue;
      latest = order;
      last_ = it.what;
    }
    has_begun_ = true;
    passed_ns_ = begin_ns;
  }
  pass(begin_ns, false);
  pass(end_ns, true);
}

void bubble_accountant::forget_passed() {
  for (auto* list : {&host_, &no_work_})
    std::erase_if(*list, [this](const interval& it) { return it.end_ns <= passed_ns_; });
}

void bubble_accountant::settle(const phase_times& times, std::int32_t rows,
                               std::int32_t over_run_rows) {
  ++totals_.steps;
  totals_.rows += rows;
  totals_.over_run_rows += over_run_rows;
  const auto begin_of = [&](step_phase phase) {
    return times.begin_ns[static_cast<std::size_t>(phase)];
  };
  const auto end_of = [&](step_phase phase) {
    return times.end_ns[static_cast<std::size_t>(phase)];
  };
  if (end_of(step_phase::forward) == 0) return;
  pass_busy(begin_of(step_phase::forward),
            std::max(end_of(step_phase::forward), end_of(step_phase::sample)));
  if (end_of(step_phase::sample_gated) != 0)
    pass_busy(begin_of(step_phase::sample_gated), end_of(step_phase::sample_gated));
  forget_passed();
}

}  // namespace deepinfer
