#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/node/bench/bench_flags.hpp"
#include "actors/node/bench/bench_kernels.hpp"
#include "actors/node/commands.hpp"
#include "runtime/device/cpu_team.hpp"

namespace deepinfer {
namespace {

struct kernel_settings {
  std::vector<std::int32_t> rows;
  std::vector<std::string> types;
  std::int32_t repeats = 0;
  std::int32_t threads = 1;
  kernels::isa set = kernels::isa::reference;
  std::string filter;
};

result<kernels::isa> read_isa(const std::string& text) {
  if (text == "auto") return kernels::best_isa();
  for (const auto set : {kernels::isa::reference, kernels::isa::avx2}) {
    if (text != kernels::name_of(set)) continue;
    if (kernels::runs(set)) return set;
    return fail(errc::no_device, fmt::format("--isa: this machine does not run {}", text));
  }
  return fail(errc::bad_config,
              fmt::format("--isa: found '{}', expected auto, reference or avx2", text));
}

result<std::vector<std::string>> read_types(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
    const auto& known = weight_types();
    if (std::find(known.begin(), known.end(), out.back()) == known.end())
      return fail(errc::bad_config, fmt::format("--type: found '{}', expected some of {}",
                                                out.back(), fmt::join(known, ",")));
  }
  return out;
}

result<kernel_settings> read_settings(const parsed_flags& flags) {
  kernel_settings out;
  DI_TRY(out.rows, read_counts(flags, "rows", "1,8,32", 4096));
  DI_TRY(out.types, read_types(flags.text("type").value_or("bf16,e4m3,e2m1,i8,i4")));
  DI_TRY(const auto repeats, flags.integer("repeats", 1, 1'000));
  DI_TRY(const auto threads, flags.integer("threads", 1, 1'024));
  out.repeats = static_cast<std::int32_t>(repeats.value_or(9));
  out.threads = static_cast<std::int32_t>(threads.value_or(1));
  DI_TRY(out.set, read_isa(flags.text("isa").value_or("auto")));
  out.filter = flags.text("filter").value_or("");
  return out;
}

/// The cases whose op has the filter's text in its name.
result<std::vector<case_source>> chosen_cases(const kernels::ops& ops, const kernel_settings& it) {
  std::vector<case_source> all = product_cases(ops, it.types, it.rows);
  for (auto& more : {attention_cases(ops, it.rows), layer_cases(ops, it.rows), sampling_cases(ops)})
    all.insert(all.end(), more.begin(), more.end());
  std::vector<std::string> names;
  for (const auto& one : all)
    if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
  std::erase_if(all,
                [&](const auto& one) { return one.name.find(it.filter) == std::string::npos; });
  if (all.empty())
    return fail(errc::bad_config, fmt::format("--filter: found '{}', expected part of {}",
                                              it.filter, fmt::join(names, ", ")));
  return all;
}

json::object settings_object(const kernel_settings& it, const kernels::ops& ops) {
  return {{"isa", kernels::name_of(it.set)}, {"table", ops.name},
          {"threads", it.threads},           {"repeats", it.repeats},
          {"rotated_bytes", rotated_bytes},  {"filter", it.filter}};
}

result<int> bench_kernels(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto settings, read_settings(flags));
  const auto& ops = kernels::cpu_ops(settings.set);
  DI_TRY(const auto cases, chosen_cases(ops, settings));
  const auto machine = facts_of_machine();
  DI_TRY(auto probe, machine_probe::make());
  cpu_team team(settings.threads), all_cores(machine.cores);
  kernel_stopwatch stopwatch(probe, team, all_cores, settings.repeats);
  std::vector<kernel_result> results;
  bench_progress progress(context, cases.size());
  for (const auto& source : cases) {
    progress.show(source.name);
    DI_TRY(auto one, source.make(), source.name);
    results.push_back(stopwatch.measure(std::move(one)));
  }
  progress.clear();
  if (!flags.is_on("json")) {
    fmt::print(context.out, "{}\n{} kernels, {} repeats\n{}\n\n{}", machine_line(machine), ops.name,
               settings.repeats, rates_text(stopwatch.rates()),
               kernel_table(results, stopwatch.rates()));
    return 0;
  }
  auto out = bench_head("bench kernels", machine, settings_object(settings, ops));
  out["rates"] = rates_object(stopwatch.rates());
  json::array kernels_made;
  for (const auto& it : results) kernels_made.push_back(kernel_object(it, stopwatch.rates()));
  out["kernels"] = std::move(kernels_made);
  fmt::print(context.out, "{}\n", to_text(out));
  return 0;
}

}  // namespace

command bench_kernels_command() {
  return {
    .name = "bench kernels",
    .summary = "time the kernels against the machine's limits, measured in the same run",
    .flags = {value_flag("rows", "rows, or tokens, of a call", "N,N,...", "1,8,32"),
              value_flag("type", "weights of the products: f32, bf16, e4m3, e2m1, i8, i4",
                         "T,T,...", "bf16,e4m3,e2m1,i8,i4"),
              value_flag("repeats", "measurements of each kernel", "N", "9"),
              value_flag("threads", "kernel threads; sampling always gets every core", "N", "1"),
              value_flag("isa", "auto, reference or avx2", "SET", "auto"),
              value_flag("filter", "only kernels with this in their name", "NAME", "all"),
              {.name = "json", .help = "one JSON object"}},
    .run = bench_kernels};
}

}  // namespace deepinfer
