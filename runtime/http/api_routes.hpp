/// Every path of the API, once: what the dispatcher serves is what openapi.json describes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

enum class api_call : std::uint8_t {
  chat,
  completion,
  models,
  model,
  tokenize,
  detokenize,
  render,
  health,
  live,
  ready,
  metrics,
  version,
  openapi,
  page,
  requests,
  cancel_request,
  stats,
  reset_prefix_cache,
  drain,
  resume,
  config_get,
  config_set,
  start_profile,
  stop_profile,
  trace,
  snapshot,
  events
};

struct api_route {
  std::string_view method;
  std::string_view path;  ///< may end in /{id}, which stands for the rest
  api_call call;
  bool is_open = false;  ///< needs no key
  bool takes_json = false;
};

std::span<const api_route> api_routes();

/// Where a request goes. `route` is null: nobody serves it; then `allow` names the methods of the
/// path, "" where there is no such path. HEAD goes where GET does.
struct route_match {
  const api_route* route = nullptr;
  std::string rest;  ///< what {id} stands for
  std::string allow;
};

route_match match_route(std::string_view method, std::string_view path);

}  // namespace deepinfer
