#include <algorithm>

#include <fmt/format.h>

#include "config/effective.hpp"
#include "config/schema.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

namespace {

constexpr std::size_t origin_column = 48;

/// "engine.depth" -> "engine" and "depth"; a key of the root has no section.
std::pair<std::string, std::string> split_key(const std::string& key) {
  const auto dot = key.find('.');
  return dot == std::string::npos ? std::pair(std::string(), key)
                                  : std::pair(key.substr(0, dot), key.substr(dot + 1));
}

std::string escaped(std::string text) {  // for a cell of a Markdown table
  for (std::size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2)
    text.insert(i, 1, '\\');
  return text;
}

json::value json_value_of(const setting_info& info, const effective_value& value) {
  if (value.text.empty()) return nullptr;
  if (info.is_json_literal) {
    auto literal = parse_json(value.text);
    DI_CHECK(literal, "{}: {} is no JSON: {}", info.key, value.text, literal.error().message);
    return *std::move(literal);
  }
  if (info.is_repeated) return json::array(value.strings.begin(), value.strings.end());
  return json::value(value.strings.empty() ? value.text : value.strings.front());
}

}  // namespace

std::string effective_value::shown() const {
  if (!text.empty()) return text;
  for (const auto& info : all_settings())
    if (info.key == key) return fmt::format("({})", info.absent);
  return {};
}

std::string print_effective(const effective_config& config) {
  std::string out, section;
  for (std::size_t i = 0; i < config.values.size(); ++i) {
    const auto& value = config.values[i];
    const auto [in, name] = split_key(value.key);
    if (in != section) out += fmt::format("{}:\n", section = in);
    const auto indent = in.empty() ? "" : "  ";
    // What is absent or masked is a comment, so that the output is a file that can be loaded again.
    auto line =
      value.is_secret && !value.text.empty() ? fmt::format("{}# {}: {}", indent, name, value.text)
      : value.text.empty() ? fmt::format("{}# {}: ({})", indent, name, all_settings()[i].absent)
                           : fmt::format("{}{}: {}", indent, name, value.text);
    line.resize(std::max(line.size() + 1, origin_column), ' ');
    out += fmt::format("{}# {}\n", line, value.origin);
  }
  return out;
}

std::string print_effective_json(const effective_config& config) {
  json::object out;
  for (std::size_t i = 0; i < config.values.size(); ++i) {
    const auto& value = config.values[i];
    json::object entry;
    entry["value"] = json_value_of(all_settings()[i], value);
    entry["origin"] = value.origin;
    out[value.key] = std::move(entry);
  }
  return to_text(out);
}

std::string settings_reference() {
  std::string out = "# Settings\n\n"
                    "Made by `deepinfer config docs` from `messages/engine.proto`. A flag counts "
                    "before its variable,\n"
                    "the variable before the file, the file before the default.\n\n"
                    "Two more variables name places: `DEEPINFER_CONFIG` the file of settings where "
                    "`--config` is not\n"
                    "given, `DEEPINFER_MODELS` the folder that holds the embedded model "
                    "(`tiny-v41`). What belongs to one\n"
                    "request (`--temperature`, `--top-p`, `--max-tokens` and the like) has no "
                    "variable and no key here;\n"
                    "the help of `deepinfer generate` lists it.\n";
  std::string section = "?";
  for (const auto& info : all_settings()) {
    const auto [in, name] = split_key(info.key);
    if (in != section) {
      section = in;
      out += fmt::format(
        "\n## {}\n\n| key | flag | variable | default | what |\n|---|---|---|---|---|\n",
        in.empty() ? "File" : fmt::format("`{}`", in));
    }
    const bool is_switch = info.value_name.empty();
    auto flag = info.flag.empty() ? std::string("-")
                : is_switch       ? fmt::format("`--[no-]{}`", info.flag)
                                  : fmt::format("`--{} {}`", info.flag, info.value_name);
    for (const auto& alias : info.aliases)
      flag += fmt::format(" or `--{}{}`", is_switch ? "[no-]" : "", alias);
    out += fmt::format("| `{}` | {} | {} | {} | {}; {} |\n", name, escaped(flag),
                       info.variable.empty() ? "-" : fmt::format("`{}`", info.variable),
                       info.default_text.empty() ? fmt::format("({})", info.absent)
                                                 : fmt::format("`{}`", info.default_text),
                       escaped(info.help), escaped(info.expected));
  }
  return out;
}

}  // namespace deepinfer
