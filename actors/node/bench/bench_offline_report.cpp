// Phases and draft passes as JSON and as text.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_drafts.hpp"

namespace deepinfer {
namespace {

double share_of(double part, double whole) {
  return whole > 0 ? part / whole : 0.0;
}

/// What both kinds of phase say: of a step or pass each, except for `span` and the shares.
struct work_figures {
  work_figures(std::int64_t runs, double span_seconds, double median, const counted_work& work,
               const machine_rates& rates)
    : steps(std::max<std::int64_t>(1, runs)),
      span(span_seconds),
      cost{work.total.bytes / steps, work.total.flops / steps, work.total.int8_ops / steps},
      bound(rates.bound(cost)),
      share(share_of(bound.seconds, median)),
      in_ops(share_of(1e-9 * static_cast<double>(work.op_ns), span)),
      in_kernels(share_of(1e-9 * static_cast<double>(work.busy_ns), span * rates.threads)),
      is_counted(work.op_ns > 0) {}

  std::int64_t steps;
  double span;  ///< seconds of all
  work_cost cost;
  work_bound bound;
  double share, in_ops, in_kernels;
  bool is_counted;
};

work_figures figures_of(const offline_phase& phase, const machine_rates& rates) {
  const auto& steps = phase.steps;
  return {steps.steps, steps.span_seconds, steps.seconds.median(), phase.work, rates};
}

work_figures figures_of(const draft_phase& phase, const machine_rates& rates) {
  const auto& seconds = phase.seconds;
  return {static_cast<std::int64_t>(seconds.count()), seconds.sum(), seconds.median(), phase.work,
          rates};
}

double tokens_per_row(const offline_phase& phase) {
  return phase.steps.rows > 0
           ? static_cast<double>(phase.steps.tokens) / static_cast<double>(phase.steps.rows)
           : 0.0;
}

json::array table_of(const std::vector<work_meter::entry>& entries, const work_figures& it) {
  json::array out;
  for (const auto& entry : entries) {
    const auto seconds = 1e-9 * static_cast<double>(entry.ns);
    out.push_back(
      json::object{{"name", entry.name},
                   {"calls", static_cast<double>(entry.calls) / static_cast<double>(it.steps)},
                   {"seconds", seconds / static_cast<double>(it.steps)},
                   {"share", share_of(seconds, it.span)},
                   {"bytes", entry.cost.bytes / it.steps},
                   {"flops", entry.cost.flops / it.steps},
                   {"int8_ops", entry.cost.int8_ops / it.steps}});
  }
  return out;
}

std::string table_text(const char* title, std::vector<work_meter::entry> entries,
                       const work_figures& it) {
  constexpr std::size_t most = 16;
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.ns > b.ns; });
  auto out = fmt::format("  {:<20}{:>9}{:>11}{:>8}{:>10}{:>10}\n", title, "calls", "ms", "share",
                         "MB", "Mop");
  for (std::size_t i = 0; i < std::min(most, entries.size()); ++i) {
    const auto& entry = entries[i];
    const auto steps = static_cast<double>(it.steps);
    const auto seconds = 1e-9 * static_cast<double>(entry.ns);
    out += fmt::format("  {:<20}{:>9.1f}{:>11.3f}{:>7.1f}%{:>10.2f}{:>10.1f}\n", entry.name,
                       static_cast<double>(entry.calls) / steps, 1e3 * seconds / steps,
                       100 * share_of(seconds, it.span),
                       1e-6 * static_cast<double>(entry.cost.bytes) / steps,
                       1e-6 * static_cast<double>(entry.cost.flops + entry.cost.int8_ops) / steps);
  }
  return out;
}

void add_work(const work_figures& it, json::object& out) {
  const auto counted = [&it](json::value value) {
    return it.is_counted ? std::move(value) : json::value(nullptr);
  };
  out["bytes"] = counted(it.cost.bytes);
  out["flops"] = counted(it.cost.flops);
  out["int8_ops"] = counted(it.cost.int8_ops);
  out["bound_seconds"] = counted(it.bound.seconds);
  out["bound_by"] = counted(it.bound.by);
  out["share"] = counted(it.share);
  out["share_in_ops"] = counted(it.in_ops);
  out["share_in_kernels"] = counted(it.in_kernels);
}

std::string times_text(const sample_list& seconds) {
  return fmt::format("{:.3f} ms +-{:.3f} ({:.3f}..{:.3f})", 1e3 * seconds.median(),
                     1e3 * seconds.mad(), 1e3 * seconds.min(), 1e3 * seconds.max());
}

/// `what` is "step" or "pass".
std::string work_text(const work_figures& it, const char* what, std::int32_t threads) {
  if (!it.is_counted) return "  work            not counted apart from other steps\n";
  return fmt::format(
    "  work            {:.1f} MB, {:.1f} Mflop, {:.1f} M int8 ops\n"
    "  limit           {:.3f} ms by {}: the {} runs at {:.1f} % of the bound\n"
    "  inside ops      {:.1f} % of a {}'s time: between begin and end of ops, compute stream\n"
    "  inside kernels  {:.1f} % of {} thread{} x a {}'s time: kernel threads at work\n",
    1e-6 * static_cast<double>(it.cost.bytes), 1e-6 * static_cast<double>(it.cost.flops),
    1e-6 * static_cast<double>(it.cost.int8_ops), 1e3 * it.bound.seconds, it.bound.by, what,
    100 * it.share, 100 * it.in_ops, what, 100 * it.in_kernels, threads, threads == 1 ? "" : "s",
    what);
}

}  // namespace

json::object phase_object(const offline_phase& phase, const machine_rates& rates) {
  const auto it = figures_of(phase, rates);
  json::object out;
  out["batch"] = phase.batch;
  out["steps"] = phase.steps.steps;
  out["tokens_per_second"] = summary_of(phase.steps.rows_per_second, tokens_per_row(phase));
  out["seconds"] = summary_of(phase.steps.seconds);
  add_work(it, out);
  out["host_seconds"] = phase.steps.host_seconds / static_cast<double>(it.steps);
  out["host_share"] = share_of(phase.steps.host_seconds, it.span);
  out["request_seconds"] = summary_of(phase.request_seconds);
  out["parts"] = table_of(phase.work.parts, it);
  out["ops"] = table_of(phase.work.ops, it);
  return out;
}

std::string phase_text(const offline_phase& phase, std::string_view name,
                       const machine_rates& rates) {
  const auto it = figures_of(phase, rates);
  const auto per_row = tokens_per_row(phase);
  const auto& rate = phase.steps.rows_per_second;
  auto out =
    fmt::format("{}: {:.1f} tok/s ({:.1f}..{:.1f} over {} repeats)\n", name,
                rate.median() * per_row, rate.min() * per_row, rate.max() * per_row, rate.count());
  out += fmt::format("  step            {}, {} steps\n", times_text(phase.steps.seconds),
                     phase.steps.steps);
  out += work_text(it, "step", rates.threads);
  out += fmt::format("  host work       {:.1f} us a step to plan and settle, {:.2f} % of it\n",
                     1e6 * phase.steps.host_seconds / static_cast<double>(it.steps),
                     100 * share_of(phase.steps.host_seconds, it.span));
  if (!it.is_counted) return out;
  return out + table_text("part", phase.work.parts, it) + table_text("op", phase.work.ops, it);
}

json::object draft_object(const draft_phase& phase, double step_seconds,
                          const machine_rates& rates) {
  const auto it = figures_of(phase, rates);
  const auto median = phase.seconds.median();
  json::object out;
  out["batch"] = phase.batch;
  out["drafts"] = phase.drafts;
  out["passes"] = it.steps;
  out["seconds"] = summary_of(phase.seconds);
  out["seconds_per_draft"] = median / phase.batch / phase.drafts;
  out["steps_per_pass"] =
    step_seconds > 0 ? json::value(median / step_seconds) : json::value(nullptr);
  out["context_seconds"] = phase.context_seconds;
  add_work(it, out);
  out["parts"] = table_of(phase.work.parts, it);
  out["ops"] = table_of(phase.work.ops, it);
  return out;
}

std::string draft_text(const draft_phase& phase, double step_seconds, const machine_rates& rates) {
  const auto it = figures_of(phase, rates);
  const auto median = phase.seconds.median();
  const auto drafts = std::int64_t{phase.batch} * phase.drafts;
  auto out = fmt::format("draft pass, batch {}: {} drafts for each sequence, {:.1f} us a draft\n",
                         phase.batch, phase.drafts, 1e6 * median / static_cast<double>(drafts));
  out += fmt::format("  pass            {}, {} passes\n", times_text(phase.seconds), it.steps);
  if (step_seconds > 0)
    out +=
      fmt::format("  costs           {:.2f} decode steps of this batch\n", median / step_seconds);
  out += fmt::format("  and beside it   {:.3f} ms in every step, for the drafter's context\n",
                     1e3 * phase.context_seconds);
  out += work_text(it, "pass", rates.threads);
  return out + table_text("part", phase.work.parts, it) + table_text("op", phase.work.ops, it);
}

}  // namespace deepinfer
