#include "actors/live_config.hpp"

#include <fmt/format.h>

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

}  // namespace deepinfer
