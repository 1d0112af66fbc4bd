#include "actors/node/bench/bench_kernels.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace deepinfer {
namespace {

double seconds_since(std::int64_t begin_ns) {
  return 1e-9 * static_cast<double>(std::max<std::int64_t>(1, work_meter::now_ns() - begin_ns));
}

/// How many calls a repeat has: all of the case's data where it names an amount, but no more than
/// take a second; else as many as take some milliseconds.
std::int64_t calls_of(const kernel_case& it, const stream_ref& stream) {
  constexpr double some_seconds = 2e-3, most_seconds = 1.0;
  constexpr std::int64_t most = 10'000;
  it.run(stream, 0);
  const auto begin = work_meter::now_ns();
  it.run(stream, 1);
  const bool is_fixed = it.calls > 0;
  const auto fitting = (is_fixed ? most_seconds : some_seconds) / seconds_since(begin);
  return std::clamp(static_cast<std::int64_t>(fitting), std::int64_t{1},
                    is_fixed ? it.calls : most);
}

json::value or_null(bool is_there, json::value value) {
  return is_there ? std::move(value) : json::value(nullptr);
}

work_bound bound_of(const kernel_result& it, const machine_rates& rates) {
  return it.threads == rates.threads ? rates.bound(it.cost) : work_bound{};
}

double per_second(std::int64_t work, const kernel_result& it) {
  return static_cast<double>(work) / it.seconds.median();
}

/// Columns of the table; the heads are as wide as what kernel_line writes.
std::string table_head() {
  return fmt::format("{:<7}{:>5}{:>11}{:>9}{:>11}{:>7}{:>8}{:>7}{:>7}  {:<9}{:>8}{:>8}\n", "  type",
                     "rows", "us/call", "+-mad", "ns/row", "GB/s", "Gop/s", "share", "best", "of",
                     "packed", "stored");
}

std::string kernel_line(const kernel_result& it, const machine_rates& rates) {
  const auto& facts = it.facts;
  const auto median = it.seconds.median();
  const auto bound = bound_of(it, rates);
  auto out = fmt::format("  {:<5}{:>5}{:>11.2f}{:>9.2f}{:>11.1f}",
                         facts.type.empty() ? "-" : facts.type, facts.rows, median * 1e6,
                         it.seconds.mad() * 1e6, median * 1e9 / static_cast<double>(facts.rows));
  if (bound.seconds > 0)
    out +=
      fmt::format("{:>7.1f}{:>8.1f}{:>6.0f}%{:>6.0f}%  {:<9}", per_second(it.cost.bytes, it) / 1e9,
                  per_second(it.cost.flops + it.cost.int8_ops, it) / 1e9,
                  100 * bound.seconds / median, 100 * bound.seconds / it.seconds.min(), bound.by);
  if (facts.packed_bytes > 0)
    out += fmt::format("{:>8.2f}{:>8.2f}", static_cast<double>(facts.packed_bytes) / 1e6,
                       static_cast<double>(facts.stored_bytes) / 1e6);
  out.erase(out.find_last_not_of(' ') + 1);
  return out + '\n';
}

constexpr const char* legend =
  "share: the least time that the limits above allow for a call's bytes and operations, over the\n"
  "  time measured: 100% is a perfect kernel. best: the same of the fastest repeat. of: the limit\n"
  "  that decides. Weights of products come from memory; what stays in the caches may pass 100%\n"
  "  of bandwidth, and 4-bit weights 100% of the int8 rate, as they need fewer instructions.\n"
  "us/call: the median over repeats; mad: the median distance from it. A blank: not counted.\n"
  "packed, stored: MB of weights as the kernel reads them, and as a checkpoint has them.\n";

}  // namespace

kernel_result kernel_stopwatch::measure(kernel_case it) {
  kernel_result out;
  auto& team = it.on_all_cores ? all_cores_ : team_;
  stream_ref stream{.team = &team};
  out.threads = team.threads();
  out.calls = calls_of(it, stream);
  work_meter meter;
  stream.meter = &meter;
  std::int64_t call = 0;  // goes on over the repeats, so that few calls rotate as well
  const auto pass = [&] {
    for (std::int64_t i = 0; i < out.calls; ++i) it.run(stream, call++);
  };
  pass();
  stream.meter = nullptr;
  const auto& total = meter.total();
  out.cost = {total.bytes / out.calls, total.flops / out.calls, total.int8_ops / out.calls};
  for (std::int32_t repeat = 0; repeat < repeats_; ++repeat) {
    probe_.run(team_, rates_);
    const auto begin = work_meter::now_ns();
    pass();
    out.seconds.add(seconds_since(begin) / static_cast<double>(out.calls));
  }
  it.run = nullptr;
  out.facts = std::move(it);
  return out;
}

json::object kernel_object(const kernel_result& it, const machine_rates& rates) {
  const auto& facts = it.facts;
  const auto median = it.seconds.median();
  const bool has_weights = facts.packed_bytes > 0;
  const auto bound = bound_of(it, rates);
  const bool has_bound = bound.seconds > 0;
  json::object out;
  out["name"] = facts.name;
  out["type"] = or_null(!facts.type.empty(), json::string(facts.type));
  out["shape"] = facts.shape;
  out["rows"] = facts.rows;
  out["threads"] = it.threads;
  out["calls"] = it.calls;
  out["seconds"] = summary_of(it.seconds);
  out["seconds_per_row"] = median / static_cast<double>(facts.rows);
  out["packed_bytes"] = or_null(has_weights, facts.packed_bytes);
  out["stored_bytes"] = or_null(has_weights, facts.stored_bytes);
  out["bytes"] = it.cost.bytes;
  out["flops"] = it.cost.flops;
  out["int8_ops"] = it.cost.int8_ops;
  out["bytes_per_second"] = per_second(it.cost.bytes, it);
  out["ops_per_second"] = per_second(it.cost.flops + it.cost.int8_ops, it);
  out["bound_seconds"] = or_null(has_bound, bound.seconds);
  out["bound_by"] = or_null(has_bound, bound.by);
  out["share"] = or_null(has_bound, bound.seconds / median);
  out["share_best"] = or_null(has_bound, bound.seconds / it.seconds.min());
  return out;
}

std::string kernel_table(std::span<const kernel_result> results, const machine_rates& rates) {
  std::vector<std::string> titles, sections;
  for (const auto& it : results) {
    const auto title = fmt::format("{}: {}, {} thread{}", it.facts.name, it.facts.shape, it.threads,
                                   it.threads == 1 ? "" : "s");
    const auto at = std::find(titles.begin(), titles.end(), title) - titles.begin();
    if (static_cast<std::size_t>(at) == titles.size()) {
      titles.push_back(title);
      sections.push_back('\n' + title + '\n' + table_head());
    }
    sections[static_cast<std::size_t>(at)] += kernel_line(it, rates);
  }
  std::string out = legend;
  for (const auto& section : sections) out += section;
  return out;
}

}  // namespace deepinfer
