/// The settings of `messages/engine.proto` as a flat list, read once by reflection.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace deepinfer {

struct setting_info {
  std::string key;       ///< "engine.depth"
  std::string flag;      ///< "depth"; empty = not a flag
  std::string variable;  ///< "DEEPINFER_DEPTH"; empty = none
  std::string help;
  std::string default_text;
  std::string absent;      ///< what an absent value means
  std::string value_name;  ///< "N", "DIR", "auto|cpu"; empty for switches
  std::string expected;    ///< e.g. "a whole number from 1 to 3"
  std::vector<std::string> aliases;
  bool is_repeated = false;
  bool is_secret = false;        ///< never printed
  bool is_json_literal = false;  ///< its text is a JSON number, true or false
  const google::protobuf::FieldDescriptor* section = nullptr;  ///< of the root; null = a root field
  const google::protobuf::FieldDescriptor* field = nullptr;
};

/// In the order of the schema.
const std::vector<setting_info>& all_settings();

/// The message of `root` that holds the setting's field.
google::protobuf::Message& section_of(google::protobuf::Message& root, const setting_info& info);

/// Version of the Protobuf library in use, e.g. "3.21.12".
std::string protobuf_version();

}  // namespace deepinfer
