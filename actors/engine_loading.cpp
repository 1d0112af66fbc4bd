#include "actors/engine_loading.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/format.h>

#include "actors/node_control.hpp"
#include "actors/node_state.hpp"
#include "actors/scripted_model.hpp"

namespace deepinfer {
namespace {

result<std::unique_ptr<node>> start_engine(const engine_settings& settings, const std::string& path,
                                           const load_progress& on_progress, node_parts parts) {
  if (settings.model.script.empty())
    return node::load(settings, path, on_progress, nullptr, std::move(parts));
  std::vector<rank_machines> replicas;
  node_facts facts;
  const auto count = std::max(1, settings.engine.dp_size);
  for (std::int32_t i = 0; i < count; ++i) {
    DI_TRY(auto scripted, load_script(settings, path));
    replicas.push_back(std::move(scripted.machines));
    facts = std::move(scripted.facts);
  }
  facts.num_kv_blocks *= count;
  facts.threads *= count;
  return node::start(settings, std::move(replicas), std::move(facts), std::move(parts));
}

std::int64_t seconds_since_1970() {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

/// Of all replicas, as the gauges of blocks are.
void tell_cache(metrics& counts, const node_facts& facts, const engine_settings& settings) {
  counts.set(metric::cache_config_info, 1,
             {std::to_string(facts.block_size), std::to_string(facts.num_kv_blocks),
              settings.engine.prefix_cache ? "true" : "false"});
}

/// What the settings left to the engine: whoever asks for them is told what holds.
void note_choices(live_config& config, const node_facts& facts) {
  const auto note = [&config](const char* key, const auto& value) {
    config.note_chosen(key, fmt::format("{}", value));
  };
  note("model.path", facts.model_path);
  note("model.served_name", facts.model_name);
  note("model.max_model_len", facts.max_model_len);
  note("engine.num_kv_blocks", facts.num_kv_blocks / std::max(1, facts.replicas));
  note("engine.num_threads", facts.threads);
}

}  // namespace

result<std::unique_ptr<node>> load_engine(std::shared_ptr<live_config> config,
                                          const std::string& path, const load_progress& on_progress,
                                          node_parts parts) {
  const auto settings = config->settings();
  DI_TRY(auto engine, start_engine(settings, path, on_progress, std::move(parts)));
  note_choices(*config, engine->facts());
  auto& inside = engine->inside();
  control_links links;
  const auto intake = inside.replicas.front()->machines.intake;
  auto model =
    model_info_of(engine->facts(), settings, intake->facts().vocab_size, seconds_since_1970());
  if (auto* counts = inside.parts.counts.get()) {
    counts->name_model(model.names.front());
    tell_cache(*counts, engine->facts(), settings);
  }
  for (const auto& it : inside.replicas) links.ranks.push_back(it->supervisor);
  links.config = std::move(config);
  links.desk = std::make_shared<node_desk>(std::move(model), intake, links.config);
  links.counts = inside.parts.counts;
  links.neighbours = inside.neighbours;
  links.spans = inside.spans;
  links.door = inside.door;
  std::vector<gateway_actor> gateways;
  for (const auto& it : inside.replicas) gateways.push_back(it->gateway);
  links.on_doors_changed = [door = inside.door, gateways](const engine_settings& now) {
    tell_from_outside(door, now);
    for (const auto& it : gateways) tell_from_outside(it, now);
  };
  inside.set_control(inside.system().spawn(node_control, std::move(links)));
  return engine;
}

}  // namespace deepinfer
