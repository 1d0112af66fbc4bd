#include "actors/scenario/report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/scenario_names.hpp"
#include "config/units.hpp"

namespace deepinfer {

namespace {

constexpr std::size_t violations_shown = 10;
constexpr std::size_t entries_shown = 20;

const std::string& id_of(const scenario& of, std::int32_t request) {
  return of.requests[static_cast<std::size_t>(request)].id;
}

std::string_view kind_text(step_kind kind) {
  constexpr std::string_view names[] = {"empty", "prefill", "decode", "mixed"};
  return names[static_cast<std::size_t>(kind)];
}

std::string launch_text(const audit_step& step, const audit_log& log, const scenario& of) {
  auto out =
    fmt::format("rank {} launches step {}: {}", step.rank, step.step, kind_text(step.kind));
  for (const auto& row : log.rows(step))
    out += fmt::format(" {} {}", id_of(of, row.request), row.width);
  if (step.bucket > 0) out += fmt::format(" padded to {}", step.bucket);
  return out;
}

std::string token_text(const audit_entry& entry, const audit_log& log, const scenario& of) {
  auto out = fmt::format("{} is sent outputs {} to {}:", id_of(of, entry.request), entry.number + 1,
                         entry.number + entry.count);
  for (const auto id : log.ids_of(entry)) out += fmt::format(" {}", id);
  return out;
}

std::string final_text(const audit_entry& entry, const audit_log& log, const scenario& of) {
  const auto& final = log.final_of(entry);
  auto out = fmt::format("{} ends: {}", id_of(of, entry.request), name_of(final.finish));
  if (final.code != errc::ok) out += fmt::format(", {}", name_of(final.code));
  return out;
}

std::string block_text(const audit_entry& entry, const audit_log& log, const scenario& of) {
  auto out = fmt::format("{} {} blocks", id_of(of, entry.request),
                         entry.kind == audit_kind::held ? "takes" : "lets go of");
  for (const auto block : log.blocks_of(entry)) out += fmt::format(" {}", block.value);
  return out;
}

std::string what_happened(const audit_entry& entry, const audit_log& log, const scenario& of) {
  switch (entry.kind) {
  case audit_kind::submitted: return id_of(of, entry.request) + " is submitted";
  case audit_kind::tokens: return token_text(entry, log, of);
  case audit_kind::finished: return final_text(entry, log, of);
  case audit_kind::launched: return launch_text(log.steps()[entry.index], log, of);
  case audit_kind::settled:
    return fmt::format(
      "rank {} settles step {}{}", entry.rank, entry.number,
      entry.index != no_index && log.steps()[entry.index].has_failed ? ", which has failed" : "");
  case audit_kind::waited:
    return fmt::format("rank {} waits for step {}", entry.rank, entry.number);
  case audit_kind::held:
  case audit_kind::let_go: return block_text(entry, log, of);
  case audit_kind::depth_set: return fmt::format("depth is set to {}", entry.number);
  case audit_kind::restarted: return fmt::format("rank {} starts again", entry.rank);
  case audit_kind::asked:
    return "the moment of " + of.expectations[static_cast<std::size_t>(entry.number)].place;
  case audit_kind::happened: break;
  }
  return text_of(scenario_event{entry.what, entry.request, entry.rank, entry.number}, of);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n')
      out += c;
    else
      out += '?';
  }
  return out;
}

std::string counted(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string suite_xml(const file_report& it) {
  const bool is_skipped = it.status == file_status::skipped;
  const bool is_error = it.status == file_status::invalid;
  const auto failures = std::count_if(it.cases.begin(), it.cases.end(),
                                      [](const auto& c) { return !c.failure.empty(); });
  double seconds = 0;
  for (const auto& c : it.cases) seconds += c.seconds;
  const auto tests = std::max<std::ptrdiff_t>(std::ssize(it.cases), is_skipped || is_error ? 1 : 0);
  auto out =
    fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
                "skipped=\"{}\" time=\"{:.3f}\">\n",
                escaped(it.name), tests, failures, is_error ? 1 : 0, is_skipped ? 1 : 0, seconds);
  if (!it.covers.empty()) {
    out += "    <properties>\n";
    for (const auto& cover : it.covers)
      out += fmt::format("      <property name=\"covers\" value=\"{}\"/>\n", escaped(cover));
    out += "    </properties>\n";
  }
  const auto one = [&](const std::string& name, double time, const std::string& inside) {
    out += fmt::format("    <testcase name=\"{}\" classname=\"{}\" time=\"{:.3f}\"",
                       escaped(name.empty() ? it.name : name), escaped(it.name), time);
    out += inside.empty() ? "/>\n" : fmt::format(">\n      {}\n    </testcase>\n", inside);
  };
  if (is_skipped)
    one("", 0, fmt::format("<skipped message=\"{}\"/>", escaped(it.reason)));
  else if (is_error)
    one("", 0, fmt::format("<error message=\"{}\"/>", escaped(it.reason)));
  for (const auto& c : it.cases) {
    const auto first = c.failure.substr(0, c.failure.find('\n'));
    one(c.name, c.seconds,
        c.failure.empty() ? std::string()
                          : fmt::format("<failure message=\"{}\">{}</failure>", escaped(first),
                                        escaped(c.failure)));
  }
  return out + "  </testsuite>\n";
}

}  // namespace

std::string text_of(const violation& it, const scenario& of) {
  auto out = fmt::format("{}: {}: wanted {}, seen {}", it.place.empty() ? of.path : it.place,
                         it.name, it.wanted, it.seen);
  std::string where;
  const auto add = [&where](const std::string& part) {
    where += (where.empty() ? "" : ", ") + part;
  };
  if (it.us >= 0) add("at " + microseconds_text(it.us));
  if (it.rank >= 0) add(fmt::format("rank {}", it.rank));
  if (it.step > 0) add(fmt::format("step {}", it.step));
  if (it.request >= 0) add("request " + id_of(of, it.request));
  return where.empty() ? out : fmt::format("{} ({})", out, where);
}

std::string text_of(const audit_entry& entry, const audit_log& log, const scenario& of) {
  return fmt::format("{:>9}us  {}", entry.us, what_happened(entry, log, of));
}

std::string repeat_command(const scenario& of, const run_name& run) {
  auto pairs = run.case_name;
  std::replace(pairs.begin(), pairs.end(), ' ', ',');
  return fmt::format("deepinfer run {}{} --seed {} --interleaving {}", of.path,
                     pairs.empty() ? "" : fmt::format(" --case '{}'", pairs), run.seed,
                     run.interleaving);
}

std::string failure_text(const scenario& of, const run_name& run,
                         std::span<const violation> violations, const audit_log& log) {
  std::string out;
  for (std::size_t i = 0; i < std::min(violations.size(), violations_shown); ++i)
    out += text_of(violations[i], of) + "\n";
  if (violations.size() > violations_shown)
    out += fmt::format("and {} more\n", violations.size() - violations_shown);
  out += fmt::format("case {}, seed {}, interleaving {}\n",
                     run.case_name.empty() ? "without settings" : run.case_name, run.seed,
                     run.interleaving);
  const auto entries = log.entries();
  const auto shown = std::min(entries.size(), entries_shown);
  out += fmt::format("last {}:\n", counted(static_cast<std::int64_t>(shown), "event"));
  for (const auto& entry : entries.last(shown)) out += text_of(entry, log, of) + "\n";
  return out + "repeat: " + repeat_command(of, run) + "\n";
}

std::string summary_text(std::span<const file_report> reports) {
  const auto count = [reports](file_status status) {
    return std::count_if(reports.begin(), reports.end(),
                         [status](const file_report& it) { return it.status == status; });
  };
  auto out = fmt::format("{} passed, {} skipped, {} failed", count(file_status::passed),
                         count(file_status::skipped), count(file_status::failed));
  if (const auto invalid = count(file_status::invalid); invalid > 0)
    out += fmt::format(", {} invalid", invalid);
  if (const auto late = count(file_status::out_of_time); late > 0)
    out += fmt::format(", {} not played in time", late);
  return out;
}

std::string text_of(const file_report& it) {
  switch (it.status) {
  case file_status::skipped: return fmt::format("skip {} {}\n", it.name, it.reason);
  case file_status::invalid: return fmt::format("invalid {}\n", it.reason);
  default: break;
  }
  std::int64_t runs = 0;
  double seconds = 0;
  std::string failures;
  for (const auto& c : it.cases) {
    runs += c.runs;
    seconds += c.seconds;
    failures += c.failure;
  }
  if (it.status == file_status::out_of_time)
    return fmt::format("stop {} {}\n{}", it.name, it.reason, failures);
  const auto* verdict = it.status == file_status::failed ? "FAIL" : "pass";
  return fmt::format("{} {} {}, {}, {:.0f} ms\n{}", verdict, it.name,
                     counted(std::ssize(it.cases), "case"), counted(runs, "run"), seconds * 1000,
                     failures);
}

std::string junit_xml(std::span<const file_report> reports) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& it : reports) out += suite_xml(it);
  return out + "</testsuites>\n";
}

}  // namespace deepinfer
