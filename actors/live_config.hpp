/// The settings of a running node: what holds now, and the changes that an operator makes.
/// Thread-safe.
#pragma once

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

}  // namespace deepinfer
