#include "config/scenario_cases.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "config/nearest.hpp"
#include "config/scenario_read.hpp"

namespace deepinfer {

namespace {

/// Calls `visit` with every field of two settings.
template <class A, class B, class Visit>
void for_each_field(A& a, B& b, Visit visit) {
  visit(a.depth, b.depth);
  visit(a.ranks, b.ranks);
  visit(a.num_drafts, b.num_drafts);
  visit(a.draft_overhang, b.draft_overhang);
  visit(a.block_size, b.block_size);
  visit(a.chunk_size, b.chunk_size);
  visit(a.max_num_batched_tokens, b.max_num_batched_tokens);
  visit(a.num_kv_blocks, b.num_kv_blocks);
  visit(a.prefix_cache, b.prefix_cache);
  visit(a.mixed_steps, b.mixed_steps);
  visit(a.verify, b.verify);
  visit(a.preempt_output, b.preempt_output);
  visit(a.victim, b.victim);
  visit(a.quorum, b.quorum);
  visit(a.min_decode_gap, b.min_decode_gap);
  visit(a.jitter_us, b.jitter_us);
  visit(a.step_time_us, b.step_time_us);
  visit(a.accept, b.accept);
}

/// What settings replace values of.
struct replaced {
  scenario_engine& engine;
  scenario_model& model;
  scenario_device& device;
};

template <class Value>
void replace(Value& value, const std::optional<Value>& by) {
  if (by) value = *by;
}

void apply(const case_settings& settings, const replaced& to) {
  auto& engine = to.engine;
  replace(engine.depth, settings.depth);
  replace(engine.ranks, settings.ranks);
  replace(engine.num_drafts, settings.num_drafts);
  replace(engine.draft_overhang, settings.draft_overhang);
  replace(engine.block_size, settings.block_size);
  replace(engine.chunk_size, settings.chunk_size);
  replace(engine.max_num_batched_tokens, settings.max_num_batched_tokens);
  replace(engine.num_kv_blocks, settings.num_kv_blocks);
  replace(engine.prefix_cache, settings.prefix_cache);
  replace(engine.mixed_steps, settings.mixed_steps);
  replace(engine.verify, settings.verify);
  replace(engine.policy.preempt_output, settings.preempt_output);
  replace(engine.policy.victim, settings.victim);
  replace(engine.vote.quorum, settings.quorum);
  replace(engine.vote.min_decode_gap, settings.min_decode_gap);
  replace(to.device.jitter_us, settings.jitter_us);
  replace(to.device.step_time_us, settings.step_time_us);
  replace(to.model.accept, settings.accept);
}

scenario_case make_case(const scenario& of, std::string name, const case_settings& settings) {
  scenario_case out{std::move(name), settings, of.engine, of.model, of.device};
  apply(settings, {out.engine, out.model, out.device});
  return out;
}

std::vector<std::string_view> words_of(std::string_view text, char between) {
  std::vector<std::string_view> out;
  int brackets = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++brackets;
    if (i < text.size() && text[i] == ']') --brackets;
    if (i < text.size() && (text[i] != between || brackets > 0)) continue;
    if (i > begin) out.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return out;
}

}  // namespace

std::vector<scenario_case> cases_of(const scenario& of) {
  std::vector<scenario_case> out;
  std::vector<std::size_t> picked(of.axes.size());
  for (;;) {
    std::string name;
    case_settings settings;
    for (std::size_t i = 0; i < of.axes.size(); ++i) {
      const auto& axis = of.axes[i];
      name += fmt::format("{}{}={}", i > 0 ? " " : "", axis.key, axis.texts[picked[i]]);
      for_each_field(settings, axis.values[picked[i]], [](auto& to, const auto& from) {
        if (from) to = from;
      });
    }
    out.push_back(make_case(of, std::move(name), settings));
    auto last = of.axes.size();
    while (last > 0 && ++picked[last - 1] == of.axes[last - 1].values.size()) picked[--last] = 0;
    if (last == 0) return out;
  }
}

std::vector<scenario_case> shadows_of(const scenario& of, const scenario_case& it) {
  std::vector<scenario_case> out;
  for (const auto& shadow : of.shadows) {
    auto other = it;
    other.settings = shadow;
    apply(shadow, {other.engine, other.model, other.device});
    if (other.engine == it.engine && other.model == it.model && other.device == it.device) continue;
    out.push_back(std::move(other));
  }
  return out;
}

scenario_case seeded(const scenario& of, scenario_case it, std::uint64_t seed) {
  it.model.seed += seed - of.seed;
  return it;
}

bool holds_for(const case_settings& only_for, const case_settings& it) {
  bool holds = true;
  for_each_field(only_for, it, [&holds](const auto& wanted, const auto& found) {
    if (wanted && wanted != found) holds = false;
  });
  return holds;
}

result<void> check_case(std::string_view wanted) {
  const auto* schema = scenario_pb::Overrides::descriptor();
  std::vector<std::string> keys;
  for (int i = 0; i < schema->field_count(); ++i) keys.emplace_back(schema->field(i)->name());
  for (const auto pair : words_of(wanted, ',')) {
    const auto equals = pair.find('=');
    const std::string key(pair.substr(0, equals));
    const bool is_known = std::find(keys.begin(), keys.end(), key) != keys.end();
    if (is_known && equals != std::string_view::npos && equals + 1 < pair.size()) continue;
    return fail(errc::bad_config,
                fmt::format("found '{}', expected KEY=VALUE,... with keys of a matrix, such as "
                            "depth=2{}",
                            pair, is_known ? "" : did_you_mean(key, keys)));
  }
  return {};
}

bool matches_case(std::string_view wanted, std::string_view name) {
  const auto words = words_of(name, ' ');
  const auto pairs = words_of(wanted, ',');
  return std::all_of(pairs.begin(), pairs.end(), [&](std::string_view pair) {
    return std::find(words.begin(), words.end(), pair) != words.end();
  });
}

}  // namespace deepinfer
