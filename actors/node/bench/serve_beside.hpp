/// The server beside the engine alone, in one run on one machine: `bench serve --beside-offline`.
///
/// Same prompts' sizes, same lengths, same settings, one after the other: the batch of `bench
/// offline`, requests of the client API in this process, requests over HTTP. Throughput is that of
/// whole batches: outputs over the time from the first start to the last end. What HTTP adds to a
/// first token is measured with one request at a time; what it costs per token is the process's CPU
/// time with many streams, less that of the same requests in process and of this command's client.
#pragma once

#include <cstdint>
#include <string>

#include "actors/node/bench/serve_load.hpp"
#include "config/effective.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

struct beside_settings {
  std::int32_t streams = 32;  ///< of the throughput
  std::int32_t input_len = 16, output_len = 256;
  std::int32_t many_streams = 256;  ///< of the CPU time
  std::int32_t repeats = 5;
};

struct beside_result {
  double offline_tokens_per_second = 0;
  double in_process_tokens_per_second = 0, http_tokens_per_second = 0;
  double in_process_ttft_ms = 0, http_ttft_ms = 0;  ///< medians
  double http_cpu_us_per_token = 0;
};

/// Errors: those of loading, of requests, and bad_config where the sizes do not fit.
result<beside_result> measure_beside(effective_config config, const std::string& model_path,
                                     const beside_settings& settings);

json::object beside_object(const beside_result& it);
std::string beside_text(const beside_result& it);

}  // namespace deepinfer
