#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/remote_flags.hpp"
#include "config/nearest.hpp"
#include "config/schema.hpp"
#include "messages/wire.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {
namespace {

/// What is not there has a meaning, which the schema says.
std::string shown(std::string_view key, const json::value& value) {
  if (value.is_string()) return std::string(value.get_string());
  if (!value.is_null()) return to_text(value);
  for (const auto& info : all_settings())
    if (info.key == key) return fmt::format("({})", info.absent);
  return "(nothing)";
}

/// Of the settings of a node those that are asked for: one, a section, or all.
result<json::object> pick(const json::object& all, const std::optional<std::string>& key) {
  if (!key) return all;
  json::object out;
  std::vector<std::string> keys;
  for (const auto& [name, entry] : all) {
    keys.emplace_back(name);
    if (name == *key || name.starts_with(*key + ".")) out[name] = entry;
  }
  if (!out.empty()) return out;
  return fail(errc::bad_config,
              fmt::format("found '{}', which is no setting{}", *key, did_you_mean_key(*key, keys)));
}

result<int> get(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto engine, connect_remote(context, flags));
  DI_TRY(const auto bytes, engine.call(verb::config_get, {}));
  DI_TRY(const auto reply, from_wire<text_reply>(bytes));
  DI_TRY(const auto all, parse_json(reply.text), "the node's settings");
  if (!all.is_object())
    return fail(errc::internal, "the node's settings: found no object, expected one");
  const auto key =
    flags.positionals.empty() ? std::nullopt : std::optional(flags.positionals.front());
  DI_TRY(const auto picked, pick(all.as_object(), key));
  if (flags.is_on("json")) {
    fmt::print(context.out, "{}\n", to_text(picked));
    return 0;
  }
  for (const auto& [name, entry] : picked) {
    const auto* value = entry.is_object() ? entry.as_object().if_contains("value") : nullptr;
    const auto* origin = entry.is_object() ? entry.as_object().if_contains("origin") : nullptr;
    if (!value || !origin || !origin->is_string()) continue;
    fmt::print(context.out, "{:<36} {:<20} # {}\n", std::string_view(name), shown(name, *value),
               std::string_view(origin->as_string()));
  }
  return 0;
}

result<int> set(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto engine, connect_remote(context, flags));
  const config_change change{flags.positionals[0], flags.positionals[1]};
  auto answer = engine.call(verb::config_set, to_wire(change));
  // A word that is no setting is a mistake of who typed it, whoever has found it.
  if (!answer && answer.error().code == errc::not_found && answer.error().param == "key")
    return fail(errc::bad_config, answer.error().message);
  DI_TRY(const auto bytes, std::move(answer));
  DI_TRY(const auto reply, from_wire<text_reply>(bytes));
  fmt::print(context.out, "{}\n", reply.text);
  return 0;
}

}  // namespace

command config_get_command() {
  auto flags = remote_flags();
  flags.insert(flags.begin(), {.name = "json", .help = "one JSON object"});
  return {.name = "config get",
          .summary = "print the settings that hold in a running node; keys of clients are masked",
          .positionals = "[KEY|SECTION]",
          .positionals_max = 1,
          .flags = std::move(flags),
          .run = get};
}

command config_set_command() {
  return {.name = "config set",
          .summary = "change a setting of a running node, until it stops",
          .positionals = "KEY VALUE",
          .positionals_min = 2,
          .positionals_max = 2,
          .flags = remote_flags(),
          .run = set};
}

}  // namespace deepinfer
