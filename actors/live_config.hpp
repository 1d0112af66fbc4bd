/// The settings of a running node: what holds now, and the changes that an operator makes.
/// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "config/live_settings.hpp"

namespace deepinfer {

class live_config {
public:
  explicit live_config(effective_config loaded);

  engine_settings settings() const;
  /// Value and origin of every setting; keys of clients are masked.
  std::string json() const;

  /// As `note_chosen` of config/live_settings.hpp.
  void note_chosen(const std::string& key, const std::string& text);

  /// As `plan_change`; and no depth beyond the one that was loaded.
  result<setting_change> plan(const std::string& key, const std::string& text) const;
  /// Makes a change that everyone it concerns has taken. Others that were made since it was planned
  /// stay.
  result<void> make(const setting_change& change);

private:
  const std::int32_t loaded_depth_;
  mutable std::mutex mutex_;
  effective_config config_;
};

/// Settings of doors and queues, as against those of the ranks' schedulers and of this process.
bool concerns_doors(const std::string& key);

/// Makes a change: `on_doors_changed` is told of one that concerns doors, and the log changes with
/// its settings. What is said of it, to the log and to who asked.
result<std::string> carry_out(live_config& config, const setting_change& change,
                              const std::function<void(const engine_settings&)>& on_doors_changed);

}  // namespace deepinfer
