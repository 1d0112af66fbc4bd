/// The steps in which a parsed scenario file becomes a `scenario`; for config/scenario_*.cpp alone.
///
/// Settings are only converted. The script and the expectations are checked while they are read:
/// errors are `bad_config` and start with "FILE:LINE: ", the line of the entry.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "config/scenario.hpp"
#include "config/yaml_to_proto.hpp"
#include "messages/scenario.pb.h"

namespace deepinfer {

namespace scenario_pb = ::scenario::v1;

/// Enums have the order of messages/scenario.proto, where number 0 stands for an absent one.
template <class Plain, class Wire>
Plain plain_enum(Wire value) {
  return static_cast<Plain>(static_cast<int>(value) - 1);
}

inline step_kind plain_step_kind(scenario_pb::Kind kind) {
  return static_cast<step_kind>(static_cast<int>(kind) % 4);  // here empty comes first
}

scenario_engine read_engine(const scenario_pb::EngineSetup& in);
scenario_model read_model(const scenario_pb::ModelSetup& in);
scenario_device read_device(const scenario_pb::DeviceSetup& in);
scenario_policy read_policy(const scenario_pb::Policy& in, scenario_policy out);
scenario_vote read_vote(const scenario_pb::Vote& in, scenario_vote out);
case_settings read_settings(const scenario_pb::Overrides& in);
/// In the order of the schema; `read_axes` of scenario_load.cpp puts them in that of the file.
std::vector<matrix_axis> read_axes(const scenario_pb::Matrix& in);

/// What reading the script needs to know and to say.
struct scenario_reading {
  const scenario_pb::Scenario& in;
  const yaml_places& places;
  scenario& out;
  std::int32_t ranks_max = 1;  ///< of any case

  /// "FILE:LINE" of a key, of the file where it has none.
  std::string place(const std::string& key) const;

  template <class... Args>
  tl::unexpected<error> wrong(const std::string& at, fmt::format_string<Args...> format,
                              Args&&... args) const {
    return fail(errc::bad_config, at + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
};

/// An id of one request.
result<std::int32_t> read_id(const scenario_reading& reading, const std::string& at,
                             const std::string& key, const std::string& id);
/// Ids and globs, each of them known; in the order of the file, none twice.
result<std::vector<std::int32_t>>
read_ids(const scenario_reading& reading, const std::string& at, const std::string& key,
         const google::protobuf::RepeatedPtrField<std::string>& ids);

/// Requests and actions.
result<void> read_script(scenario_reading& reading);
result<scenario_expectation> read_expectation(const scenario_reading& reading,
                                              const std::string& at, const scenario_pb::Expect& in);

}  // namespace deepinfer
