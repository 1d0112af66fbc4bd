/// A checkpoint report as lines for a terminal and as a JSON object.
#pragma once

#include <string>

#include "runtime/base/json.hpp"
#include "runtime/model/checkpoint_check.hpp"

namespace deepinfer {

/// Totals by kind, warnings, then every kept finding on a line of its own, and the counts of those
/// that were not kept.
std::string to_table(const checkpoint_report& report);

json::object to_json(const checkpoint_report& report);

}  // namespace deepinfer
