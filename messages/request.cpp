#include "messages/control.hpp"
#include "messages/request.hpp"

namespace deepinfer {

std::string_view name_of(finish_reason reason) {
  switch (reason) {
  case finish_reason::none: return "none";
  case finish_reason::stop: return "stop";
  case finish_reason::length: return "length";
  case finish_reason::abort: return "abort";
  case finish_reason::error: return "error";
  case finish_reason::resource: return "resource";
  case finish_reason::tool_calls: return "tool_calls";
  }
  return "?";
}

std::string_view name_of(health_state state) {
  switch (state) {
  case health_state::unspecified: return "unknown";
  case health_state::loading: return "loading";
  case health_state::ready: return "ready";
  case health_state::draining: return "draining";
  case health_state::failed: return "failed";
  }
  return "?";
}

}  // namespace deepinfer
