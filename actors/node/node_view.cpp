#include "actors/node/node_view.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "actors/node/stats_report.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/http/struct_json.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t columns = 9;
using row = std::array<std::string, columns>;

/// Names are the clients' own words: nothing in them may move the cursor.
std::string harmless(const std::string& text) {
  constexpr std::size_t longest = 40;
  std::string out;
  for (const char c : text.substr(0, longest))
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out.empty() ? "-" : repair_utf8(out);
}

std::string age_text(std::int64_t microseconds) {
  const auto seconds = static_cast<double>(microseconds) * 1e-6;
  if (seconds < 60.0) return fmt::format("{:.1f}s", seconds);
  const auto minutes = static_cast<std::int64_t>(seconds) / 60;
  if (minutes < 60) return fmt::format("{}m{:02}s", minutes, static_cast<int>(seconds) % 60);
  return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
}

double percent(double part, double whole) {
  return whole <= 0.0 ? 0.0 : 100.0 * part / whole;
}

/// What has been counted between two looks; since the start where it has begun anew.
double moved(const node_view& view, std::uint64_t node_stats::*count) {
  const auto now = view.stats.*count;
  if (!view.before || (*view.before).*count > now) return static_cast<double>(now);
  return static_cast<double>(now - (*view.before).*count);
}
double moved(const node_view& view, std::int64_t node_stats::*count) {
  const auto now = view.stats.*count;
  if (!view.before || (*view.before).*count > now) return static_cast<double>(now);
  return static_cast<double>(now - (*view.before).*count);
}

}  // namespace

std::string request_table(const request_list& list) {
  if (list.requests.empty()) return "no open request\n";
  std::vector<row> rows{
    {"ID", "STATE", "REPLICA", "PROMPT", "CACHED", "OUTPUT", "AGE", "TENANT", "CLIENT ID"}};
  for (const auto& it : list.requests)
    rows.push_back({it.id, it.state, fmt::format("{}", it.replica),
                    fmt::format("{}", it.prompt_tokens), fmt::format("{}", it.cached_tokens),
                    fmt::format("{}", it.output_tokens), age_text(it.age_us), harmless(it.tenant),
                    harmless(it.client_request_id)});
  std::array<std::size_t, columns> widths{};
  for (const auto& cells : rows)
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], cells[i].size());
  std::string out;
  for (const auto& cells : rows) {
    std::string line;
    for (std::size_t i = 0; i < columns; ++i) line += fmt::format("{:<{}}  ", cells[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

json::array request_array(const request_list& list) {
  json::array out;
  for (const auto& it : list.requests) out.push_back(json_of(it));
  return out;
}

std::string top_text(const node_view& view) {
  const auto& now = view.stats;
  const auto& health = view.health;
  auto out =
    fmt::format("{}  {}{}  {}, {}\n", health.node, name_of(health.state),
                health.stage.empty() ? "" : ": " + health.stage,
                counted(health.replicas, "replica"), counted(health.open_requests, "open request"));
  const auto used = now.kv_blocks_total - now.kv_blocks_free - now.kv_blocks_cached;
  const auto total = static_cast<double>(now.kv_blocks_total);
  out += fmt::format("requests  {} running, {} waiting, {:.0f} preemptions\n", now.running,
                     now.queued, moved(view, &node_stats::preemptions));
  out += fmt::format(
    "KV        {} blocks: {:.1f} % used, {:.1f} % cached, {} behind a fence\n", now.kv_blocks_total,
    percent(static_cast<double>(std::max<std::int64_t>(0, used)), total),
    percent(static_cast<double>(now.kv_blocks_cached), total), now.deferred_blocks);
  const auto steps = moved(view, &node_stats::steps);
  const auto span = moved(view, &node_stats::device_span_ns);
  const auto busy = moved(view, &node_stats::device_busy_ns);
  if (view.before && view.seconds > 0.0)
    out += fmt::format("rates     {:.0f} tok/s, {:.0f} steps/s\n",
                       moved(view, &node_stats::tokens_out) / view.seconds, steps / view.seconds);
  else
    out += fmt::format("so far    {} tokens, {} steps\n", now.tokens_out, now.steps);
  out += fmt::format("device    {:.1f} ms a step, {:.1f} % idle\n",
                     steps > 0.0 ? span / steps * 1e-6 : 0.0,
                     span > busy ? percent(span - busy, span) : 0.0);
  const auto drafts = moved(view, &node_stats::draft_tokens);
  if (drafts > 0.0)
    out += fmt::format("drafts    {:.0f} verified, {:.0f} % accepted\n", drafts,
                       percent(moved(view, &node_stats::accepted_tokens), drafts));
  return out + "\n" + request_table(view.requests);
}

json::object top_object(const node_view& view) {
  json::object health;
  health["state"] = name_of(view.health.state);
  health["stage"] = view.health.stage;
  health["progress"] = view.health.progress;
  health["node"] = view.health.node;
  health["replicas"] = view.health.replicas;
  health["open_requests"] = view.health.open_requests;
  return {{"health", std::move(health)},
          {"stats", stats_object(view.stats)},
          {"requests", request_array(view.requests)}};
}

}  // namespace deepinfer
