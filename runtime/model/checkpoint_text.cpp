#include "runtime/model/checkpoint_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/model/memory_plan.hpp"

namespace deepinfer {
namespace {

std::int64_t kept_of(const checkpoint_report& report, finding_kind kind) {
  return std::count_if(report.findings.begin(), report.findings.end(),
                       [kind](const finding& found) { return found.kind == kind; });
}

}  // namespace

std::string to_table(const checkpoint_report& report) {
  std::string out;
  const auto line = [&](std::string_view name, std::int64_t tensors, std::int64_t bytes) {
    out += fmt::format("  {:<18}{:>8} tensors{:>14}\n", name, tensors, bytes_text(bytes));
  };
  out += fmt::format("{}: {} tensors in {} files, {}\n", report.directory, report.tensor_count,
                     report.shard_count, bytes_text(report.tensor_bytes));
  for (const auto& total : report.totals) line(name_of(total.kind), total.tensors, total.bytes);
  if (report.skipped_count > 0) line("not read", report.skipped_count, report.skipped_bytes);
  for (const auto& warning : report.warnings) out += "warning: " + warning + "\n";
  for (const auto& found : report.findings) out += "error: " + found.text() + "\n";
  for (const auto& [kind, count] : report.counts)
    if (const auto kept = kept_of(report, kind); count > kept)
      out += fmt::format("error: {}: {} in all, {} shown\n", name_of(kind), count, kept);
  return out;
}

json::object to_json(const checkpoint_report& report) {
  json::object totals, counts;
  for (const auto& total : report.totals)
    totals[name_of(total.kind)] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  for (const auto& [kind, count] : report.counts) counts[name_of(kind)] = count;
  json::array findings, warnings;
  for (const auto& found : report.findings)
    findings.push_back({{"kind", name_of(found.kind)},
                        {"file", found.file},
                        {"tensor", found.tensor},
                        {"found", found.found},
                        {"expected", found.expected},
                        {"text", found.text()}});
  for (const auto& warning : report.warnings) warnings.emplace_back(warning);
  return {{"directory", report.directory},
          {"clean", report.is_clean()},
          {"files", report.shard_count},
          {"tensors", report.tensor_count},
          {"bytes", report.tensor_bytes},
          {"not_read", {{"tensors", report.skipped_count}, {"bytes", report.skipped_bytes}}},
          {"expected_tensors", report.expected_count},
          {"kinds", std::move(totals)},
          {"findings", std::move(findings)},
          {"counts", std::move(counts)},
          {"warnings", std::move(warnings)}};
}

}  // namespace deepinfer
