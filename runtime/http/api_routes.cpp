#include "runtime/http/api_routes.hpp"

#include <array>

namespace deepinfer {
namespace {

constexpr bool open = true;
constexpr bool json_body = true;

constexpr std::array routes{
  api_route{"POST", "/v1/chat/completions", api_call::chat, !open, json_body},
  api_route{"POST", "/chat/completions", api_call::chat, !open, json_body},
  api_route{"POST", "/v1/completions", api_call::completion, !open, json_body},
  api_route{"POST", "/completions", api_call::completion, !open, json_body},
  api_route{"POST", "/beta/completions", api_call::completion, !open, json_body},
  api_route{"GET", "/v1/models", api_call::models},
  api_route{"GET", "/models", api_call::models},
  api_route{"GET", "/v1/models/{id}", api_call::model},
  api_route{"POST", "/tokenize", api_call::tokenize, !open, json_body},
  api_route{"POST", "/v1/tokenize", api_call::tokenize, !open, json_body},
  api_route{"POST", "/detokenize", api_call::detokenize, !open, json_body},
  api_route{"POST", "/v1/detokenize", api_call::detokenize, !open, json_body},
  api_route{"POST", "/render", api_call::render, !open, json_body},
  api_route{"POST", "/v1/render", api_call::render, !open, json_body},
  api_route{"GET", "/health", api_call::health},
  api_route{"GET", "/health/live", api_call::live, open},
  api_route{"GET", "/health/ready", api_call::ready},
  api_route{"GET", "/metrics", api_call::metrics},
  api_route{"GET", "/version", api_call::version},
  api_route{"GET", "/openapi.json", api_call::openapi},
  api_route{"GET", "/", api_call::page, open},
  api_route{"GET", "/v1/internal/requests", api_call::requests},
  api_route{"DELETE", "/v1/internal/requests/{id}", api_call::cancel_request},
  api_route{"GET", "/v1/internal/stats", api_call::stats},
  api_route{"POST", "/v1/internal/reset_prefix_cache", api_call::reset_prefix_cache},
  api_route{"POST", "/v1/internal/drain", api_call::drain, !open, json_body},
  api_route{"POST", "/v1/internal/resume", api_call::resume},
  api_route{"GET", "/v1/internal/config", api_call::config_get},
  api_route{"POST", "/v1/internal/config", api_call::config_set, !open, json_body},
  api_route{"POST", "/start_profile", api_call::start_profile},
  api_route{"POST", "/stop_profile", api_call::stop_profile},
  api_route{"GET", "/debug/trace", api_call::trace},
  api_route{"GET", "/v1/internal/snapshot", api_call::snapshot},
  api_route{"GET", "/v1/internal/events", api_call::events}};

/// Whether `path` is one that the route serves; `rest` is what its {id} stands for.
bool fits(const api_route& route, std::string_view path, std::string_view& rest) {
  constexpr std::string_view variable = "{id}";
  if (!route.path.ends_with(variable)) return route.path == path;
  const auto stem = route.path.substr(0, route.path.size() - variable.size());
  if (!path.starts_with(stem) || path.size() == stem.size()) return false;
  rest = path.substr(stem.size());
  return true;
}

}  // namespace

std::span<const api_route> api_routes() {
  return routes;
}

route_match match_route(std::string_view method, std::string_view path) {
  route_match out;
  const auto wanted = method == "HEAD" ? std::string_view("GET") : method;
  for (const auto& route : routes) {
    std::string_view rest;
    if (!fits(route, path, rest)) continue;
    if (route.method == wanted) {
      out.route = &route;
      out.rest = std::string(rest);
    }
    if (!out.allow.empty()) out.allow += ", ";
    out.allow += route.method;
    if (route.method == "GET") out.allow += ", HEAD";
  }
  if (!out.allow.empty()) out.allow += ", OPTIONS";
  return out;
}

}  // namespace deepinfer
