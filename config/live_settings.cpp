#include "config/live_settings.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/fields.hpp"
#include "config/nearest.hpp"
#include "config/schema.hpp"
#include "messages/engine.pb.h"
#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

/// One setting that may change, and how it gets from one set of settings into another.
struct live_setting {
  const char* key;
  void (*copy)(const engine_settings& from, engine_settings& to);
};

#define DI_LIVE(key, member)                                                                       \
  live_setting {                                                                                   \
    key, [](const engine_settings& from, engine_settings& to) { to.member = from.member; }         \
  }

constexpr std::array live{
  DI_LIVE("server.max_queued_requests", server.max_queued_requests),
  DI_LIVE("server.queue_timeout", server.queue_timeout),
  DI_LIVE("server.routing", server.routing),
  DI_LIVE("server.fair_shares", server.fair_shares),
  DI_LIVE("engine.depth", engine.depth),
  DI_LIVE("engine.victim", engine.victim),
  DI_LIVE("engine.min_decode_gap", engine.min_decode_gap),
  DI_LIVE("engine.max_prefill_run", engine.max_prefill_run),
  DI_LIVE("observability.log_level", observability.level),
  DI_LIVE("observability.stats_interval", observability.stats_interval),
  DI_LIVE("observability.log_requests", observability.log_requests),
};

#undef DI_LIVE

result<const setting_info*> find_setting(const std::string& key) {
  std::vector<std::string> keys;
  for (const auto& info : all_settings()) {
    if (info.key == key) return &info;
    keys.push_back(info.key);
  }
  return fail(
    errc::not_found,
    fmt::format("key: found '{}', which is no setting{}", key, did_you_mean_key(key, keys)), "key");
}

/// The value as the schema spells it, or why it is none.
result<std::string> checked_text(const setting_info& info, const std::string& text) {
  v1::EngineConfig scratch;
  auto& section = section_of(scratch, info);
  if (const auto done = set_from_text(section, *info.field, text); !done)
    return fail(errc::invalid_argument, info.key + ": " + done.error().message, "value");
  return text_of(section, *info.field);
}

}  // namespace

const std::vector<std::string>& live_setting_keys() {
  static const auto keys = [] {
    std::vector<std::string> out;
    for (const auto& it : live) out.emplace_back(it.key);
    return out;
  }();
  return keys;
}

result<setting_change> plan_change(const effective_config& config, const std::string& key,
                                   const std::string& text) {
  DI_TRY(const auto* info, find_setting(key));
  const auto found =
    std::find_if(live.begin(), live.end(), [&](const live_setting& it) { return key == it.key; });
  if (found == live.end())
    return fail(errc::invalid_argument,
                fmt::format("{}: needs a restart; what may change while the node runs is {}", key,
                            fmt::join(live_setting_keys(), ", ")),
                "key");
  DI_TRY(const auto spelled, checked_text(*info, text));
  parsed_flags given;
  given.values[info->flag] = {text};
  DI_TRY(const auto alone, make_effective({.file = {}, .environment = {}, .flags = given}));
  setting_change out{key, {}, spelled, config};
  found->copy(alone.settings, out.next.settings);
  for (auto& value : out.next.values) {
    if (value.key != key) continue;
    out.before = std::exchange(value.text, spelled);
    value.origin = "config set";
    if (!value.strings.empty()) value.strings = {text};
  }
  return out;
}

void note_chosen(effective_config& config, const std::string& key, const std::string& text) {
  const auto info = find_setting(key);
  DI_CHECK(info, "no setting {}", key);
  v1::EngineConfig scratch;
  auto& section = section_of(scratch, **info);
  const auto done = set_from_text(section, *(*info)->field, text);
  DI_CHECK(done, "{}: {}", key, done.error().message);
  for (auto& value : config.values) {
    if (value.key != key || !value.text.empty()) continue;
    value.text = text_of(section, *(*info)->field);
    value.strings = strings_of(section, *(*info)->field);
    value.origin = "chosen at load";
  }
}

}  // namespace deepinfer
