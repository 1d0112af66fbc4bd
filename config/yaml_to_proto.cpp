#include "config/yaml_to_proto.hpp"

#include <set>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "config/fields.hpp"
#include "config/nearest.hpp"
#include "messages/options.pb.h"

namespace deepinfer {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

namespace {

constexpr std::size_t max_text_bytes = 1 << 20;
constexpr int max_levels = 32;
constexpr int max_values = 100'000;

class reader {
public:
  reader(const std::string& name, yaml_places* places, const variable_lookup& lookup)
    : name_(name),
      places_(places),
      lookup_(lookup) {}

  result<void> read_message(const YAML::Node& map, const YAML::Mark& from, pb::Message& out,
                            const std::string& prefix, int level) {
    if (level > max_levels) return wrong(from, "", "more than {} levels", max_levels);
    if (const auto* field = stand_in(map, *out.GetDescriptor()))
      return read_field(map, from, out, *field, prefix, level);
    if (!map.IsMap())
      return wrong(from, prefix, "found {}, expected a map of settings", kind_of(map));
    std::set<std::string> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar())
        return wrong(entry.first.Mark(), prefix, "found {} as a key, expected text",
                     kind_of(entry.first));
      const auto& key = entry.first.Scalar();
      const auto* field = out.GetDescriptor()->FindFieldByName(key);
      if (!field) return unknown_key(entry.first, out, prefix);
      const auto path = prefix.empty() ? key : prefix + "." + key;
      if (!seen.insert(key).second)
        return wrong(entry.first.Mark(), path, "the key is there twice");
      // An empty value has no place of its own: yaml-cpp gives that of whatever follows.
      const auto mark = entry.second.IsNull() ? entry.first.Mark() : entry.second.Mark();
      DI_TRY_VOID(read_field(entry.second, mark, out, *field, path, level));
    }
    return {};
  }

private:
  /// The field that a list or a single value in place of a map fills: the list a message is nothing
  /// but, or for a single value its `name`. Null: there is none, or the value is a map.
  static const FieldDescriptor* stand_in(const YAML::Node& node, const pb::Descriptor& type) {
    if (node.IsMap() || node.IsNull()) return nullptr;
    const bool is_list = type.field_count() == 1 && type.field(0)->is_repeated();
    if (is_list && !type.field(0)->is_map()) return type.field(0);
    const auto* name = node.IsScalar() ? type.FindFieldByName("name") : nullptr;
    const bool is_text = name && name->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    return is_text && !name->is_repeated() ? name : nullptr;
  }

  result<void> read_field(const YAML::Node& node, const YAML::Mark& mark, pb::Message& out,
                          const FieldDescriptor& field, const std::string& path, int level) {
    if (++values_ > max_values) return wrong(mark, path, "more than {} values", max_values);
    const bool is_section =
      field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated();
    if (is_section) {
      auto& section = *out.GetReflection()->MutableMessage(&out, &field);
      if (node.IsNull()) return {};  // a section of comments only
      return read_message(node, mark, section, path, level + 1);
    }
    if (places_) places_->insert_or_assign(path, place(mark));
    if (!field.is_repeated()) return read_scalar(node, mark, out, field, path);
    out.GetReflection()->ClearField(&out, &field);
    if (field.is_map()) return read_map(node, mark, out, field, path);
    const bool is_scalar = field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
    if (!node.IsSequence())
      return read_item(node, mark, out, field, is_scalar ? path : path + "[0]", level);
    for (std::size_t i = 0; i < node.size(); ++i) {
      if (++values_ > max_values) return wrong(mark, path, "more than {} values", max_values);
      DI_TRY_VOID(read_item(node[i], node[i].Mark(), out, field,
                            is_scalar ? path : fmt::format("{}[{}]", path, i), level));
    }
    return {};
  }

  /// A map of scalars, its keys free.
  result<void> read_map(const YAML::Node& node, const YAML::Mark& mark, pb::Message& out,
                        const FieldDescriptor& field, const std::string& path) {
    if (!node.IsMap()) return wrong(mark, path, "found {}, expected a map", kind_of(node));
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (++values_ > max_values) return wrong(mark, path, "more than {} values", max_values);
      auto& item = *out.GetReflection()->AddMessage(&out, &field);
      const auto key_mark = entry.first.Mark();
      const auto* type = item.GetDescriptor();
      DI_TRY_VOID(read_scalar(entry.first, key_mark, item, *type->map_key(), path));
      const auto key_path = path + "." + entry.first.Scalar();
      if (!seen.insert(entry.first.Scalar()).second)
        return wrong(key_mark, key_path, "the key is there twice");
      const auto value_mark = entry.second.IsNull() ? key_mark : entry.second.Mark();
      DI_TRY_VOID(read_scalar(entry.second, value_mark, item, *type->map_value(), key_path));
    }
    return {};
  }

  result<void> read_item(const YAML::Node& node, const YAML::Mark& mark, pb::Message& out,
                         const FieldDescriptor& field, const std::string& path, int level) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE)
      return read_scalar(node, mark, out, field, path);
    if (places_) places_->insert_or_assign(path, place(mark));
    return read_message(node, mark, *out.GetReflection()->AddMessage(&out, &field), path,
                        level + 1);
  }

  result<void> read_scalar(const YAML::Node& node, const YAML::Mark& mark, pb::Message& out,
                           const FieldDescriptor& field, const std::string& path) {
    if (!node.IsScalar())
      return wrong(mark, path, "found {}, expected {}", kind_of(node), expectation_of(field));
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    // yaml-cpp tags quoted scalars "!": "3" in quotes is text, not a number.
    if (!is_text && node.Tag() == "!" && field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM)
      return wrong(mark, path, "found the text \"{}\", expected {}", node.Scalar().substr(0, 100),
                   expectation_of(field));
    if (!is_text) return placed(mark, path, set_from_text(out, field, node.Scalar()));
    auto value = expanded(node.Scalar(), field);
    if (!value) return placed(mark, path, tl::unexpected<error>(std::move(value).error()));
    return placed(mark, path, set_from_text(out, field, *value));
  }

  /// Replaces `${NAME}` where the field allows it.
  result<std::string> expanded(const std::string& text, const FieldDescriptor& field) const {
    auto begin = text.find("${");
    if (begin == std::string::npos) return text;
    if (!field.options().GetExtension(v1::setting).expands_variables())
      return fail(errc::bad_config,
                  fmt::format("found '{}', but ${{...}} is not replaced in this setting", text));
    std::string out;
    std::size_t done = 0;
    for (; begin != std::string::npos; begin = text.find("${", done)) {
      const auto end = text.find('}', begin);
      if (end == std::string::npos)
        return fail(errc::bad_config, fmt::format("found '{}', expected a '}}' after '${{'", text));
      const auto variable = text.substr(begin + 2, end - begin - 2);
      const auto value = lookup_ ? lookup_(variable) : std::nullopt;
      if (!value)
        return fail(errc::bad_config,
                    fmt::format("the environment has no variable '{}'", variable));
      (out += text.substr(done, begin - done)) += *value;
      done = end + 1;
    }
    return out += text.substr(done);
  }

  result<void> unknown_key(const YAML::Node& key, const pb::Message& out,
                           const std::string& prefix) {
    const auto& type = *out.GetDescriptor();
    std::vector<std::string> names;
    for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
    const auto near = did_you_mean(key.Scalar(), names);
    return wrong(key.Mark(), prefix, "unknown key '{}'{}", key.Scalar().substr(0, 100),
                 near.empty() ? fmt::format("; known are {}", fmt::join(names, ", ")) : near);
  }

  std::string place(const YAML::Mark& mark) const {
    return mark.is_null() ? name_ : fmt::format("{}:{}:{}", name_, mark.line + 1, mark.column + 1);
  }

  result<void> placed(const YAML::Mark& mark, const std::string& path, result<void> done) const {
    if (done) return done;
    return tl::unexpected<error>(std::move(done).error().within(path).within(place(mark)));
  }

  template <class... Args>
  result<void> wrong(const YAML::Mark& mark, const std::string& path,
                     fmt::format_string<Args...> format, Args&&... args) const {
    auto message = fmt::format(format, std::forward<Args>(args)...);
    if (!path.empty()) message.insert(0, path + ": ");
    return fail(errc::bad_config, place(mark) + ": " + message);
  }

  static std::string_view kind_of(const YAML::Node& node) {
    if (node.IsMap()) return "a map";
    if (node.IsSequence()) return "a list";
    return node.IsScalar() ? "a single value" : "nothing";
  }

  const std::string& name_;
  yaml_places* places_;
  const variable_lookup& lookup_;
  int values_ = 0;
};

/// Takes no notice of anything but where a document starts.
class document_watcher : public YAML::EventHandler {
public:
  YAML::Mark start() const { return start_; }

  void OnDocumentStart(const YAML::Mark& mark) override { start_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

private:
  YAML::Mark start_ = YAML::Mark::null_mark();
};

/// Where a second document, or text that belongs to none, starts. yaml-cpp's own LoadAll must not
/// see such text: at a stray "," or "]" it makes empty documents until memory ends.
std::optional<YAML::Mark> second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  document_watcher watcher;
  if (!parser.HandleNextDocument(watcher) || !parser.HandleNextDocument(watcher)) return {};
  return watcher.start();
}

}  // namespace

result<void> yaml_to_proto(std::string_view text, const std::string& name, pb::Message& out,
                           yaml_places* places, const variable_lookup& lookup) {
  if (text.size() > max_text_bytes)
    return fail(errc::bad_config, fmt::format("{}: {} bytes, at most {} are read", name,
                                              text.size(), max_text_bytes));
  try {
    const std::string copy(text);
    if (const auto mark = second_document(copy))
      return fail(errc::bad_config,
                  fmt::format("{}:{}:{}: found text after the end of the document, expected none",
                              name, mark->line + 1, mark->column + 1));
    const auto document = YAML::Load(copy);
    if (!document.IsDefined() || document.IsNull()) return {};
    return reader(name, places, lookup).read_message(document, document.Mark(), out, "", 1);
  } catch (const YAML::Exception& problem) {
    const auto& mark = problem.mark;
    return fail(errc::bad_config, mark.is_null() ? fmt::format("{}: {}", name, problem.msg)
                                                 : fmt::format("{}:{}:{}: {}", name, mark.line + 1,
                                                               mark.column + 1, problem.msg));
  } catch (const std::exception& problem) {
    return fail(errc::bad_config, fmt::format("{}: {}", name, problem.what()));
  }
}

}  // namespace deepinfer
