#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/fields.hpp"
#include "config/scenario_read.hpp"
#include "config/units.hpp"

namespace deepinfer {

namespace {

template <class Repeated>
auto to_vector(const Repeated& list) {
  return std::vector<typename Repeated::value_type>(list.begin(), list.end());
}

scenario_eplb read_eplb(const scenario_pb::Eplb& in) {
  scenario_eplb out;
  if (in.has_window()) out.window = in.window();
  if (in.has_period()) out.period = in.period();
  if (in.has_slots_per_rank()) out.slots_per_rank = in.slots_per_rank();
  if (in.has_max_moves()) out.max_moves = in.max_moves();
  if (in.has_planner()) out.planner = plain_enum<scenario_planner>(in.planner());
  if (in.has_min_gain()) out.min_gain = in.min_gain();
  if (in.has_stage_timeout()) out.stage_timeout_us = in.stage_timeout();
  return out;
}

/// Adds an axis of `list`, where it is not empty; `set` puts a value into its settings.
template <class List, class Set, class Text>
void add_axis(std::vector<matrix_axis>& out, const char* key, const List& list, Set set,
              Text text) {
  if (list.empty()) return;
  matrix_axis axis;
  axis.key = key;
  for (const auto& value : list) {
    set(axis.values.emplace_back(), value);
    axis.texts.push_back(text(value));
  }
  out.push_back(std::move(axis));
}

std::string written(bool value) {
  return value ? "true" : "false";
}

std::string choice(const char* key, int value) {
  const auto& type = *scenario_pb::Overrides::descriptor()->FindFieldByName(key);
  return choices_of(type)[static_cast<std::size_t>(value) - 1];
}

}  // namespace

scenario_policy read_policy(const scenario_pb::Policy& in, scenario_policy out) {
  if (in.has_victim()) out.victim = plain_enum<scenario_victim>(in.victim());
  if (in.has_preempt_output())
    out.preempt_output = plain_enum<scenario_preempt_output>(in.preempt_output());
  if (in.has_on_step_failure())
    out.on_step_failure = plain_enum<scenario_step_failure>(in.on_step_failure());
  if (in.has_priority_preempts()) out.priority_preempts = in.priority_preempts();
  if (in.has_stop_in_reasoning()) out.stop_in_reasoning = in.stop_in_reasoning();
  return out;
}

scenario_vote read_vote(const scenario_pb::Vote& in, scenario_vote out) {
  if (in.has_rule()) out.rule = plain_enum<scenario_vote_rule>(in.rule());
  if (in.has_quorum()) out.quorum = in.quorum();
  if (in.has_max_delay()) out.max_delay = in.max_delay();
  if (in.has_min_decode_gap()) out.min_decode_gap = in.min_decode_gap();
  if (in.has_used_share_max()) out.used_share_max = in.used_share_max();
  if (in.has_all_period()) out.all_period = in.all_period();
  if (in.has_any_period()) out.any_period = in.any_period();
  if (in.has_timeout()) out.timeout_us = in.timeout();
  return out;
}

scenario_engine read_engine(const scenario_pb::EngineSetup& in) {
  scenario_engine out;
  if (in.has_depth()) out.depth = in.depth();
  if (in.has_ranks()) out.ranks = in.ranks();
  if (in.has_groups()) out.groups = in.groups();
  if (in.has_num_kv_blocks()) out.num_kv_blocks = in.num_kv_blocks();
  if (in.has_block_size()) out.block_size = in.block_size();
  out.rank_kv_blocks = to_vector(in.rank_kv_blocks());
  if (in.has_state_slots()) out.state_slots = in.state_slots();
  if (in.has_max_num_seqs()) out.max_num_seqs = in.max_num_seqs();
  if (in.has_max_num_batched_tokens()) out.max_num_batched_tokens = in.max_num_batched_tokens();
  if (in.has_chunk_size()) out.chunk_size = in.chunk_size();
  if (in.has_max_model_len()) out.max_model_len = in.max_model_len();
  if (in.has_prefix_cache()) out.prefix_cache = in.prefix_cache();
  if (in.has_mixed_steps()) out.mixed_steps = in.mixed_steps();
  if (in.has_num_drafts()) out.num_drafts = in.num_drafts();
  if (in.has_draft_overhang()) out.draft_overhang = in.draft_overhang();
  if (in.has_stop_mask()) out.stop_mask = in.stop_mask();
  if (in.has_draft_trim()) out.draft_trim = plain_enum<scenario_draft_trim>(in.draft_trim());
  if (in.has_verify()) out.verify = plain_enum<scenario_verify>(in.verify());
  out.verify_curve_us.insert(in.verify_curve().begin(), in.verify_curve().end());
  out.graph_buckets = to_vector(in.graph_buckets());
  if (in.has_warm_up()) out.warm_up = in.warm_up();
  if (in.has_watchdog()) out.watchdog_us = in.watchdog();
  if (in.has_client_credit()) out.client_credit = in.client_credit();
  out.policy = read_policy(in.policy(), {});
  out.vote = read_vote(in.vote(), {});
  out.eplb = read_eplb(in.eplb());
  return out;
}

scenario_model read_model(const scenario_pb::ModelSetup& in) {
  scenario_model out;
  if (in.has_vocab()) out.vocab = in.vocab();
  if (in.has_seed()) out.seed = in.seed();
  out.accept = to_vector(in.accept());
  out.confidence = to_vector(in.confidence());
  if (in.has_window()) out.window = in.window();
  if (in.has_ratio()) out.ratio = in.ratio();
  if (!in.has_experts()) return out;
  auto& experts = out.experts.emplace();
  experts.layers = in.experts().layers();
  experts.experts = in.experts().experts();
  experts.top_k = in.experts().top_k();
  for (const auto& pick : in.experts().picks()) experts.picks.push_back(to_vector(pick.experts()));
  return out;
}

scenario_device read_device(const scenario_pb::DeviceSetup& in) {
  scenario_device out;
  if (in.has_step_time()) out.step_time_us = in.step_time();
  out.copy_in_us = in.copy_in();
  out.sample_us = in.sample();
  out.copy_out_us = in.copy_out();
  out.plan_time_us = in.plan_time();
  out.settle_time_us = in.settle_time();
  out.exchange_time_us = in.exchange_time();
  out.jitter_us = in.jitter();
  out.start_delay_us.insert(in.start_delay().begin(), in.start_delay().end());
  for (const auto& it : in.delay()) {
    auto& delay = out.delays.emplace_back();
    if (it.has_step()) delay.step = it.step();
    if (it.has_rank()) delay.rank = it.rank();
    if (it.has_phase()) delay.phase = plain_enum<scenario_phase>(it.phase());
    delay.by_us = it.by();
  }
  for (const auto& it : in.fault()) {
    auto& fault = out.faults.emplace_back();
    if (it.has_phase()) fault.phase = plain_enum<scenario_phase>(it.phase());
    if (it.has_step()) fault.step = it.step();
    if (it.has_rank()) fault.rank = it.rank();
    if (it.has_kind()) fault.kind = plain_enum<scenario_fault_kind>(it.kind());
    if (it.has_times()) fault.times = it.times();
  }
  return out;
}

case_settings read_settings(const scenario_pb::Overrides& in) {
  case_settings out;
  if (in.has_depth()) out.depth = in.depth();
  if (in.has_ranks()) out.ranks = in.ranks();
  if (in.has_num_drafts()) out.num_drafts = in.num_drafts();
  if (in.has_draft_overhang()) out.draft_overhang = in.draft_overhang();
  if (in.has_block_size()) out.block_size = in.block_size();
  if (in.has_chunk_size()) out.chunk_size = in.chunk_size();
  if (in.has_max_num_batched_tokens()) out.max_num_batched_tokens = in.max_num_batched_tokens();
  if (in.has_num_kv_blocks()) out.num_kv_blocks = in.num_kv_blocks();
  if (in.has_prefix_cache()) out.prefix_cache = in.prefix_cache();
  if (in.has_mixed_steps()) out.mixed_steps = in.mixed_steps();
  if (in.has_verify()) out.verify = plain_enum<scenario_verify>(in.verify());
  if (in.has_preempt_output())
    out.preempt_output = plain_enum<scenario_preempt_output>(in.preempt_output());
  if (in.has_victim()) out.victim = plain_enum<scenario_victim>(in.victim());
  if (in.has_quorum()) out.quorum = in.quorum();
  if (in.has_min_decode_gap()) out.min_decode_gap = in.min_decode_gap();
  if (in.has_jitter()) out.jitter_us = in.jitter();
  if (in.has_step_time()) out.step_time_us = in.step_time();
  if (in.has_accept()) out.accept = to_vector(in.accept().drafts());
  return out;
}

std::vector<matrix_axis> read_axes(const scenario_pb::Matrix& in) {
  std::vector<matrix_axis> out;
  using settings = case_settings;
  const auto whole = [](std::int64_t value) { return fmt::format("{}", value); };
  const auto integers = [&](const char* key, const auto& list,
                            std::optional<std::int32_t> settings::*field) {
    add_axis(
      out, key, list, [=](settings& to, std::int32_t value) { to.*field = value; }, whole);
  };
  const auto switches = [&](const char* key, const auto& list,
                            std::optional<bool> settings::*field) {
    add_axis(
      out, key, list, [=](settings& to, bool value) { to.*field = value; }, written);
  };
  const auto times = [&](const char* key, const auto& list,
                         std::optional<std::int64_t> settings::*field) {
    add_axis(
      out, key, list, [=](settings& to, std::int64_t value) { to.*field = value; },
      microseconds_text);
  };
  const auto choices = [&]<class Enum>(const char* key, const auto& list,
                                       std::optional<Enum> settings::*field) {
    add_axis(
      out, key, list, [=](settings& to, int value) { to.*field = plain_enum<Enum>(value); },
      [=](int value) { return choice(key, value); });
  };
  integers("depth", in.depth(), &settings::depth);
  integers("ranks", in.ranks(), &settings::ranks);
  integers("num_drafts", in.num_drafts(), &settings::num_drafts);
  integers("draft_overhang", in.draft_overhang(), &settings::draft_overhang);
  integers("block_size", in.block_size(), &settings::block_size);
  integers("chunk_size", in.chunk_size(), &settings::chunk_size);
  integers("max_num_batched_tokens", in.max_num_batched_tokens(),
           &settings::max_num_batched_tokens);
  integers("num_kv_blocks", in.num_kv_blocks(), &settings::num_kv_blocks);
  switches("prefix_cache", in.prefix_cache(), &settings::prefix_cache);
  switches("mixed_steps", in.mixed_steps(), &settings::mixed_steps);
  choices("verify", in.verify(), &settings::verify);
  choices("preempt_output", in.preempt_output(), &settings::preempt_output);
  choices("victim", in.victim(), &settings::victim);
  add_axis(
    out, "quorum", in.quorum(), [](settings& to, double value) { to.quorum = value; },
    [](double value) { return fmt::format("{}", value); });
  integers("min_decode_gap", in.min_decode_gap(), &settings::min_decode_gap);
  times("jitter", in.jitter(), &settings::jitter_us);
  times("step_time", in.step_time(), &settings::step_time_us);
  add_axis(
    out, "accept", in.accept(),
    [](settings& to, const scenario_pb::Accept& value) { to.accept = to_vector(value.drafts()); },
    [](const scenario_pb::Accept& value) {
      return fmt::format("[{}]", fmt::join(value.drafts(), ","));
    });
  return out;
}

}  // namespace deepinfer
