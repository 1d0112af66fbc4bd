/// Single fields of any Protobuf message, read and written as text by reflection.
///
/// Shared by the YAML reader, flags, environment and `config print`. Units, limits and help are the
/// field's `setting` option (messages/options.proto); one without it takes any value of its type,
/// one with it no empty text unless the schema says so.
/// Errors say what was found and expected; the caller adds the place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace deepinfer {

/// Sets a scalar field, or appends to a repeated one. Error `bad_config`, or `no_device` for a
/// device that this build refuses.
result<void> set_from_text(google::protobuf::Message& message,
                           const google::protobuf::FieldDescriptor& field, std::string_view text);

/// The value as YAML would spell it; of a repeated field a flow list; "" where it is absent.
std::string text_of(const google::protobuf::Message& message,
                    const google::protobuf::FieldDescriptor& field);

/// What a text field holds, unquoted; nothing for an empty one and for other types.
std::vector<std::string> strings_of(const google::protobuf::Message& message,
                                    const google::protobuf::FieldDescriptor& field);

/// "a whole number from 1 to 3", "one of auto, cpu", ... for messages and help.
std::string expectation_of(const google::protobuf::FieldDescriptor& field);

/// Names of an enum field's values as users write them, without the unspecified one; empty for
/// other types. DEVICE_KIND_AUTO of DeviceKind is "auto".
std::vector<std::string> choices_of(const google::protobuf::FieldDescriptor& field);

/// A string as YAML would have it: plain where that is safe, else in double quotes.
std::string yaml_string(std::string_view text);

}  // namespace deepinfer
