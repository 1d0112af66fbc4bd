#include "actors/live_config.hpp"

#include <fmt/format.h>

#include "runtime/base/log.hpp"

namespace deepinfer {

live_config::live_config(effective_config loaded)
  : loaded_depth_(loaded.settings.engine.depth),
    config_(std::move(loaded)) {}

engine_settings live_config::settings() const {
  const std::lock_guard lock(mutex_);
  return config_.settings;
}

std::string live_config::json() const {
  const std::lock_guard lock(mutex_);
  return print_effective_json(config_);
}

void live_config::note_chosen(const std::string& key, const std::string& text) {
  const std::lock_guard lock(mutex_);
  deepinfer::note_chosen(config_, key, text);
}

result<setting_change> live_config::plan(const std::string& key, const std::string& text) const {
  const std::lock_guard lock(mutex_);
  DI_TRY(auto change, plan_change(config_, key, text));
  const auto depth = change.next.settings.engine.depth;
  if (depth > loaded_depth_)
    return fail(errc::invalid_argument,
                fmt::format("engine.depth: found {}, expected at most {}, for which the engine was "
                            "loaded; more needs a restart",
                            depth, loaded_depth_),
                "value");
  return change;
}

result<void> live_config::make(const setting_change& change) {
  const std::lock_guard lock(mutex_);
  DI_TRY(auto now, plan_change(config_, change.key, change.after));
  config_ = std::move(now.next);
  return {};
}

bool concerns_doors(const std::string& key) {
  return key.starts_with("server.") || key == "observability.log_requests";
}

result<std::string> carry_out(live_config& config, const setting_change& change,
                              const std::function<void(const engine_settings&)>& on_doors_changed) {
  DI_TRY_VOID(config.make(change));
  const auto settings = config.settings();
  if (concerns_doors(change.key)) on_doors_changed(settings);
  auto said = fmt::format("{}: {} instead of {}", change.key, change.after, change.before);
  log(severity::info, "config set: {}", said);
  if (change.key == "observability.log_level") {
    const auto& observability = settings.observability;
    configure_log(observability.level, observability.format == log_format::json);
  }
  return said;
}

}  // namespace deepinfer
