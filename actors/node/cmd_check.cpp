#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/numeric_error.hpp"
#include "config/units.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/checkpoint_check.hpp"
#include "runtime/model/memory_plan.hpp"
#include "runtime/text/token_classes.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

namespace {

/// Memory of one rank where --device-memory is not given: an H200 has as much.
constexpr std::string_view usual_memory = "141GiB";

struct check_result {
  checked_directory directory;
  std::vector<std::string> tokenizer_notes;
  std::optional<error> tokenizer_problem;
  std::int32_t tokenizer_size = 0;
  std::optional<memory_plan> plan;
  std::vector<std::string> plan_notes;
  std::optional<std::string> measured_mode;
  logit_error measured;

  bool is_clean() const { return directory.report.is_clean() && !tokenizer_problem; }
};

/// The tokenizer is read first: the classes of the Engram map follow from it.
check_options read_tokenizer(const std::string& directory, check_result& out) {
  check_options options;
  const auto opened = tokenizer::open(directory);
  if (!opened) {
    out.tokenizer_problem = opened.error();
    return options;
  }
  const auto words = opened->as_v41();
  out.tokenizer_notes = words.warnings();
  out.tokenizer_size = words.vocab_size();
  // The vocabulary may be padded beyond the tokenizer; the config says how far.
  const auto config = load_model_config(directory);
  if (config && !config->engram_layers.empty())
    options.engram_classes = token_classes(words, config->vocab_size).class_count;
  return options;
}

result<memory_plan> plan(const model_config& config, const parsed_flags& flags) {
  plan_request request;
  DI_TRY(const auto ranks, flags.integer("ep-size", 1, 65536));
  request.ranks = static_cast<std::int32_t>(ranks.value_or(1));
  const auto memory = flags.text("device-memory").value_or(std::string(usual_memory));
  DI_TRY(request.device_memory, parse_bytes(memory), "--device-memory");
  if (request.device_memory == 0)
    return fail(errc::bad_config,
                fmt::format("--device-memory: found '{}', expected more than 0 bytes", memory));
  auto made = plan_memory(config, request);
  if (!made) made.error().code = errc::bad_config;
  return made;
}

/// What the plan says that one should not overlook.
std::vector<std::string> plan_notes(const model_config& config, const memory_plan& plan) {
  std::vector<std::string> notes;
  const auto& request = plan.request;
  if (request.ranks > config.expert_count)
    notes.push_back(
      fmt::format("--ep-size {}: the model has {} experts a layer, {} ranks hold none",
                  request.ranks, config.expert_count, request.ranks - config.expert_count));
  if (plan.free_bytes < 0)
    notes.push_back(fmt::format("the weights do not fit: a rank needs {}, and has {} less {:.0f} %",
                                bytes_text(plan.weight_bytes), bytes_text(request.device_memory),
                                request.headroom * 100));
  return notes;
}

void print_report(const cli_context& context, const check_result& it) {
  const auto& report = it.directory.report;
  fmt::print(context.out, "{}\n", report.directory);
  fmt::print(context.out, "  files      {} shards, {} tensors, {}\n", report.shard_count,
             report.tensor_count, bytes_text(report.tensor_bytes));
  for (const auto& total : report.totals)
    fmt::print(context.out, "    {:<18}{:>7} tensors {:>12}\n", name_of(total.kind), total.tensors,
               bytes_text(total.bytes));
  if (report.skipped_count > 0)
    fmt::print(context.out, "    {:<18}{:>7} tensors {:>12}\n", "not used", report.skipped_count,
               bytes_text(report.skipped_bytes));
  if (!it.tokenizer_problem) fmt::print(context.out, "  tokenizer  {} tokens\n", it.tokenizer_size);
  for (const auto& warning : report.warnings) fmt::print(context.out, "  warning    {}\n", warning);
  for (const auto& warning : it.tokenizer_notes)
    fmt::print(context.out, "  warning    {}\n", warning);
  for (const auto& warning : it.plan_notes) fmt::print(context.out, "  warning    {}\n", warning);
  if (it.plan) fmt::print(context.out, "\n{}", to_table(*it.plan));
  if (!it.measured_mode) return;
  const auto& m = it.measured;
  fmt::print(context.out,
             "\n{} against exact, {} positions: mean KL {:.6f} nats, most {:.6f}; arg-max equal at "
             "{}, and at {} of {} where exact leads by more than {}\n",
             *it.measured_mode, m.positions, m.mean_kl, m.max_kl, m.argmax_equal, m.clear_and_equal,
             m.clear, logit_error::clear_margin);
}

void print_findings(const check_result& it) {
  const auto& report = it.directory.report;
  for (const auto& f : report.findings) print_err("{}: {}\n", name_of(f.kind), f.text());
  for (const auto& [kind, count] : report.counts) {
    const auto shown = std::count_if(report.findings.begin(), report.findings.end(),
                                     [kind = kind](const auto& f) { return f.kind == kind; });
    if (count > shown) print_err("{}: {} more\n", name_of(kind), count - shown);
  }
  if (it.tokenizer_problem) print_err("tokenizer: {}\n", it.tokenizer_problem->message);
}

json::object report_object(const check_result& it) {
  const auto& report = it.directory.report;
  json::object out;
  out["directory"] = report.directory;
  out["ok"] = it.is_clean();
  json::array findings;
  for (const auto& f : report.findings)
    findings.push_back(json::object{{"kind", name_of(f.kind)},
                                    {"file", f.file},
                                    {"tensor", f.tensor},
                                    {"found", f.found},
                                    {"expected", f.expected}});
  if (it.tokenizer_problem)
    findings.push_back(json::object{{"kind", "tokenizer"},
                                    {"file", "tokenizer.json"},
                                    {"tensor", ""},
                                    {"found", it.tokenizer_problem->message},
                                    {"expected", "a tokenizer that can be read"}});
  out["findings"] = std::move(findings);
  json::object counts;
  for (const auto& [kind, count] : report.counts) counts[name_of(kind)] = count;
  out["counts"] = std::move(counts);
  json::array warnings(report.warnings.begin(), report.warnings.end());
  for (const auto& text : it.tokenizer_notes) warnings.emplace_back(text);
  for (const auto& text : it.plan_notes) warnings.emplace_back(text);
  out["warnings"] = std::move(warnings);
  json::object totals;
  for (const auto& total : report.totals)
    totals[name_of(total.kind)] = json::object{{"tensors", total.tensors}, {"bytes", total.bytes}};
  out["tensors"] = json::object{{"shards", report.shard_count},
                                {"count", report.tensor_count},
                                {"bytes", report.tensor_bytes},
                                {"kinds", std::move(totals)}};
  out["fits"] = it.plan ? json::value(it.plan->free_bytes >= 0) : json::value(nullptr);
  if (it.measured_mode) {
    const auto& m = it.measured;
    out["measured"] = json::object{{"numeric", *it.measured_mode},
                                   {"positions", m.positions},
                                   {"mean_kl", m.mean_kl},
                                   {"max_kl", m.max_kl},
                                   {"max_difference", m.max_difference},
                                   {"argmax_equal", m.argmax_equal},
                                   {"clear", m.clear},
                                   {"clear_and_equal", m.clear_and_equal}};
  }
  out["plan"] = it.plan ? json::value(to_json(*it.plan)) : json::value(nullptr);
  return out;
}

result<logit_error> measure(const std::string& directory, const std::string& mode) {
  if (mode != "fast" && mode != "released")
    return fail(errc::bad_config,
                fmt::format("--measure: found '{}', expected fast or released", mode));
  return measure_numeric(directory, mode == "fast" ? numeric_mode::fast : numeric_mode::released,
                         {});
}

result<int> check(const cli_context& context, const parsed_flags& flags) {
  std::string directory;
  if (!flags.positionals.empty()) {
    DI_TRY(directory, given_directory(flags.positionals.front()));
  } else {
    DI_TRY(directory, embedded_model(context));
  }
  check_result it;
  const auto options = read_tokenizer(directory, it);
  it.directory = check_directory(directory, options);
  if (it.directory.config) {
    DI_TRY(it.plan, plan(*it.directory.config, flags));
    it.plan_notes = plan_notes(*it.directory.config, *it.plan);
  }
  if (const auto mode = flags.text("measure"); mode && it.is_clean()) {
    DI_TRY(it.measured, measure(directory, *mode));
    if (!std::isfinite(it.measured.max_kl))
      return fail(
        errc::device_failed,
        fmt::format("{}: --measure {}: logits of a position are not finite", directory, *mode));
    it.measured_mode = *mode;
  }
  if (flags.is_on("json"))
    fmt::print(context.out, "{}\n", to_text(report_object(it)));
  else
    print_report(context, it);
  // Whoever names a device asks whether the weights fit it.
  const bool is_too_small = flags.has("device-memory") && it.plan && it.plan->free_bytes < 0;
  if (it.is_clean()) return is_too_small ? 1 : 0;
  std::fflush(context.out);
  if (!flags.is_on("json")) print_findings(it);
  std::int64_t problems = it.tokenizer_problem ? 1 : 0;
  for (const auto& [kind, count] : it.directory.report.counts) problems += count;
  return fail(errc::bad_checkpoint,
              fmt::format("{}: {} problem{} found", directory, problems, problems == 1 ? "" : "s"));
}

}  // namespace

command check_command() {
  return {.name = "check",
          .summary = "check a checkpoint without loading it, and plan what fits where",
          .positionals = "[DIR]",
          .positionals_max = 1,
          .flags = {{.name = "ep-size",
                     .help = "ranks that share the experts",
                     .value_name = "N",
                     .default_text = "1"},
                    {.name = "device-memory",
                     .help = "memory of one rank",
                     .value_name = "SIZE",
                     .default_text = std::string(usual_memory)},
                    {.name = "measure",
                     .help = "also run the model: how far its logits in that arithmetic are from "
                             "those in exact",
                     .value_name = "fast|released"},
                    {.name = "json", .help = "one JSON object"}},
          .run = check};
}

}  // namespace deepinfer
