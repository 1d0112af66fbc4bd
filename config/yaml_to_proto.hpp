/// YAML onto any Protobuf message by reflection. A map is a message, a key a field's name; a key
/// with nothing but comments below it is an empty message. Where a list is expected, a single value
/// is a list of one. For a message that is nothing but a list, the list may stand itself
/// (`picks: [[0, 1], [2, 3]]`); for one with a field `name`, a single value is that name
/// (`never: canary_mismatch`). The keys of a Protobuf map are free, its values scalars.
///
/// Errors are `bad_config` and start with NAME:LINE:COLUMN (from 1): bad syntax, unknown key (with
/// the nearest known one), wrong type, value out of its range, duplicate key, a second document.
/// Limits: 1 MiB of text, 32 levels, 100,000 values after aliases are followed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace deepinfer {

/// Where a value stands, by its key ("engine.depth"; items of a list of messages: "script[2]"):
/// "NAME:LINE:COLUMN".
using yaml_places = std::map<std::string, std::string>;

/// Value of an environment variable, for fields that expand `${NAME}`.
using variable_lookup = std::function<std::optional<std::string>(const std::string&)>;

/// Sets in `out` what `text` names and leaves the rest; a list replaces a repeated field. `out` is
/// unspecified after an error. `places`, where given, gets the place of every scalar or list.
result<void> yaml_to_proto(std::string_view text, const std::string& name,
                           google::protobuf::Message& out, yaml_places* places = nullptr,
                           const variable_lookup& lookup = {});

}  // namespace deepinfer
