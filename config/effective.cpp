#include "config/effective.hpp"

#include <cstdlib>

#include <fmt/format.h>

#include "config/fields.hpp"
#include "config/nearest.hpp"
#include "config/schema.hpp"
#include "config/yaml_to_proto.hpp"
#include "messages/engine.pb.h"
#include "runtime/base/check.hpp"
#include "runtime/base/file.hpp"

extern char** environ;

namespace deepinfer {

namespace {

/// Sources in rising order of precedence.
enum class source : std::uint8_t { defaults, file, environment, flag };

struct provenance {
  source from = source::defaults;
  std::string place = "default";
};

class merger {
public:
  merger() : origins_(all_settings().size()) {}

  void take_defaults() {
    for (const auto& info : all_settings()) {
      if (info.default_text.empty()) continue;
      const auto done = set_from_text(section_of(root_, info), *info.field, info.default_text);
      DI_CHECK(done, "default of {}: {}", info.key, done.error().message);
    }
  }

  result<void> take_file(const std::string& path) {
    DI_TRY(const std::string text, as_config(read_file(path)));
    yaml_places places;
    const variable_lookup lookup = [](const std::string& name) -> std::optional<std::string> {
      const char* value = std::getenv(name.c_str());
      return value ? std::optional<std::string>(value) : std::nullopt;
    };
    DI_TRY_VOID(yaml_to_proto(text, path, root_, &places, lookup));
    for (std::size_t i = 0; i < origins_.size(); ++i)
      if (const auto found = places.find(all_settings()[i].key); found != places.end())
        origins_[i] = {source::file, found->second};
    return {};
  }

  result<void> take_environment(const std::map<std::string, std::string>& environment) {
    for (std::size_t i = 0; i < origins_.size(); ++i) {
      const auto& info = all_settings()[i];
      const auto found = environment.find(info.variable);
      if (info.variable.empty() || found == environment.end()) continue;
      std::vector<std::string> texts{found->second};
      if (info.is_repeated) texts = split(found->second);
      DI_TRY_VOID(take(i, {source::environment, info.variable}, texts));
    }
    warn_unknown(environment);
    return {};
  }

  result<void> take_flags(const parsed_flags& flags) {
    for (std::size_t i = 0; i < origins_.size(); ++i) {
      const auto found = flags.values.find(all_settings()[i].flag);
      if (found == flags.values.end()) continue;
      DI_TRY_VOID(take(i, {source::flag, "--" + found->first}, found->second));
    }
    return {};
  }

  /// Of two settings that exclude each other the one of the stronger source stays.
  result<void> exclude(const std::string& a, const std::string& b) {
    const auto i = index_of(a), j = index_of(b);
    if (text(i).empty() || text(j).empty()) return {};
    if (origins_[i].from == origins_[j].from)
      return fail(errc::bad_config, fmt::format("{}: {} excludes {} ({})", origins_[i].place, a, b,
                                                origins_[j].place));
    const auto weaker = origins_[i].from < origins_[j].from ? i : j;
    auto& section = section_of(root_, all_settings()[weaker]);
    section.GetReflection()->ClearField(&section, all_settings()[weaker].field);
    origins_[weaker] = {};
    return {};
  }

  result<void> check() {
    DI_TRY_VOID(exclude("engine.num_kv_blocks", "engine.kv_cache_memory"));
    const auto& engine = root_.engine();
    if (engine.max_num_seqs() > engine.max_num_batched_tokens())
      return conflict("engine.max_num_seqs", "engine.max_num_batched_tokens",
                      fmt::format("{} sequences do not fit a step of {} tokens",
                                  engine.max_num_seqs(), engine.max_num_batched_tokens()));
    if (engine.chunk_size() > engine.max_num_batched_tokens() &&
        origins_[index_of("engine.chunk_size")].from != source::defaults)
      return conflict("engine.chunk_size", "engine.max_num_batched_tokens",
                      fmt::format("a chunk of {} tokens does not fit a step of {}",
                                  engine.chunk_size(), engine.max_num_batched_tokens()));
    if (engine.num_drafts() >= engine.max_num_batched_tokens())
      return conflict("engine.num_drafts", "engine.max_num_batched_tokens",
                      fmt::format("a decode row of {} tokens does not fit a step of {}",
                                  1 + engine.num_drafts(), engine.max_num_batched_tokens()));
    DI_TRY_VOID(check_cache());
    DI_TRY_VOID(check_keys());
    return check_network();
  }

  /// An empty key would let everybody in who sends an empty one; nobody has an empty name.
  result<void> check_keys() {
    const auto& place = origins_[index_of("server.api_key")].place;
    for (const auto& key : root_.server().api_key()) {
      const auto* missing = key.ends_with('=') ? "key" : key.starts_with('=') ? "name" : nullptr;
      if (missing)
        return fail(errc::bad_config, fmt::format("{}: server.api_key: found an empty {}, expected "
                                                  "KEY or NAME=KEY",
                                                  place, missing));
    }
    return {};
  }

  result<void> check_network() {
    const auto& actor = root_.actor();
    if (actor.heartbeat_interval() >= actor.connection_timeout())
      return conflict("actor.heartbeat_interval", "actor.connection_timeout",
                      fmt::format("a peer that speaks every {} ms would be dead after {} ms",
                                  actor.heartbeat_interval(), actor.connection_timeout()));
    const std::pair<const char*, bool> parts[] = {
      {"actor.tls_certificate", actor.tls_certificate().empty()},
      {"actor.tls_key", actor.tls_key().empty()},
      {"actor.tls_ca", actor.tls_ca().empty()}};
    for (const auto& [given, is_absent] : parts)
      for (const auto& [missing, is_missing] : parts)
        if (!is_absent && is_missing)
          return conflict(given, missing, "TLS needs certificate, key and ca, all or none of them");
    return {};
  }

  result<void> check_cache() {
    const auto& engine = root_.engine();
    if (engine.prefix_host_blocks() > 0 && !engine.prefix_cache())
      return conflict("engine.prefix_host_blocks", "engine.prefix_cache",
                      "without a prefix cache nothing is kept");
    if (engine.replay() == v1::REPLAY_OFF || !engine.prefix_cache()) return {};
    auto& origin = origins_[index_of("engine.prefix_cache")];
    if (origin.from != source::defaults)
      return conflict("engine.replay", "engine.prefix_cache",
                      "late layers have not seen what a cached prefix would need");
    if (engine.prefix_host_blocks() > 0)
      return conflict("engine.prefix_host_blocks", "engine.replay",
                      "replay turns the prefix cache off, so nothing is kept");
    root_.mutable_engine()->set_prefix_cache(false);
    origin.place =
      fmt::format("because of engine.replay ({})", origins_[index_of("engine.replay")].place);
    return {};
  }

  effective_config finish();

private:
  static std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> items;
    for (std::size_t begin = 0; begin <= list.size();) {
      const auto end = std::min(list.find(',', begin), list.size());
      if (end > begin) items.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
    return items;
  }

  static result<std::string> as_config(result<std::string> text) {
    if (text) return text;
    return fail(errc::bad_config, text.error().message);
  }

  static std::size_t index_of(const std::string& key) {
    for (std::size_t i = 0; i < all_settings().size(); ++i)
      if (all_settings()[i].key == key) return i;
    DI_CHECK(false, "no setting {}", key);
    return 0;
  }

  std::string text(std::size_t i) {
    return text_of(section_of(root_, all_settings()[i]), *all_settings()[i].field);
  }

  result<void> take(std::size_t i, provenance from, const std::vector<std::string>& texts) {
    const auto& info = all_settings()[i];
    auto& section = section_of(root_, info);
    section.GetReflection()->ClearField(&section, info.field);
    for (const auto& value : texts)
      if (auto done = set_from_text(section, *info.field, value); !done)
        return tl::unexpected<error>(std::move(done).error().within(from.place));
    origins_[i] = std::move(from);
    return {};
  }

  result<void> conflict(const std::string& a, const std::string& b, const std::string& what) {
    const auto& from = origins_[index_of(a)];
    const auto& to = origins_[index_of(b)];
    const auto& stronger = to.from > from.from ? to : from;
    return fail(errc::bad_config, fmt::format("{}: {} and {}: {}", stronger.place, a, b, what));
  }

  void warn_unknown(const std::map<std::string, std::string>& environment) {
    // Compared without the prefix that all share: it would make any two of them look alike.
    constexpr std::string_view prefix = "DEEPINFER_";
    std::vector<std::string> known{"CONFIG", "MODELS"};
    for (const auto& info : all_settings())
      if (!info.variable.empty()) known.push_back(info.variable.substr(prefix.size()));
    for (const auto& [name, value] : environment)
      if (name.starts_with(prefix) && !name.starts_with("DEEPINFER_TEST_") &&
          std::find(known.begin(), known.end(), name.substr(prefix.size())) == known.end())
        warnings_.push_back(fmt::format("unknown variable {} in the environment{}", name,
                                        did_you_mean(name.substr(prefix.size()), known, prefix)));
  }

  v1::EngineConfig root_;
  std::vector<provenance> origins_;  ///< one per setting
  std::vector<std::string> warnings_;
};

/// The plain enumerators stand in the schema's order, which begins with an unspecified one.
template <class Plain, class Enum>
Plain in_order(Enum from) {
  return static_cast<Plain>(static_cast<int>(from) - 1);
}

model_settings plain(const v1::ModelSettings& from) {
  model_settings to;
  to.path = from.path();
  to.served_names.assign(from.served_name().begin(), from.served_name().end());
  if (from.has_max_model_len()) to.max_model_len = from.max_model_len();
  to.format = in_order<load_format>(from.load_format());
  to.script = from.script();
  return to;
}

template <class List>
std::vector<std::string> texts_of(const List& from) {
  return {from.begin(), from.end()};
}

server_settings plain(const v1::ServerSettings& from) {
  using std::chrono::milliseconds;
  server_settings to;
  to.host = from.host();
  to.port = static_cast<std::uint16_t>(from.port());
  to.max_queued_requests = from.max_queued_requests();
  to.queue_timeout = milliseconds(from.queue_timeout());
  to.api_keys = texts_of(from.api_key());
  to.api_key_file = from.api_key_file();
  to.open_metrics = from.open_metrics();
  to.cors_origins = texts_of(from.cors_origin());
  to.max_request_bytes = static_cast<std::uint64_t>(from.max_request_bytes());
  to.max_json_depth = from.max_json_depth();
  to.max_n = from.max_n();
  to.max_connections = from.max_connections();
  to.header_timeout = milliseconds(from.header_timeout());
  to.body_timeout = milliseconds(from.body_timeout());
  to.idle_timeout = milliseconds(from.idle_timeout());
  to.keep_alive_interval = milliseconds(from.keep_alive_interval());
  to.eof_is_gone = from.eof_is_gone();
  to.strict_fields = from.strict_fields();
  to.shutdown_timeout = milliseconds(from.shutdown_timeout());
  to.client_window = from.client_window();
  to.slow_consumer_timeout = milliseconds(from.slow_consumer_timeout());
  to.routing = in_order<routing_rule>(from.routing());
  to.fair_shares = from.fair_shares();
  to.nonstream_keep_alive = from.nonstream_keep_alive();
  return to;
}

actor_settings plain(const v1::ActorSettings& from) {
  actor_settings to;
  to.host = from.host();
  to.port = static_cast<std::uint16_t>(from.port());
  to.is_enabled = from.enabled();
  to.peers = texts_of(from.peers());
  to.join = texts_of(from.join());
  to.node_name = from.node_name();
  to.heartbeat_interval = std::chrono::milliseconds(from.heartbeat_interval());
  to.connection_timeout = std::chrono::milliseconds(from.connection_timeout());
  to.tls_certificate = from.tls_certificate();
  to.tls_key = from.tls_key();
  to.tls_ca = from.tls_ca();
  return to;
}

device_kind plain(v1::DeviceKind from) {
  if (from == v1::DEVICE_KIND_CPU) return device_kind::cpu;
  return from == v1::DEVICE_KIND_VIRTUAL ? device_kind::virtual_clock : device_kind::automatic;
}

numeric_setting plain(v1::Numeric from) {
  if (from == v1::NUMERIC_RELEASED) return numeric_setting::released;
  return from == v1::NUMERIC_FAST ? numeric_setting::fast : numeric_setting::exact;
}

kernel_setting plain(v1::KernelSet from) {
  if (from == v1::KERNEL_SET_REFERENCE) return kernel_setting::reference;
  return from == v1::KERNEL_SET_AVX2 ? kernel_setting::avx2 : kernel_setting::automatic;
}

void add_policies(const v1::StepSettings& from, step_settings& to) {
  to.num_drafts = from.num_drafts();
  to.drafter = in_order<drafter_setting>(from.drafter());
  to.acceptance = in_order<acceptance_setting>(from.acceptance());
  to.verify = in_order<verify_setting>(from.verify());
  to.stop_mask = from.stop_mask();
  to.prefix_cache = from.prefix_cache();
  to.resume_stride = from.resume_stride();
  to.prefix_host_blocks = from.prefix_host_blocks();
  to.victim = in_order<victim_setting>(from.victim());
  to.preempt_output = in_order<preempt_setting>(from.preempt_output());
  to.on_step_failure = in_order<failure_setting>(from.on_step_failure());
  to.priority_preempts = from.priority_preempts();
  to.stop_in_reasoning = from.stop_in_reasoning();
  to.min_decode_gap = from.min_decode_gap();
  to.max_prefill_run = from.max_prefill_run();
  to.replay = in_order<replay_setting>(from.replay());
  to.replay_keep_tokens = from.replay_keep_tokens();
}

step_settings plain(const v1::StepSettings& from) {
  step_settings to;
  add_policies(from, to);
  to.max_num_seqs = from.max_num_seqs();
  to.max_num_batched_tokens = from.max_num_batched_tokens();
  to.block_size = from.block_size();
  if (from.has_num_kv_blocks()) to.num_kv_blocks = from.num_kv_blocks();
  if (from.has_kv_cache_memory())
    to.kv_cache_memory = static_cast<std::uint64_t>(from.kv_cache_memory());
  to.depth = from.depth();
  to.chunk_size = from.chunk_size();
  to.mixed_steps = from.mixed_steps();
  to.device = plain(from.device());
  if (from.has_num_threads()) to.num_threads = from.num_threads();
  to.pin_threads = from.pin_threads();
  to.numeric = plain(from.numeric());
  to.kernels = plain(from.kernels());
  if (from.has_seed()) to.seed = from.seed();
  to.sampling_policy = from.sampling_policy() == v1::SAMPLING_POLICY_DEEPSEEK
                         ? sampling_rule::deepseek
                         : sampling_rule::as_requested;
  to.watchdog = std::chrono::milliseconds(from.watchdog());
  to.dp_size = from.dp_size();
  return to;
}

severity plain(v1::LogLevel from) {
  switch (from) {
  case v1::LOG_LEVEL_OFF: return severity::off;
  case v1::LOG_LEVEL_ERROR: return severity::error;
  case v1::LOG_LEVEL_WARNING: return severity::warning;
  case v1::LOG_LEVEL_DEBUG: return severity::debug;
  default: return severity::info;
  }
}

observability_settings plain(const v1::ObservabilitySettings& from) {
  observability_settings to;
  to.level = plain(from.log_level());
  to.format = from.log_format() == v1::LOG_FORMAT_JSON ? log_format::json : log_format::text;
  to.trace_file = from.trace_file();
  to.trace_buffer_steps = from.trace_buffer_steps();
  to.stats_interval = std::chrono::milliseconds(from.stats_interval());
  to.log_requests = in_order<request_logging>(from.log_requests());
  to.metrics_prefix = from.metrics_prefix();
  return to;
}

/// "NAME=KEY" as "NAME=***": who holds a key may be seen, the key may not.
std::string masked(const std::string& secret) {
  const auto equals = secret.find('=');
  return (equals == std::string::npos ? std::string() : secret.substr(0, equals + 1)) + "***";
}

void mask(effective_value& value) {
  value.is_secret = true;
  if (value.strings.empty()) return;
  value.text.clear();
  for (auto& secret : value.strings) {
    secret = masked(secret);
    value.text += (value.text.empty() ? "[" : ", ") + yaml_string(secret);
  }
  value.text += "]";
}

effective_config merger::finish() {
  effective_config out;
  out.settings = {.model = plain(root_.model()),
                  .server = plain(root_.server()),
                  .actor = plain(root_.actor()),
                  .engine = plain(root_.engine()),
                  .observability = plain(root_.observability())};
  for (std::size_t i = 0; i < origins_.size(); ++i) {
    const auto& info = all_settings()[i];
    out.values.push_back({info.key, info.flag, text(i),
                          strings_of(section_of(root_, info), *info.field), origins_[i].place});
    if (info.is_secret) mask(out.values.back());
  }
  out.warnings = std::move(warnings_);
  return out;
}

}  // namespace

result<effective_config> make_effective(const config_sources& sources) {
  merger merged;
  merged.take_defaults();
  if (sources.file) DI_TRY_VOID(merged.take_file(*sources.file));
  DI_TRY_VOID(merged.take_environment(sources.environment));
  DI_TRY_VOID(merged.take_flags(sources.flags));
  DI_TRY_VOID(merged.check());
  return merged.finish();
}

result<void> check_files(const effective_config& config) {
  constexpr std::int64_t longest_pem_bytes = 1 << 20;
  const auto& settings = config.settings;
  const std::pair<std::string_view, const std::string*> files[] = {
    {"server.api_key_file", &settings.server.api_key_file},
    {"actor.tls_certificate", &settings.actor.tls_certificate},
    {"actor.tls_key", &settings.actor.tls_key},
    {"actor.tls_ca", &settings.actor.tls_ca},
    {"model.script", &settings.model.script}};
  for (const auto& [key, path] : files) {
    if (path->empty()) continue;
    // Files of TLS must be regular: to open a pipe that nobody writes would wait for ever.
    const auto text =
      key.starts_with("actor.tls") ? read_small_file(*path, longest_pem_bytes) : read_file(*path);
    if (!text) return fail(errc::bad_config, fmt::format("{}: {}", key, text.error().message));
  }
  return {};
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (text.starts_with("DEEPINFER_") && equals != std::string_view::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace deepinfer
