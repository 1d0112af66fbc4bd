// A phase as JSON and as text.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_offline.hpp"

namespace deepinfer {
namespace {

double share_of(double part, double whole) {
  return whole > 0 ? part / whole : 0.0;
}

/// Figures of a phase, per step where nothing else is said.
struct phase_figures {
  explicit phase_figures(const offline_phase& phase, const machine_rates& rates)
    : steps(std::max<std::int64_t>(1, phase.steps.steps)),
      span(phase.steps.span_seconds),
      cost{phase.work.total.bytes / steps, phase.work.total.flops / steps,
           phase.work.total.int8_ops / steps},
      bound(rates.bound(cost)),
      share(share_of(bound.seconds, phase.steps.seconds.median())),
      in_ops(share_of(1e-9 * static_cast<double>(phase.work.op_ns), span)),
      in_kernels(share_of(1e-9 * static_cast<double>(phase.work.busy_ns), span * rates.threads)),
      host(share_of(phase.steps.host_seconds, span)),
      is_counted(phase.work.op_ns > 0) {}

  std::int64_t steps;
  double span;  ///< seconds of all steps
  work_cost cost;
  work_bound bound;
  double share, in_ops, in_kernels, host;
  bool is_counted;
};

double tokens_per_row(const offline_phase& phase) {
  return phase.steps.rows > 0
           ? static_cast<double>(phase.steps.tokens) / static_cast<double>(phase.steps.rows)
           : 0.0;
}

json::array table_of(const std::vector<work_meter::entry>& entries, const phase_figures& it) {
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
                       const phase_figures& it) {
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

}  // namespace

json::object phase_object(const offline_phase& phase, const machine_rates& rates) {
  const phase_figures it(phase, rates);
  const auto counted = [&it](json::value value) {
    return it.is_counted ? std::move(value) : json::value(nullptr);
  };
  json::object out;
  out["batch"] = phase.batch;
  out["steps"] = phase.steps.steps;
  out["tokens_per_second"] = summary_of(phase.steps.rows_per_second, tokens_per_row(phase));
  out["seconds"] = summary_of(phase.steps.seconds);
  out["bytes"] = counted(it.cost.bytes);
  out["flops"] = counted(it.cost.flops);
  out["int8_ops"] = counted(it.cost.int8_ops);
  out["bound_seconds"] = counted(it.bound.seconds);
  out["bound_by"] = counted(it.bound.by);
  out["share"] = counted(it.share);
  out["share_in_ops"] = counted(it.in_ops);
  out["share_in_kernels"] = counted(it.in_kernels);
  out["host_seconds"] = phase.steps.host_seconds / static_cast<double>(it.steps);
  out["host_share"] = it.host;
  out["request_seconds"] = summary_of(phase.request_seconds);
  out["parts"] = table_of(phase.work.parts, it);
  out["ops"] = table_of(phase.work.ops, it);
  return out;
}

std::string phase_text(const offline_phase& phase, std::string_view name,
                       const machine_rates& rates) {
  const phase_figures it(phase, rates);
  const auto& times = phase.steps.seconds;
  const auto per_row = tokens_per_row(phase);
  const auto& rate = phase.steps.rows_per_second;
  auto out = fmt::format(
    "{}: {:.1f} tok/s ({:.1f}..{:.1f}); step {:.3f} ms +-{:.3f} ({:.3f}..{:.3f}), {} steps\n", name,
    rate.median() * per_row, rate.min() * per_row, rate.max() * per_row, 1e3 * times.median(),
    1e3 * times.mad(), 1e3 * times.min(), 1e3 * times.max(), phase.steps.steps);
  out += fmt::format("  host work (plan and settle) {:.1f} us a step, {:.2f} % of it\n",
                     1e6 * phase.steps.host_seconds / static_cast<double>(it.steps), 100 * it.host);
  if (!it.is_counted) return out + "  its work was not counted apart from other steps\n";
  out += fmt::format("  work {:.1f} MB, {:.1f} Mflop, {:.1f} M int8 ops; bound {:.3f} ms by {}: "
                     "{:.1f} % of the bound\n  inside ops {:.1f} % of the time, inside kernels "
                     "{:.1f} % of all threads' time\n",
                     1e-6 * static_cast<double>(it.cost.bytes),
                     1e-6 * static_cast<double>(it.cost.flops),
                     1e-6 * static_cast<double>(it.cost.int8_ops), 1e3 * it.bound.seconds,
                     it.bound.by, 100 * it.share, 100 * it.in_ops, 100 * it.in_kernels);
  return out + table_text("part", phase.work.parts, it) + table_text("op", phase.work.ops, it);
}

}  // namespace deepinfer
