#include "actors/node/stats_report.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

namespace deepinfer {
namespace {

double share_of(std::int64_t part, std::int64_t whole) {
  return whole <= 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

double milliseconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

}  // namespace

double idle_share(const node_stats& stats) {
  const auto span = stats.device_span_ns;
  return span <= 0 ? 0.0 : 1.0 - share_of(stats.device_busy_ns, span);
}

std::string idle_text(const node_stats& stats) {
  std::vector<std::string> causes;
  for (const auto& [name, ns] : {std::pair{"plan", stats.idle_plan_ns},
                                 {"settle", stats.idle_settle_ns},
                                 {"vote", stats.idle_vote_ns},
                                 {"transfer", stats.idle_transfer_ns}})
    if (const auto share = share_of(ns, stats.device_span_ns); share >= 0.005)
      causes.push_back(fmt::format("{} {:.0f}", name, 100.0 * share));
  const auto why = causes.empty() ? "" : fmt::format(" ({})", fmt::join(causes, ", "));
  return fmt::format("device idle {:.0f} %{}", 100.0 * idle_share(stats), why);
}

std::string stats_text(const node_stats& stats) {
  const auto steps = std::max<std::uint64_t>(1, stats.steps);
  const auto per_step = [&](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(steps);
  };
  auto out = fmt::format(
    "steps     {}, {} tokens, {} over-run rows, {:.1f} messages and {:.1f} host waits a step\n",
    stats.steps, stats.tokens_out, stats.overrun_rows, per_step(stats.step_messages),
    per_step(stats.host_waits));
  out += fmt::format("device    busy {:.1f} ms, {}, {:.1f} ms of host work exposed\n",
                     milliseconds(stats.device_busy_ns), idle_text(stats),
                     milliseconds(stats.exposed_host_ns));
  out +=
    fmt::format("KV        {} blocks, {} free, {} cached, {} deferred\n", stats.kv_blocks_total,
                stats.kv_blocks_free, stats.kv_blocks_cached, stats.deferred_blocks);
  out +=
    fmt::format("requests  {} running, {} queued, {} preemptions, {} prompt tokens from cache\n",
                stats.running, stats.queued, stats.preemptions, stats.cached_tokens);
  if (stats.prefix_host_hits > 0)
    out += fmt::format("host tier {} blocks came back\n", stats.prefix_host_hits);
  if (stats.draft_tokens > 0)
    out += fmt::format(
      "drafts    {} verified, {} accepted ({:.0f} %)\n", stats.draft_tokens, stats.accepted_tokens,
      100.0 * static_cast<double>(stats.accepted_tokens) / static_cast<double>(stats.draft_tokens));
  if (stats.rank_restarts > 0) out += fmt::format("restarts  {}\n", stats.rank_restarts);
  return out;
}

json::object stats_object(const node_stats& stats) {
  json::object out;
  for_each_field(stats, [&](std::string_view name, const auto& value) { out[name] = value; });
  return out;
}

}  // namespace deepinfer
