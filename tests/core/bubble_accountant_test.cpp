#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/core/bubble_accountant.hpp"
#include "tests/core/json_texts.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

struct host_interval {
  idle_cause what = idle_cause::plan;
  std::int64_t begin = 0, end = 0;
  std::int64_t counts_from = 0;  // the part before was noted too late
};
struct span_interval {
  std::int64_t begin = 0, end = 0;
};

phase_times times_of(span_interval forward, span_interval sample, span_interval gated = {}) {
  phase_times times;
  const auto put = [&](step_phase phase, span_interval it) {
    times.begin_ns[static_cast<std::size_t>(phase)] = it.begin;
    times.end_ns[static_cast<std::size_t>(phase)] = it.end;
  };
  put(step_phase::copy_in, {forward.begin - 1, forward.begin});
  put(step_phase::forward, forward);
  put(step_phase::sample, sample);
  put(step_phase::sample_gated, gated);
  put(step_phase::copy_out, {sample.end, sample.end + 5});
  return times;
}

/// Nanosecond by nanosecond, from time 0 to `end`.
bubble_totals tried(const std::vector<host_interval>& host,
                    const std::vector<span_interval>& no_work,
                    const std::vector<span_interval>& busy) {
  bubble_totals out;
  if (busy.empty()) return out;
  auto last = idle_cause::plan;
  for (std::int64_t t = 0; t < busy.back().end; ++t) {
    const host_interval* doing = nullptr;
    for (const auto& it : host)
      if (std::max(it.begin, it.counts_from) <= t && t < it.end &&
          (!doing || it.begin >= doing->begin))
        doing = &it;
    if (doing) last = doing->what;
    if (t < busy.front().begin) continue;
    const auto is_in = [t](const span_interval& it) { return it.begin <= t && t < it.end; };
    const bool is_busy = std::any_of(busy.begin(), busy.end(), is_in);
    const bool is_done = std::any_of(no_work.begin(), no_work.end(), is_in);
    if (doing) ++(is_busy ? out.hidden_host_ns : out.exposed_host_ns);
    if (is_busy)
      ++out.busy_ns;
    else
      ++out.idle_ns[static_cast<std::size_t>(!doing && is_done ? idle_cause::no_work : last)];
  }
  return out;
}

std::int64_t idle(const bubble_accountant& it, idle_cause cause) {
  return it.totals().idle_ns[static_cast<std::size_t>(cause)];
}

void check_same(const bubble_totals& found, const bubble_totals& expected) {
  CHECK(found.busy_ns == expected.busy_ns);
  CHECK(found.idle_ns == expected.idle_ns);
  CHECK(found.hidden_host_ns == expected.hidden_host_ns);
  CHECK(found.exposed_host_ns == expected.exposed_host_ns);
}

}  // namespace

TEST_CASE("one step at a time: the gap is split over settling, voting and planning") {
  bubble_accountant it;
  it.note_host(idle_cause::plan, 0, 90);
  it.settle(times_of({100, 1000}, {1000, 1100}), 8, 0);
  CHECK(it.totals().span_ns() == 1000);
  CHECK(it.totals().overlap_ratio() == 1.0);  // what was before the span is none of it
  it.note_host_wait();
  it.note_host(idle_cause::settle, 1120, 1150);
  it.note_host(idle_cause::vote, 1150, 1200);
  it.note_host(idle_cause::plan, 1210, 1300);
  it.settle(times_of({1330, 2000}, {2010, 2100}), 8, 2);
  it.note_host_wait();
  // [1100, 1120): after planning; [1200, 1210): after the vote; [1300, 1330): after planning.
  CHECK(it.totals().busy_ns == 1000 + 770);
  CHECK(idle(it, idle_cause::settle) == 30);
  CHECK(idle(it, idle_cause::vote) == 60);
  CHECK(idle(it, idle_cause::plan) == 20 + 90 + 30);
  CHECK(idle(it, idle_cause::transfer) == 0);
  CHECK(idle(it, idle_cause::no_work) == 0);
  CHECK(it.totals().span_ns() == 2100 - 100);
  CHECK(it.totals().exposed_host_ns == 170);
  CHECK(it.totals().hidden_host_ns == 0);
  CHECK(it.totals().overlap_ratio() == 0.0);
  CHECK(it.totals().steps == 2);
  CHECK(it.totals().rows == 16);
  CHECK(it.totals().over_run_rows == 2);
  CHECK(it.totals().host_waits == 2);
}

TEST_CASE("two steps deep: host work under the device's time is hidden and causes nothing") {
  bubble_accountant it;
  it.note_host(idle_cause::plan, 10, 50);
  it.note_host(idle_cause::plan, 110, 150);
  it.settle(times_of({100, 190}, {190, 200}), 4, 0);
  it.note_host(idle_cause::settle, 210, 230);
  it.note_host(idle_cause::plan, 230, 270);
  it.note_host(idle_cause::settle, 295, 320);  // late: [300, 320) is exposed
  it.settle(times_of({200, 290}, {290, 300}), 4, 0);
  CHECK(it.totals().busy_ns == 200);
  CHECK(it.totals().idle_ns_total() == 0);
  CHECK(it.totals().hidden_host_ns == 105);
  CHECK(it.totals().overlap_ratio() == 1.0);
  it.settle(times_of({325, 400}, {400, 410}), 4, 0);
  CHECK(idle(it, idle_cause::settle) == 25);
  CHECK(it.totals().hidden_host_ns == 105);
  CHECK(it.totals().exposed_host_ns == 20);
  CHECK(it.totals().overlap_ratio() == 105.0 / 125.0);
}

TEST_CASE("a gap without a request is no_work, but for what the host does in it") {
  bubble_accountant it;
  it.settle(times_of({100, 190}, {190, 200}), 1, 0);
  it.note_host(idle_cause::settle, 200, 220);
  it.note_no_work(220, 1000);
  it.note_host(idle_cause::vote, 500, 510);
  it.note_host(idle_cause::plan, 1010, 1030);
  it.settle(times_of({1040, 1100}, {1100, 1110}), 1, 0);
  CHECK(idle(it, idle_cause::settle) == 20);
  CHECK(idle(it, idle_cause::no_work) == 280 + 490);
  CHECK(idle(it, idle_cause::vote) == 10 + 10);
  CHECK(idle(it, idle_cause::plan) == 20 + 10);
}

TEST_CASE("the gap before a gated sampling counts, a step that did not run leaves a gap") {
  bubble_accountant it;
  it.note_host(idle_cause::plan, 50, 60);
  it.settle({}, 2, 0);  // failed before its forward, as the first one
  CHECK(it.totals().span_ns() == 0);
  it.settle(times_of({100, 200}, {200, 210}, {250, 260}), 2, 0);
  CHECK(it.totals().busy_ns == 120);
  CHECK(idle(it, idle_cause::plan) == 40);
  it.settle({}, 2, 2);
  CHECK(it.totals().span_ns() == 160);
  CHECK(it.totals().steps == 3);
  CHECK(it.totals().over_run_rows == 2);
  it.settle(times_of({300, 400}, {}), 2, 0);  // nothing to sample
  CHECK(it.totals().busy_ns == 220);
  CHECK(it.totals().span_ns() == 300);
}

TEST_CASE("of activities at one time the one that began last is the cause") {
  bubble_accountant it;
  it.settle(times_of({10, 20}, {}), 1, 0);
  it.note_host(idle_cause::transfer, 20, 100);
  it.note_host(idle_cause::plan, 30, 40);
  it.note_host(idle_cause::settle, 50, 60);
  it.note_host(idle_cause::vote, 50, 55);  // noted later
  it.note_host(idle_cause::plan, 90, 70);  // not an interval
  it.settle(times_of({110, 120}, {}), 1, 0);
  CHECK(idle(it, idle_cause::plan) == 10);
  CHECK(idle(it, idle_cause::vote) == 5);
  CHECK(idle(it, idle_cause::settle) == 5);
  CHECK(idle(it, idle_cause::transfer) == 70);
  CHECK(it.totals().exposed_host_ns == 80);
}

TEST_CASE("busy and idle by cause are those of every nanosecond, and add up to the span") {
  draws random(31);
  for (int n = 0; n < 3000; ++n) {
    bubble_accountant it;
    std::vector<host_interval> host;
    std::vector<span_interval> no_work, busy;
    std::int64_t now = 1 + static_cast<std::int64_t>(random.below(20));
    const auto some = [&](std::uint64_t limit) {
      return static_cast<std::int64_t>(random.below(limit));
    };
    for (auto steps = random.below(8); steps > 0; --steps) {
      const auto before = busy.empty() ? 0 : busy.back().end;
      const span_interval forward{now, now + 1 + some(10)};
      const span_interval sample =
        random.chance(80) ? span_interval{forward.end + some(2), forward.end + 2 + some(4)}
                          : span_interval{};
      const auto end = std::max(forward.end, sample.end);
      const span_interval gated =
        random.chance(20) ? span_interval{end + some(5), end + 5 + some(4)} : span_interval{};
      // Whatever may lie in the gap before this step or under the step itself.
      for (auto more = random.below(5); more > 0; --more) {
        const auto what = static_cast<idle_cause>(random.below(4));
        const auto begin = std::max<std::int64_t>(before - 5, 0) + some(25);
        host.push_back({what, begin, begin + some(12), before});
        it.note_host(what, begin, host.back().end);
      }
      if (random.chance(40)) {
        const auto begin = before + some(10);
        no_work.push_back({begin, begin + some(20)});
        it.note_no_work(begin, no_work.back().end);
      }
      busy.push_back({forward.begin, end});
      if (gated.end > 0) busy.push_back(gated);
      it.settle(times_of(forward, sample, gated), 3, 1);
      now = busy.back().end + (random.chance(30) ? 0 : some(30));
    }
    const auto expected = tried(host, no_work, busy);
    const auto& found = it.totals();
    if (busy.empty()) {
      CHECK(found.span_ns() == 0);
      continue;
    }
    CHECK(found.span_ns() == busy.back().end - busy.front().begin);
    check_same(found, expected);
  }
}

TEST_CASE("an engine that notes without end keeps a bounded number, and the span still adds up") {
  bubble_accountant it;
  it.settle(times_of({10, 20}, {}), 1, 0);
  const auto limit = static_cast<std::int64_t>(bubble_accountant::interval_limit);
  it.note_no_work(20, 100000);
  for (std::int64_t n = 0; n < limit + 7; ++n)
    it.note_host(idle_cause::vote, 20 + 10 * n, 25 + 10 * n);
  it.settle(times_of({100000, 100010}, {}), 1, 0);
  CHECK(idle(it, idle_cause::vote) == 5 * limit);
  CHECK(idle(it, idle_cause::no_work) == 100000 - 20 - 5 * limit);
  CHECK(it.totals().span_ns() == 100000);
}
