#include "runtime/base/trace_ring.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr std::size_t forward = static_cast<std::size_t>(step_phase::forward);

/// Rows of the picture, in order; the device rows follow the phases.
enum class track : int { plan = 1, settle = 2, device = 3 };
constexpr const char* phase_names[step_phases] = {"copy_in", "forward", "sample", "sample_gated",
                                                  "copy_out"};
/// Both samplings share a row.
constexpr int phase_tracks[step_phases] = {0, 1, 2, 2, 3};
constexpr const char* track_names[] = {"scheduler: plan", "scheduler: settle", "device: copy in",
                                       "device: forward", "device: sample",    "device: copy out"};

std::int64_t first_time(std::span<const step_trace> steps) {
  auto first = std::numeric_limits<std::int64_t>::max();
  for (const auto& it : steps) {
    if (it.plan_begin_ns > 0) first = std::min(first, it.plan_begin_ns);
    for (const auto begin : it.device.begin_ns)
      if (begin > 0) first = std::min(first, begin);
  }
  return first == std::numeric_limits<std::int64_t>::max() ? 0 : first;
}

class chrome_writer {
public:
  explicit chrome_writer(std::int64_t zero_ns) : zero_ns_(zero_ns) {}

  void name_tracks(std::int32_t rank) {
    event(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {}"}}}})", rank, rank);
    for (int i = 0; i < 6; ++i) {
      event(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank,
            i + 1, track_names[i]);
      event(
        R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
        rank, i + 1, i + 1);
    }
  }

  void slice(const step_trace& it, int tid, const char* what, std::int64_t begin,
             std::int64_t end) {
    if (begin <= 0 || end < begin) return;
    event(
      R"({{"ph":"X","name":"{} {}","cat":"step","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
      R"("args":{{"step":{},"kind":"{}","rows":{},"tokens":{},"emitted":{},"inflight_steps":{},)"
      R"("carried_rows":{},"parked_blocks":{},"overrun_rows":{},"idle_us":{{"plan":{:.3f},)"
      R"("settle":{:.3f},"vote":{:.3f},"transfer":{:.3f}}},"exposed_host_us":{:.3f}}}}})",
      what, it.step.value, it.rank.value, tid, micros(begin), us(end - begin), it.step.value,
      it.kind, it.rows, it.tokens, it.emitted, it.inflight_steps, it.carried_rows, it.parked_blocks,
      it.overrun_rows, us(it.idle_plan_ns), us(it.idle_settle_ns), us(it.idle_vote_ns),
      us(it.idle_transfer_ns), us(it.exposed_host_ns));
  }

  /// An arrow from the end of the plan to the start of the forward.
  void flow(const step_trace& it) {
    const auto begin = it.device.begin_ns[forward];
    if (it.plan_begin_ns <= 0 || begin <= 0) return;
    event(
      R"({{"ph":"s","name":"launch","cat":"launch","id":"{}.{}","pid":{},"tid":{},"ts":{:.3f}}})",
      it.rank.value, it.step.value, it.rank.value, static_cast<int>(track::plan),
      micros(it.plan_begin_ns));
    event(R"({{"ph":"f","bp":"e","name":"launch","cat":"launch","id":"{}.{}","pid":{},"tid":{},)"
          R"("ts":{:.3f}}})",
          it.rank.value, it.step.value, it.rank.value,
          static_cast<int>(track::device) + static_cast<int>(forward), micros(begin));
  }

  std::string take() && {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + out_ + "\n]}\n";
  }

private:
  static double us(std::int64_t ns) { return static_cast<double>(ns) / 1000.0; }
  double micros(std::int64_t ns) const { return us(ns - zero_ns_); }

  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (!out_.empty()) out_ += ",\n";
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  std::int64_t zero_ns_;
  std::string out_;
};

}  // namespace

void trace_ring::add(const step_trace& entry) {
  entries_[next_] = entry;
  next_ = (next_ + 1) % entries_.size();
  used_ = std::min(used_ + 1, entries_.size());
}

std::vector<step_trace> trace_ring::newest(std::size_t steps) const {
  const auto count = std::min(steps, used_);
  std::vector<step_trace> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(entries_[(next_ + entries_.size() - count + i) % entries_.size()]);
  return out;
}

std::string chrome_trace(std::span<const step_trace> steps) {
  chrome_writer writer(first_time(steps));
  std::vector<std::int32_t> ranks;
  for (const auto& it : steps)
    if (std::find(ranks.begin(), ranks.end(), it.rank.value) == ranks.end())
      ranks.push_back(it.rank.value);
  for (const auto rank : ranks) writer.name_tracks(rank);
  for (const auto& it : steps) {
    writer.slice(it, static_cast<int>(track::plan), "plan", it.plan_begin_ns, it.plan_end_ns);
    writer.slice(it, static_cast<int>(track::settle), "settle", it.settle_begin_ns,
                 it.settle_end_ns);
    for (std::size_t phase = 0; phase < step_phases; ++phase)
      writer.slice(it, static_cast<int>(track::device) + phase_tracks[phase], phase_names[phase],
                   it.device.begin_ns[phase], it.device.end_ns[phase]);
    writer.flow(it);
  }
  return std::move(writer).take();
}

}  // namespace deepinfer
