#include <doctest/doctest.h>

#include <google/protobuf/descriptor.h>

#include "messages/api.pb.h"
#include "messages/engine.pb.h"
#include "messages/trace.pb.h"
#include "runtime/base/file.hpp"

using namespace deepinfer;

namespace {

/// Name, number, type of every field and value, without comments, options and defaults: what must
/// stay for old bytes and files to keep their meaning.
std::string outline(const google::protobuf::Descriptor& type) {
  std::string out = "message " + type.full_name() + "\n";
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& f = *type.field(i);
    std::string kind = f.type_name();
    if (f.message_type()) kind = f.message_type()->full_name();
    if (f.enum_type()) kind = f.enum_type()->full_name();
    out += "  " + std::to_string(f.number()) + " " + (f.is_repeated() ? "repeated " : "") +
           (f.has_presence() ? "optional " : "") + kind + " " + f.name() + "\n";
  }
  for (int i = 0; i < type.reserved_range_count(); ++i)
    out += "  reserved " + std::to_string(type.reserved_range(i)->start) + " to " +
           std::to_string(type.reserved_range(i)->end - 1) + "\n";
  for (int i = 0; i < type.reserved_name_count(); ++i)
    out += "  reserved " + type.reserved_name(i) + "\n";
  for (int i = 0; i < type.nested_type_count(); ++i) out += outline(*type.nested_type(i));
  return out;
}

std::string outline(const google::protobuf::FileDescriptor& file) {
  std::string out = "file " + file.name() + "\n";
  for (int i = 0; i < file.enum_type_count(); ++i) {
    const auto& type = *file.enum_type(i);
    out += "enum " + type.full_name() + "\n";
    for (int j = 0; j < type.value_count(); ++j)
      out += "  " + std::to_string(type.value(j)->number()) + " " + type.value(j)->name() + "\n";
  }
  for (int i = 0; i < file.message_type_count(); ++i) out += outline(*file.message_type(i));
  return out;
}

}  // namespace

TEST_CASE("numbers, names and types of the schema are those that were committed") {
  const auto now = outline(*v1::GenerateRequest::descriptor()->file()) +
                   outline(*v1::EngineConfig::descriptor()->file()) +
                   outline(*v1::StepTrace::descriptor()->file());
  const std::string path = DI_SOURCE_DIR "/tests/golden/messages/schema.txt";
  if (std::getenv("DEEPINFER_TEST_UPDATE_GOLDEN")) REQUIRE(write_file(path, now));
  const auto committed = read_file(path);
  REQUIRE(committed);
  const bool is_same = *committed == now;
  CHECK_MESSAGE(is_same,
                "the schema changed; adding a field is fine, then rewrite the file with "
                "DEEPINFER_TEST_UPDATE_GOLDEN=1; a changed or reused number is not\n",
                now);
}

TEST_CASE("value zero of every enum is the unspecified one, so that absent is never a choice") {
  for (const auto* file :
       {v1::GenerateRequest::descriptor()->file(), v1::EngineConfig::descriptor()->file(),
        v1::StepTrace::descriptor()->file()})
    for (int i = 0; i < file->enum_type_count(); ++i) {
      const auto* zero = file->enum_type(i)->FindValueByNumber(0);
      REQUIRE(zero);
      CHECK(zero->name().ends_with("_UNSPECIFIED"));
    }
}
