/// Log lines to stderr, never to stdout: results and logs do not mix. One logger per process.
///
/// A warning or an error that comes again within ten seconds after it was written is not written;
/// when they are over, or the process ends, it is told how often it came.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace deepinfer {

enum class severity : std::uint8_t { debug, info, warning, error, off };

/// "debug", "info", "warning", "error" or "off"; false where `name` is none of them.
bool parse_severity(std::string_view name, severity& level);

/// Sets the level and the form of lines: text for people, or one JSON object a line with the fields
/// ts (RFC 3339), level and msg.
void configure_log(severity level, bool as_json);

bool is_logged(severity level);
void log_line(severity level, std::string_view line);

template <class... Args>
void log(severity level, fmt::format_string<Args...> format, Args&&... args) {
  if (is_logged(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace deepinfer
