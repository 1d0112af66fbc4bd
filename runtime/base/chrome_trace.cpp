// Chrome's trace event format: declared by trace_ring.hpp and span_ring.hpp.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/json.hpp"
#include "runtime/base/span_ring.hpp"
#include "runtime/base/trace_ring.hpp"

namespace deepinfer {
namespace {

constexpr auto forward = static_cast<std::size_t>(step_phase::forward);
constexpr auto sample = static_cast<std::size_t>(step_phase::sample);
constexpr auto sample_gated = static_cast<std::size_t>(step_phase::sample_gated);

/// Rows of the picture, in order; the device rows follow the phases.
enum class track : int { plan = 1, settle = 2, device = 3 };
constexpr const char* phase_names[step_phases] = {"copy_in", "forward", "sample", "sample_gated",
                                                  "copy_out"};
/// Both samplings share a row.
constexpr int phase_tracks[step_phases] = {0, 1, 2, 2, 3};
constexpr const char* track_names[] = {"scheduler: plan", "scheduler: settle", "device: copy in",
                                       "device: forward", "device: sample",    "device: copy out"};

int track_of(std::size_t phase) {
  return static_cast<int>(track::device) + phase_tracks[phase];
}

std::int64_t first_time(std::span<const step_trace> steps, std::span<const request_span> requests,
                        std::span<const preemption_mark> preempted) {
  constexpr auto never = std::numeric_limits<std::int64_t>::max();
  auto first = never;
  const auto note = [&first](std::int64_t time) {
    if (time > 0) first = std::min(first, time);
  };
  for (const auto& it : steps) {
    note(it.plan_begin_ns);
    for (const auto begin : it.device.begin_ns) note(begin);
  }
  for (const auto& it : requests) note(it.queued_ns);
  for (const auto& it : preempted) note(it.at_ns);
  return first == never ? 0 : first;
}

class chrome_writer {
public:
  explicit chrome_writer(std::int64_t zero_ns) : zero_ns_(zero_ns) {}

  void name_tracks(std::int32_t rank) {
    event(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {}"}}}})", rank, rank);
    event(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", rank,
          rank);
    for (int i = 0; i < 6; ++i) {
      event(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank,
            i + 1, track_names[i]);
      event(
        R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
        rank, i + 1, i + 1);
    }
  }

  void step(const step_trace& it) {
    slice(it, static_cast<int>(track::plan), "plan", it.plan_begin_ns, it.plan_end_ns);
    slice(it, static_cast<int>(track::settle), "settle", it.settle_begin_ns, it.settle_end_ns);
    for (std::size_t phase = 0; phase < step_phases; ++phase)
      slice(it, track_of(phase), phase_names[phase], it.device.begin_ns[phase],
            it.device.end_ns[phase]);
    const auto sampling = it.device.begin_ns[sample_gated] > 0 ? sample_gated : sample;
    flow(it, "launch", static_cast<int>(track::plan), it.plan_begin_ns, track_of(forward),
         it.device.begin_ns[forward]);
    flow(it, "result", track_of(sampling), it.device.begin_ns[sampling],
         static_cast<int>(track::settle), it.settle_begin_ns);
    counter(it, "steps in flight", it.plan_end_ns, it.inflight_steps);
    counter(it, "rows", it.device.begin_ns[forward], it.rows);
    counter(it, "tokens emitted", it.settle_end_ns, it.emitted);
    counter(it, "blocks parked", it.settle_end_ns, it.parked_blocks);
    remap(it);
  }

  void request(const request_span& it) {
    if (it.queued_ns <= 0 || it.end_ns < it.queued_ns) return;
    const auto name = to_text(json::string(it.id));
    const auto part = [&](const char* what, std::int64_t begin, std::int64_t end) {
      if (begin <= 0) return;
      async('b', it, name, fmt::format("\"{}\"", what), begin, "{}");
      async('e', it, name, fmt::format("\"{}\"", what), end > 0 ? end : it.end_ns, "{}");
    };
    async('b', it, name, name, it.queued_ns,
          fmt::format(R"({{"prompt_tokens":{},"cached_tokens":{},"output_tokens":{},)"
                      R"("preemptions":{},"finish":{}}})",
                      it.prompt_tokens, it.cached_tokens, it.output_tokens, it.preemptions,
                      to_text(json::string(it.finish))));
    part("queued", it.queued_ns, it.prefill_ns);
    part("prefill", it.prefill_ns, it.decode_ns);
    part("decode", it.decode_ns, it.end_ns);
    async('e', it, name, name, it.end_ns, "{}");
  }

  /// On the row of plans, which are what takes sequences their blocks.
  void preemption(const preemption_mark& it) {
    if (it.at_ns <= 0) return;
    event(R"({{"ph":"i","s":"t","name":"preempt","cat":"request","pid":{},"tid":{},"ts":{:.3f},)"
          R"("args":{{"request":{},"answer":{},"why":{}}}}})",
          it.rank.value, static_cast<int>(track::plan), micros(it.at_ns),
          to_text(json::string(it.id)), it.answer, to_text(json::string(it.why)));
  }

  std::string take() && {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + out_ + "\n]}\n";
  }

private:
  static double us(std::int64_t ns) { return static_cast<double>(ns) / 1000.0; }
  double micros(std::int64_t ns) const { return us(ns - zero_ns_); }

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

  /// An arrow from one slice to another, where both are there.
  void flow(const step_trace& it, const char* what, int from, std::int64_t from_ns, int to,
            std::int64_t to_ns) {
    if (from_ns <= 0 || to_ns <= 0) return;
    event(R"({{"ph":"s","name":"{0}","cat":"{0}","id":"{0}.{1}.{2}","pid":{1},"tid":{3},)"
          R"("ts":{4:.3f}}})",
          what, it.rank.value, it.step.value, from, micros(from_ns));
    event(R"({{"ph":"f","bp":"e","name":"{0}","cat":"{0}","id":"{0}.{1}.{2}","pid":{1},)"
          R"("tid":{3},"ts":{4:.3f}}})",
          what, it.rank.value, it.step.value, to, micros(to_ns));
  }

  void counter(const step_trace& it, const char* what, std::int64_t at_ns, std::int64_t value) {
    if (at_ns <= 0) return;
    event(R"({{"ph":"C","name":"{}","pid":{},"ts":{:.3f},"args":{{"value":{}}}}})", what,
          it.rank.value, micros(at_ns), value);
  }

  void remap(const step_trace& it) {
    if (it.carried_rows == 0 || it.device.begin_ns[forward] <= 0) return;
    event(R"({{"ph":"i","s":"t","name":"remap","cat":"step","pid":{},"tid":{},"ts":{:.3f},)"
          R"("args":{{"step":{},"carried_rows":{},"fresh_rows":{}}}}})",
          it.rank.value, track_of(forward), micros(it.device.begin_ns[forward]), it.step.value,
          it.carried_rows, it.rows - it.carried_rows);
  }

  /// `id` and `name` are JSON strings, `args` an object.
  void async(char what, const request_span& it, const std::string& id, const std::string& name,
             std::int64_t at_ns, const std::string& args) {
    event(R"({{"ph":"{}","cat":"request","id":{},"name":{},"pid":{},"tid":0,"ts":{:.3f},)"
          R"("args":{}}})",
          what, id, name, it.rank.value, micros(at_ns), args);
  }

  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    if (!out_.empty()) out_ += ",\n";
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  std::int64_t zero_ns_;
  std::string out_;
};

}  // namespace

std::string chrome_trace(std::span<const step_trace> steps) {
  return chrome_trace(steps, std::span<const request_span>());
}

std::string chrome_trace(std::span<const step_trace> steps, const span_ring& ring) {
  const auto begin_ns = begin_of(steps);
  return chrome_trace(steps, ring.since(begin_ns), ring.preempted_since(begin_ns));
}

std::string chrome_trace(std::span<const step_trace> steps, std::span<const request_span> requests,
                         std::span<const preemption_mark> preempted) {
  chrome_writer writer(first_time(steps, requests, preempted));
  std::vector<std::int32_t> ranks;
  const auto note_rank = [&](rank_id rank) {
    if (std::find(ranks.begin(), ranks.end(), rank.value) != ranks.end()) return;
    ranks.push_back(rank.value);
    writer.name_tracks(rank.value);
  };
  for (const auto& it : steps) note_rank(it.rank);
  for (const auto& it : requests) note_rank(it.rank);
  for (const auto& it : preempted) note_rank(it.rank);
  for (const auto& it : steps) writer.step(it);
  for (const auto& it : requests) writer.request(it);
  for (const auto& it : preempted) writer.preemption(it);
  return std::move(writer).take();
}

}  // namespace deepinfer
