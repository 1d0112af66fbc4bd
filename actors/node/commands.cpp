#include "actors/node/commands.hpp"

namespace deepinfer {

// One a line: every new command is one line of a change.
// clang-format off
std::vector<command> all_commands() {
  return {
    serve_command(),
    gateway_command(),
    generate_command(),
    chat_command(),
    check_command(),
    ps_command(),
    top_command(),
    trace_command(),
    drain_command(),
    tokenize_command(),
    detokenize_command(),
    render_command(),
    parse_command(),
    logits_command(),
    make_model_command(),
    run_command(),
    simulate_command(),
    bench_serve_command(),
    bench_kernels_command(),
    bench_offline_command(),
    bench_latency_command(),
    bench_step_command(),
    bench_core_command(),
    config_print_command(),
    config_validate_command(),
    config_get_command(),
    config_set_command(),
    config_docs_command(),
    config_metrics_command(),
    completion_command(),
    version_command(),
  };
}
// clang-format on

}  // namespace deepinfer
