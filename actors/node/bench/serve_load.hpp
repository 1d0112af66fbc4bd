/// What `bench serve` asks of a server: prompts and the times at which they are sent. Pure but for
/// files; everything depends on the seed and a request's number alone.
///
/// Datasets:
///   random          so many random ids, every prompt its own: nothing of it is cached
///   prefix-repeat   the same, but all begin with the same `prefix_len` ids
///   FILE.json       of ShareGPT's form: first turn the prompt, length of the second the output
///   FILE.jsonl      an object a line: {"prompt": text or ids} or {"messages": [...]}, and, if it
///                   differs from the others, "output_len"
/// Errors: bad_config with file and place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

struct serve_load_settings {
  std::string dataset = "random";  ///< or a path
  std::int32_t requests = 100;
  double rate = 0;        ///< requests per second; 0: all at once
  double burstiness = 1;  ///< shape of the gamma distribution of gaps; 1: Poisson
  std::int32_t input_len = 128, output_len = 64, prefix_len = 64;
  std::int32_t vocab_size = 2048;  ///< random ids are drawn from first_random_id on
  std::uint64_t seed = 1;
};

/// Below are ids of special meaning.
inline constexpr std::int32_t first_random_id = 256;

/// One request: either of `prompt` (text or ids) and `messages` is set, the other is null.
struct serve_prompt {
  json::value prompt;
  json::value messages;
  std::int32_t output_len = 0;
};

result<std::vector<serve_prompt>> make_prompts(const serve_load_settings& settings);

/// Nanoseconds from the start at which each request is sent, rising.
std::vector<std::int64_t> arrival_times(const serve_load_settings& settings);

}  // namespace deepinfer
