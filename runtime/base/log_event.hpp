/// A log line about an event, with its facts as fields: people read the line, machines the fields
/// of a JSON line.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "runtime/base/log.hpp"

namespace deepinfer {

struct log_field {
  log_field(std::string_view called, std::string text)
    : name(called),
      value(std::move(text)),
      is_text(true) {}
  template <class Number>
  requires std::integral<Number> || std::floating_point<Number> log_field(std::string_view called,
                                                                          Number number)
    : name(called),
      value(fmt::format("{}", number)) {}

  std::string_view name;
  std::string value;
  bool is_text = false;
};

/// Like log_line; a JSON line has the fields behind msg.
void log_event(severity level, std::string_view line, std::span<const log_field> fields);

}  // namespace deepinfer
