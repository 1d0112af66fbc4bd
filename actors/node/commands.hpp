/// Every command of the binary, one function each; `all_commands` (cli.hpp) lists them.
#pragma once

#include "actors/node/cli.hpp"

namespace deepinfer {

command serve_command();
command gateway_command();
command ps_command();
command top_command();
command trace_command();
command drain_command();
command config_get_command();
command config_set_command();
command completion_command();
command generate_command();
command chat_command();
command check_command();
command tokenize_command();
command detokenize_command();
command render_command();
command parse_command();
command logits_command();
command make_model_command();
command run_command();
command simulate_command();
command bench_kernels_command();
command bench_offline_command();
command bench_latency_command();
command bench_serve_command();
command bench_step_command();
command bench_core_command();
command config_print_command();
command config_validate_command();
command config_docs_command();
command config_metrics_command();
command version_command();

}  // namespace deepinfer
