#include "messages/request.hpp"
#include "messages/control.hpp"

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

std::string_view name_of(preempt_cause cause) {
  switch (cause) {
  case preempt_cause::room: return "room";
  case preempt_cause::own_room: return "own_room";
  case preempt_cause::priority: return "priority";
  case preempt_cause::held: return "held";
  case preempt_cause::stall: return "stall";
  case preempt_cause::order: return "order";
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
