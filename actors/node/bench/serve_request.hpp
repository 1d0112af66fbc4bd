/// A prompt of `bench serve` as an HTTP request whose answer is written into a record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/node/bench/serve_load.hpp"
#include "actors/node/bench/serve_record.hpp"
#include "runtime/http/load_client.hpp"

namespace deepinfer {

/// What all requests of a run have in common.
struct serve_request_form {
  std::string model;    ///< empty: none is named
  std::string api_key;  ///< empty: none
  bool is_stream = true;
  bool ignores_eos = true;
};

/// With the key, where there is one.
std::vector<http_header> serve_headers(const std::string& api_key);

/// `record` outlives the request, which keeps everything else that it reads with.
load_request serve_request_of(const serve_request_form& form, const serve_prompt& prompt,
                              std::int64_t start_ns, serve_record& record);

}  // namespace deepinfer
