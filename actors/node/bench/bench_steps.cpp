#include "actors/node/bench/bench_steps.hpp"

#include <algorithm>
#include <map>

#include "runtime/base/json.hpp"

namespace deepinfer {
namespace {

/// A slice of the trace belongs to the step that its arguments name.
void add_slice(const json::object& event, std::map<std::uint64_t, traced_step>& steps) {
  const auto& args = event.at("args").as_object();
  const auto id = args.at("step").to_number<std::uint64_t>();
  auto& it = steps[id];
  it.step = id;
  it.kind = args.at("kind").as_string();
  it.rows = args.at("rows").to_number<std::int32_t>();
  it.tokens = args.at("tokens").to_number<std::int32_t>();
  constexpr double seconds = 1e-6;
  const auto begin = event.at("ts").to_number<double>() * seconds;
  const auto length = event.at("dur").to_number<double>() * seconds;
  const std::string_view name = event.at("name").as_string();
  if (name.starts_with("plan") || name.starts_with("settle")) it.host_seconds += length;
  if (name.starts_with("forward")) it.begin = begin;
  if (name.starts_with("forward") || name.starts_with("sample"))
    it.end = std::max(it.end, begin + length);
}

}  // namespace

result<std::vector<traced_step>> read_steps(std::string_view trace, std::uint64_t last_seen) {
  DI_TRY(const auto parsed, parse_json(trace), "step trace");
  std::map<std::uint64_t, traced_step> steps;
  try {
    for (const auto& event : parsed.at("traceEvents").as_array())
      if (event.at("ph").as_string() == "X") add_slice(event.as_object(), steps);
  } catch (const std::exception& problem) {
    return fail(errc::internal, std::string("step trace: ") + problem.what());
  }
  std::vector<traced_step> out;
  for (auto& [id, it] : steps)
    if (id > last_seen) out.push_back(std::move(it));
  return out;
}

void step_times::add(const std::vector<traced_step>& all, std::string_view kind,
                     std::int32_t rows_wanted) {
  std::int64_t rows_added = 0;
  double span_added = 0.0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& it = all[i];
    if (it.kind != kind) continue;
    const bool is_followed = i + 1 < all.size() && all[i + 1].step == it.step + 1;
    const auto length = (is_followed ? std::max(it.end, all[i + 1].begin) : it.end) - it.begin;
    if (rows_wanted == 0 || it.rows == rows_wanted) seconds.add(length);
    ++steps;
    tokens += it.tokens;
    host_seconds += it.host_seconds;
    rows_added += it.rows;
    span_added += length;
  }
  rows += rows_added;
  span_seconds += span_added;
  if (span_added > 0) rows_per_second.add(static_cast<double>(rows_added) / span_added);
}

}  // namespace deepinfer
