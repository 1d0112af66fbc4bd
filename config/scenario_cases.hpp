/// The cases of a scenario: one per combination of its matrix, with settings applied; and shadows.
///
/// Keys in the order of the file, the last one varies fastest. A case without a matrix has no name.
/// Seeds and interleavings are not cases: the runner repeats each case for them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/scenario.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

struct scenario_case {
  std::string name;        ///< "depth=2 num_drafts=3"
  case_settings settings;  ///< the matrix' values alone
  scenario_engine engine;
  scenario_model model;
  scenario_device device;
};

std::vector<scenario_case> cases_of(const scenario& of);

/// The runs that must give the same tokens as this case: its settings, replaced by those of
/// `same_tokens_as`. One that would be the case itself is left out.
std::vector<scenario_case> shadows_of(const scenario& of, const scenario_case& it);

/// The case as it runs under `seed`: the model's seed grows with it, so that seeds differ in tokens
/// and the scenario's own seed gives those of the file.
scenario_case seeded(const scenario& of, scenario_case it, std::uint64_t seed);

/// Is an expectation for these values meant in this case?
bool holds_for(const case_settings& only_for, const case_settings& it);

/// Each of these is KEY=VALUE with a key that a matrix can have. Error bad_config with the key.
result<void> check_case(std::string_view wanted);

/// "depth=2,num_drafts=3" picks a case if its name has all of these.
bool matches_case(std::string_view wanted, std::string_view name);

}  // namespace deepinfer
