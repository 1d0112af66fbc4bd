/// Settings that may change while a node runs, and the check of such a change.
#pragma once

#include <string>
#include <vector>

#include "config/effective.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Their keys, in the order of the schema.
const std::vector<std::string>& live_setting_keys();

/// A change that has been checked and not been made.
struct setting_change {
  std::string key;
  std::string before, after;  ///< as YAML spells them
  effective_config next;      ///< the settings with it; its origin is "config set"
};

/// `text` is read by the schema's own rules. Errors: not_found (no such setting; it names the
/// nearest), invalid_argument (a value that is out of its range, a setting that needs a restart).
result<setting_change> plan_change(const effective_config& config, const std::string& key,
                                   const std::string& text);

/// What the engine has chosen for a setting that nobody gave, as the schema spells it; one that was
/// given stays. Its origin is then "chosen at load". `text` must be a value of the setting.
void note_chosen(effective_config& config, const std::string& key, const std::string& text);

}  // namespace deepinfer
