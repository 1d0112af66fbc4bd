#include "actors/node/commands.hpp"

#include <fmt/format.h>

#include "runtime/base/metrics.hpp"

namespace deepinfer {

namespace {

result<int> reference(const cli_context& context, const parsed_flags&) {
  fmt::print(context.out, "{}", metrics_reference());
  return 0;
}

}  // namespace

command config_metrics_command() {
  return {.name = "config metrics",
          .summary = "print the reference of all metrics as Markdown",
          .run = reference};
}

}  // namespace deepinfer
