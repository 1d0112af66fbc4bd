#include "runtime/base/log.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "runtime/base/json.hpp"
#include "runtime/base/log_event.hpp"
#include "runtime/base/repeat_gate.hpp"

namespace deepinfer {
namespace {

constexpr std::array<std::string_view, 5> names{"debug", "info", "warning", "error", "off"};

std::atomic<severity> least{severity::info};
std::atomic<bool> is_json{false};

spdlog::logger& logger() {
  static const auto instance = [] {
    const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org
    auto made =
      spdlog::stderr_color_mt("deepinfer", no_color && *no_color ? spdlog::color_mode::never
                                                                 : spdlog::color_mode::automatic);
    made->set_level(spdlog::level::trace);
    made->set_pattern("%^%H:%M:%S.%e %l%$ %v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(severity level) {
  switch (level) {
  case severity::debug: return spdlog::level::debug;
  case severity::info: return spdlog::level::info;
  case severity::warning: return spdlog::level::warn;
  case severity::error: return spdlog::level::err;
  case severity::off: break;
  }
  return spdlog::level::off;
}

void write_line(severity level, std::string_view line) {
  if (is_json)
    logger().log(to_spdlog(level), "\"msg\":{}", to_text(json::string(line)));
  else
    logger().log(to_spdlog(level), "{}", line);
}

void write_json_line(severity level, std::string_view line, std::span<const log_field> fields) {
  auto out = "\"msg\":" + to_text(json::string(line));
  for (const auto& it : fields)
    out +=
      fmt::format(",\"{}\":{}", it.name, it.is_text ? to_text(json::string(it.value)) : it.value);
  logger().log(to_spdlog(level), "{}", out);
}

/// So long is a warning or an error that was written held back when it comes again.
constexpr auto repeat_interval = std::chrono::seconds(10);

repeat_gate& repeats() {
  // The logger is made first, so that it is still there when the gate tells the last of it.
  logger();
  static repeat_gate instance(repeat_interval, [](severity level, std::string_view line) {
    if (is_logged(level)) write_line(level, line);
  });
  return instance;
}

}  // namespace

bool parse_severity(std::string_view name, severity& level) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] != name) continue;
    level = static_cast<severity>(i);
    return true;
  }
  return false;
}

void configure_log(severity level, bool as_json) {
  least = level;
  is_json = as_json;
  logger().set_pattern(as_json ? R"({"ts":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                               : "%^%H:%M:%S.%e %l%$ %v");
}

bool is_logged(severity level) {
  return level >= least.load(std::memory_order_relaxed) && level != severity::off;
}

void log_line(severity level, std::string_view line) {
  // A fault that comes with every request or step is worth one line and a count.
  if (level != severity::warning && level != severity::error) return write_line(level, line);
  repeats().say(level, line);
}

void log_event(severity level, std::string_view line, std::span<const log_field> fields) {
  if (!is_logged(level)) return;
  if (is_json)
    write_json_line(level, line, fields);
  else
    log_line(level, line);
}

}  // namespace deepinfer
