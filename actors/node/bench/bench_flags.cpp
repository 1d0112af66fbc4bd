#include "actors/node/bench/bench_flags.hpp"

#include <utility>

namespace deepinfer {

result<std::vector<std::int32_t>> read_counts(const parsed_flags& flags, const std::string& name,
                                              const std::string& otherwise, std::int32_t most) {
  DI_TRY(auto counts, parse_numbers(flags.text(name).value_or(otherwise), "entry", 1, most),
         "--" + name);
  return counts;
}

json::object bench_head(std::string_view command, const machine_facts& machine,
                        json::object settings) {
  return {{"command", command},
          {"schema", bench_schema},
          {"machine", machine_object(machine)},
          {"settings", std::move(settings)}};
}

bench_progress::bench_progress(const cli_context& context, std::size_t steps)
  : is_shown_(context.err_is_terminal && context.verbosity >= 0),
    steps_(steps) {}

void bench_progress::show(std::string_view what) {
  ++at_;
  if (!is_shown_) return;
  print_err("\r[{}/{}] {}\033[K", at_, steps_, what);
  std::fflush(stderr);
  was_drawn_ = true;
}

void bench_progress::clear() {
  if (std::exchange(was_drawn_, false)) print_err("\r\033[K");
}

}  // namespace deepinfer
