/// The one line that a node's log has of each request once it has ended. Of one that ran here it is
/// `open_request`'s; of one that never came to a replica, or that a node elsewhere ran, the
/// router's, which is this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/log_event.hpp"

namespace deepinfer {

/// As JSON, no longer than a line may be: what a client says can't pass for a line of its own.
std::string in_quotes(std::string_view text);

/// The trace of a W3C trace context: version-TRACE-parent-flags. Empty: it has none.
std::string trace_of(const std::string& traceparent);

/// What a request is called by those who have to do with it; empty: they call it nothing.
struct request_names {
  const std::string& id;
  const std::string& client_request_id;
  const std::string& tenant;
  const std::string& trace_id;
};

/// "request ID", and the other names where there are any: how each line begins.
std::string line_of(const request_names& names);
/// All names but the id, as fields of a JSON line.
void add_names(std::vector<log_field>& out, const request_names& names);

struct ended_request {
  std::string id;
  std::string client_request_id;
  std::string tenant;
  std::string trace_id;
  std::string finish;              ///< reason of each answer
  errc code = errc::ok;            ///< of an error
  std::string replica;             ///< that ran it; empty: none did
  std::int32_t prompt_tokens = 0;  ///< about
  std::int32_t output_tokens = 0;
  std::optional<std::uint64_t> seed;      ///< nothing: none was given, and no node has told it
  std::int64_t total_us = 0;              ///< since it arrived
  std::optional<std::string> asked_text;  ///< where prompts are logged
};

std::string log_line_of(const ended_request& it);
/// The same as fields of a JSON line.
std::vector<log_field> log_fields_of(const ended_request& it);

}  // namespace deepinfer
