/// Flags of `deepinfer simulate`: what runs, on what workload, and which values are compared.
///
/// Errors: bad_config with the flag, what was found and what was expected.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "actors/simulate/simulation.hpp"
#include "config/flags.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// Every flag but --json and --compare.
std::vector<flag> simulation_flags();

result<simulation_settings> simulation_settings_of(const parsed_flags& flags);

/// A file, where one is named; then no flag of a drawn workload may stand.
result<std::vector<workload_request>> workload_of(const parsed_flags& flags);

/// Flags of each run, and its label. --compare KEY=V1,V2,... makes one of each value; where a value
/// holds commas itself, the values are set apart by semicolons. Without it there is one, without
/// a label.
result<std::vector<std::pair<std::string, parsed_flags>>> compared_runs(const parsed_flags& flags);

/// The settings as given on the command line, flag by flag, for the JSON report.
json::object settings_object(const parsed_flags& flags);

}  // namespace deepinfer
