#include "actors/simulate/simulation_report.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace deepinfer {

namespace {

constexpr std::array<std::string_view, idle_causes> cause_names{"plan", "settle", "vote",
                                                                "transfer", "no_work"};

double seconds(double ns) {
  return ns / 1e9;
}

template <typename Number>
std::optional<double> share(Number part, Number whole) {
  if (whole == 0) return {};
  return static_cast<double>(part) / static_cast<double>(whole);
}

json::object latency_object(const latency_summary& it) {
  const auto or_null = [&](double ns) {
    return it.count == 0 ? json::value(nullptr) : json::value(seconds(ns));
  };
  return {{"count", it.count},
          {"mean", or_null(it.mean_ns)},
          {"p50", or_null(static_cast<double>(it.p50_ns))},
          {"p90", or_null(static_cast<double>(it.p90_ns))},
          {"p99", or_null(static_cast<double>(it.p99_ns))}};
}

json::value value_of(const std::optional<double>& it) {
  return it ? json::value(*it) : json::value(nullptr);
}

std::string percent_text(const std::optional<double>& part) {
  return part ? fmt::format("{:.1f} %", *part * 100) : "-";
}

std::string ms_text(const latency_summary& it, double ns) {
  return it.count == 0 ? "-" : fmt::format("{:.3f}", ns / 1e6);
}

/// A line of the table: its name and what it says of a run.
struct table_line {
  std::string name;
  std::function<std::string(const simulation_report&)> text;
};

void add_latency(std::vector<table_line>& lines, const std::string& name,
                 latency_summary simulation_report::*which) {
  using run = simulation_report;
  lines.push_back({name + " mean, ms",
                   [which](const run& it) { return ms_text(it.*which, (it.*which).mean_ns); }});
  const auto add = [&](const char* what, std::int64_t latency_summary::*at) {
    lines.push_back({name + what, [which, at](const run& it) {
                       return ms_text(it.*which, static_cast<double>((it.*which).*at));
                     }});
  };
  add(" p50, ms", &latency_summary::p50_ns);
  add(" p90, ms", &latency_summary::p90_ns);
  add(" p99, ms", &latency_summary::p99_ns);
}

std::vector<table_line> table_lines() {
  using run = simulation_report;
  std::vector<table_line> out{
    {"requests done", [](const run& it) { return fmt::format("{}", it.done); }},
    {"requests failed", [](const run& it) { return fmt::format("{}", it.failed); }},
    {"simulated seconds", [](const run& it) { return fmt::format("{:.6f}", it.seconds); }},
    {"output tokens", [](const run& it) { return fmt::format("{}", it.output_tokens); }},
    {"output tok/s", [](const run& it) { return fmt::format("{:.1f}", it.tokens_per_second); }}};
  add_latency(out, "TTFT", &run::ttft);
  add_latency(out, "TPOT", &run::tpot);
  const std::vector<table_line> more{
    {"preemptions", [](const run& it) { return fmt::format("{}", it.preemptions); }},
    {"prefix hit rate", [](const run& it) { return percent_text(it.prefix_hit_rate); }},
    {"drafts accepted", [](const run& it) { return percent_text(it.draft_accept_rate); }},
    {"over-run rows", [](const run& it) { return fmt::format("{}", it.over_run_rows); }},
    {"steps", [](const run& it) { return fmt::format("{}", it.device.steps); }},
    {"rows of a step, mean",
     [](const run& it) { return it.rows_mean ? fmt::format("{:.2f}", *it.rows_mean) : "-"; }},
    {"device busy",
     [](const run& it) { return percent_text(share(it.device.busy_ns, it.device.span_ns())); }}};
  out.insert(out.end(), more.begin(), more.end());
  for (std::size_t i = 0; i < idle_causes; ++i)
    out.push_back({fmt::format("device idle: {}", cause_names[i]), [i](const run& it) {
                     return percent_text(share(it.device.idle_ns[i], it.device.span_ns()));
                   }});
  out.push_back({"host work hidden", [](const run& it) {
                   const auto host = it.device.hidden_host_ns + it.device.exposed_host_ns;
                   return percent_text(share(it.device.hidden_host_ns, host));
                 }});
  return out;
}

}  // namespace

latency_summary latency_of(std::vector<std::int64_t> values_ns) {
  latency_summary out;
  if (values_ns.empty()) return out;
  std::sort(values_ns.begin(), values_ns.end());
  const auto count = values_ns.size();
  const auto rank = [&](std::size_t percent) {
    return values_ns[(count * percent + 99) / 100 - 1];  // rounded up, from 1
  };
  out.count = static_cast<std::int64_t>(count);
  out.mean_ns =
    std::accumulate(values_ns.begin(), values_ns.end(), 0.0) / static_cast<double>(count);
  out.p50_ns = rank(50);
  out.p90_ns = rank(90);
  out.p99_ns = rank(99);
  return out;
}

simulation_report report_of(const simulation_outcome& outcome) {
  simulation_report out;
  std::vector<std::int64_t> first, each;
  for (const auto& it : outcome.requests) {
    ++out.requests;
    ++(it.has_failed ? out.failed : out.done);
    out.output_tokens += it.tokens;
    if (it.tokens > 0) first.push_back(it.first_token_ns - it.arrival_ns);
    if (it.tokens > 1) each.push_back((it.last_token_ns - it.first_token_ns) / (it.tokens - 1));
  }
  out.ttft = latency_of(std::move(first));
  out.tpot = latency_of(std::move(each));
  out.seconds = seconds(static_cast<double>(outcome.end_ns - outcome.begin_ns));
  if (out.seconds > 0) out.tokens_per_second = static_cast<double>(out.output_tokens) / out.seconds;
  const auto& s = outcome.scheduler;
  out.preemptions = s.preemptions;
  out.prefix_hit_rate = share(s.cached_tokens, s.prompt_tokens);
  out.draft_accept_rate = share(s.accepted_tokens, s.draft_tokens);
  out.over_run_rows = s.overrun_rows;
  out.device = outcome.device;
  out.rows_mean = share(outcome.device.rows, outcome.device.steps);
  out.canary_errors = outcome.canary_errors;
  out.failure = outcome.failure;
  return out;
}

std::string table_of(std::span<const simulation_report> runs) {
  std::vector<table_line> lines = table_lines();
  const bool has_labels =
    std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.label.empty(); });
  if (has_labels)
    lines.insert(lines.begin(), {"", [](const simulation_report& run) { return run.label; }});
  std::vector<std::size_t> widths;
  for (const auto& run : runs) {
    std::size_t widest = 12;
    for (const auto& line : lines) widest = std::max(widest, line.text(run).size());
    widths.push_back(widest);
  }
  std::string out;
  for (const auto& line : lines) {
    out += fmt::format("{:<24}", line.name);
    for (std::size_t i = 0; i < runs.size(); ++i)
      out += fmt::format("  {:>{}}", line.text(runs[i]), widths[i]);
    out += '\n';
  }
  return out;
}

json::object object_of(const simulation_report& run) {
  const auto& device = run.device;
  const auto in_seconds = [](std::int64_t ns) { return seconds(static_cast<double>(ns)); };
  json::object idle;
  for (std::size_t i = 0; i < idle_causes; ++i)
    idle[cause_names[i]] = in_seconds(device.idle_ns[i]);
  return {{"label", run.label},
          {"settings", run.settings},
          {"requests", run.requests},
          {"done", run.done},
          {"failed", run.failed},
          {"seconds", run.seconds},
          {"output_tokens", run.output_tokens},
          {"output_tokens_per_second", run.tokens_per_second},
          {"ttft_seconds", latency_object(run.ttft)},
          {"tpot_seconds", latency_object(run.tpot)},
          {"preemptions", run.preemptions},
          {"prefix_hit_rate", value_of(run.prefix_hit_rate)},
          {"draft_accept_rate", value_of(run.draft_accept_rate)},
          {"over_run_rows", run.over_run_rows},
          {"steps", device.steps},
          {"rows_mean", value_of(run.rows_mean)},
          {"device", json::object{{"busy_seconds", in_seconds(device.busy_ns)},
                                  {"idle_seconds", std::move(idle)},
                                  {"hidden_host_seconds", in_seconds(device.hidden_host_ns)},
                                  {"exposed_host_seconds", in_seconds(device.exposed_host_ns)}}},
          {"canary_errors", run.canary_errors}};
}

int exit_code_of(std::span<const simulation_report> runs) {
  const bool is_broken =
    std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run.canary_errors > 0; });
  if (is_broken) return 10;
  const bool serves_nobody = std::any_of(
    runs.begin(), runs.end(), [](const auto& run) { return run.requests > 0 && run.done == 0; });
  return serves_nobody ? 1 : 0;
}

}  // namespace deepinfer
