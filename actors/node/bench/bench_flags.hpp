/// What the bench commands share at the command line: lists of counts, progress, the form of their
/// JSON.
///
/// Every --json is one object {"command", "schema": bench_schema, "machine", "settings", "rates",
/// ...} (bench_machine.hpp); what follows is "kernels" (bench_kernels.hpp), or "prefill", "decode"
/// (bench_offline.hpp) and "draft" (bench_drafts.hpp). Times are in seconds, rates per second,
/// sizes in bytes. A number is in it only if it was measured in that run: what does not apply is
/// null. A field that changes its meaning raises `bench_schema`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node/bench/bench_machine.hpp"
#include "actors/node/cli.hpp"

namespace deepinfer {

inline constexpr std::int32_t bench_schema = 1;

/// "1,8,32" of a flag, each within [1, most]. Errors: bad_config naming the flag.
result<std::vector<std::int32_t>> read_counts(const parsed_flags& flags, const std::string& name,
                                              const std::string& otherwise, std::int32_t most);

/// The fields that every --json begins with, but for what only some measure.
json::object bench_head(std::string_view command, const machine_facts& machine,
                        json::object settings);

/// "[3/40] linear" on a terminal, in place; nothing elsewhere or with -q.
class bench_progress {
public:
  bench_progress(const cli_context& context, std::size_t steps);
  ~bench_progress() { clear(); }
  bench_progress(const bench_progress&) = delete;
  bench_progress& operator=(const bench_progress&) = delete;

  void show(std::string_view what);
  void clear();

private:
  bool is_shown_;
  bool was_drawn_ = false;
  std::size_t steps_;
  std::size_t at_ = 0;
};

}  // namespace deepinfer
