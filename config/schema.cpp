#include "config/schema.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/fields.hpp"
#include "messages/engine.pb.h"
#include "runtime/base/check.hpp"

namespace deepinfer {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

namespace {

std::string value_name_of(const FieldDescriptor& field, const v1::Setting& setting) {
  if (!setting.value_name().empty()) return setting.value_name();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return {};
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM)
    return fmt::format("{}", fmt::join(choices_of(field), "|"));
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) return "TEXT";
  if (setting.unit() == v1::UNIT_MILLISECONDS) return "TIME";
  return setting.unit() == v1::UNIT_BYTES ? "SIZE" : "N";
}

setting_info describe(const FieldDescriptor* section, const FieldDescriptor& field) {
  const auto& setting = field.options().GetExtension(v1::setting);
  DI_CHECK(!setting.help().empty(), "{} has no help in the schema", field.full_name());
  setting_info info;
  info.key = section ? section->name() + "." + field.name() : field.name();
  info.flag = setting.flag().empty() ? field.name() : setting.flag();
  std::replace(info.flag.begin(), info.flag.end(), '_', '-');
  if (info.flag == "-") info.flag.clear();  // a key of the file only
  if (!info.flag.empty()) {
    info.variable = "DEEPINFER_" + info.flag;
    for (auto& c : info.variable)
      c = c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  info.help = setting.help();
  info.default_text = setting.default_();
  info.absent = setting.absent();
  info.value_name = value_name_of(field, setting);
  info.expected = expectation_of(field);
  info.aliases.assign(setting.alias().begin(), setting.alias().end());
  info.is_secret = info.key == "server.api_key";
  info.is_repeated = field.is_repeated();
  info.is_json_literal = !field.is_repeated() && setting.unit() == v1::UNIT_UNSPECIFIED &&
                         field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
                         field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM;
  info.section = section;
  info.field = &field;
  return info;
}

std::vector<setting_info> read_schema() {
  std::vector<setting_info> all;
  const auto& root = *v1::EngineConfig::descriptor();
  for (int i = 0; i < root.field_count(); ++i) {
    const auto& section = *root.field(i);
    if (section.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      all.push_back(describe(nullptr, section));
      continue;
    }
    for (int j = 0; j < section.message_type()->field_count(); ++j)
      all.push_back(describe(&section, *section.message_type()->field(j)));
  }
  return all;
}

}  // namespace

const std::vector<setting_info>& all_settings() {
  static const auto settings = read_schema();
  return settings;
}

pb::Message& section_of(pb::Message& root, const setting_info& info) {
  return info.section ? *root.GetReflection()->MutableMessage(&root, info.section) : root;
}

std::string protobuf_version() {
  return pb::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
}

}  // namespace deepinfer
