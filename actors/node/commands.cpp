#include "actors/node/commands.hpp"

namespace deepinfer {

std::vector<command> all_commands() {
  return {generate_command(),        chat_command(),
          check_command(),           tokenize_command(),
          detokenize_command(),      render_command(),
          parse_command(),           logits_command(),
          make_model_command(),      run_command(),
          simulate_command(),        bench_kernels_command(),
          bench_offline_command(),   bench_latency_command(),
          bench_serve_command(),     bench_step_command(),
          bench_core_command(),      config_print_command(),
          config_validate_command(), config_docs_command(),
          version_command()};
}

}  // namespace deepinfer
