/// What a simulation is asked to serve: requests by time of arrival, from a file or drawn.
///
/// A file is CSV: a header that names its columns in any order, one request a line. Columns:
///   arrival_ms      when it comes, from 0, fractions allowed
///   prompt_tokens   from 1
///   output_tokens   from 1; all of them are produced
///   prefix_group    optional text: prompts of one group begin with the same tokens; empty: none
///   prefix_tokens   optional: so many of them, at most prompt_tokens
///   priority        optional: higher first
/// Empty lines do not count. Requests are numbered in the order of arrival, equal ones as given.
/// Errors: bad_config with file, line, what was found and what was expected. Pure but for the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace deepinfer {

struct workload_request {
  std::int64_t arrival_ns = 0;
  std::int32_t prompt_tokens = 1;
  std::int32_t output_tokens = 1;
  std::string prefix_group;  ///< empty: shares nothing
  std::int32_t prefix_tokens = 0;
  std::int32_t priority = 0;

  friend bool operator==(const workload_request&, const workload_request&) = default;
};

/// Whole numbers from mean - spread to mean + spread, all equally likely.
struct length_range {
  std::int32_t mean = 1;
  std::int32_t spread = 0;
};

/// Requests that are drawn: arrivals are Poisson, everything depends on the seed and a request's
/// number alone. Source of the numbers: Philox, as everywhere.
struct synthetic_workload {
  std::int32_t requests = 100;
  double rate = 0;  ///< requests per second; 0: all come at once
  length_range prompt{512, 0};
  length_range output{128, 0};
  std::int32_t prefix_tokens = 0;  ///< that prompts of a share have in common
  double prefix_share = 0;         ///< of prompts, 0 to 1
  std::uint64_t seed = 1;
};

/// `name` is the file's, for errors.
result<std::vector<workload_request>> parse_workload(std::string_view text, std::string_view name);
result<std::vector<workload_request>> read_workload(const std::string& path);

std::vector<workload_request> draw_workload(const synthetic_workload& like);

/// "512" or "512:128"; the least length is 1. The error says what was found and expected.
result<length_range> parse_length_range(std::string_view text);

}  // namespace deepinfer
