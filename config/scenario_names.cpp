#include "config/scenario_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "config/nearest.hpp"

namespace deepinfer {

namespace {

constexpr std::array<std::string_view, 19> feature_names{
  "chunked_prefill", "mixed_steps", "spec",    "confidence",   "prefix_cache", "preempt",
  "penalty",         "sampling",    "grammar", "stop_strings", "reasoning",    "logprobs",
  "priority",        "graphs",      "groups",  "eplb",         "transfer",     "clients",
  "window"};

constexpr std::array<std::string_view, 7> finish_names{"none",  "stop",     "length",  "abort",
                                                       "error", "resource", "rejected"};

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const auto end = text.find('.', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// A whole number from 0 on, without sign; nothing else.
std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || !is_digit(text[0]) || code != std::errc() || end != text.data() + text.size())
    return {};
  return value;
}

std::optional<std::int64_t> rank_number(std::string_view word) {
  return word.starts_with("rank") ? number(word.substr(4)) : std::nullopt;
}

/// What follows the rank: "step.K.launched" and its like.
std::optional<scenario_event> step_event(std::span<const std::string_view> parts,
                                         std::int32_t rank) {
  if (parts.size() != 3 || parts[0] != "step") return {};
  const auto step = number(parts[1]);
  if (!step || *step < 1) return {};
  using kind = scenario_event_kind;
  constexpr std::array<std::pair<std::string_view, kind>, 3> ends{
    {{"launched", kind::step_launched},
     {"settled", kind::step_settled},
     {"failed", kind::step_failed}}};
  for (const auto& [name, what] : ends)
    if (parts[2] == name) return scenario_event{what, -1, rank, *step};
  return {};
}

/// What follows the id of a request, in a form that fits `parts`' end.
std::optional<scenario_event> request_event(std::span<const std::string_view> parts) {
  using kind = scenario_event_kind;
  if (parts.size() == 1) {
    constexpr std::array<std::pair<std::string_view, kind>, 4> ends{{{"launched", kind::launched},
                                                                     {"preempted", kind::preempted},
                                                                     {"resumed", kind::resumed},
                                                                     {"finish", kind::finish}}};
    for (const auto& [name, what] : ends)
      if (parts[0] == name) return scenario_event{what, -1, 0, 0};
  }
  const auto k = parts.size() >= 2 ? number(parts[1]) : std::nullopt;
  if (!k || *k < 1) return {};
  if (parts.size() == 2 && parts[0] == "token") return scenario_event{kind::token, -1, 0, *k};
  if (parts.size() == 3 && parts[0] == "chunk" && parts[2] == "launched")
    return scenario_event{kind::chunk_launched, -1, 0, *k};
  return {};
}

struct plain_event {
  std::string_view text;
  scenario_event_kind kind;
};
constexpr std::array<plain_event, 6> plain_events{
  {{"paused", scenario_event_kind::paused},
   {"drained", scenario_event_kind::drained},
   {"flushed", scenario_event_kind::flushed},
   {"eplb.planned", scenario_event_kind::eplb_planned},
   {"eplb.applied", scenario_event_kind::eplb_applied},
   {"eplb.cancelled", scenario_event_kind::eplb_cancelled}}};

}  // namespace

std::string_view name_of(scenario_feature feature) {
  return feature_names[static_cast<std::size_t>(feature)];
}

std::string_view name_of(scenario_finish finish) {
  return finish_names[static_cast<std::size_t>(finish)];
}

std::span<const std::string> scenario_metrics() {
  static const std::vector<std::string> names{
    "num_requests_running",
    "num_requests_waiting",
    "kv_free_blocks",
    "kv_cached_blocks",
    "kv_held_blocks",
    "deferred_release_pending",
    "state_slots_free",
    "inflight_steps",
    "inflight_tokens",
    "leases_held",
    "client_chunks_pending",
    "generation_tokens_total",
    "prompt_tokens_total",
    "num_preemptions_total",
    "prefix_cache_hits_total",
    "prefix_evictions_total",
    "request_aborts_total",
    "request_success_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "time_to_first_token_seconds_count",
    "inter_token_latency_seconds_count",
    "device_idle_seconds_total",
    "decode_gap_seconds_max",
    "late_messages_total",
    "dead_ranks",
    "ready",
    "expert_tokens_total",
    "placement_version",
    "eplb_rebalances_total",
    "eplb_cancelled_total",
  };
  return names;
}

bool is_time_metric(std::string_view metric) {
  return metric.find("_seconds_") != std::string_view::npos && !metric.ends_with("_count");
}

std::span<const std::string> scenario_counts() {
  static const std::vector<std::string> names{
    "steps",        "rows",          "group_steps",  "tokens",
    "overrun_rows", "chunks",        "preemptions",  "discarded_tokens",
    "host_waits",   "reserved_peak", "blocks_peak",  "written_end",
    "routed_rows",  "final_records", "failed_steps", "fresh_rows",
  };
  return names;
}

std::span<const std::string> scenario_properties() {
  static const std::vector<std::string> names{
    // Each request.
    "second_final_record", "token_after_final", "wrong_token", "token_gap", "wrong_usage",
    "wrong_logprob", "wrong_finish", "no_final_record",
    // Memory.
    "canary_mismatch", "read_freed_block", "read_beyond_length", "write_unleased_block",
    "write_shared_block", "write_beyond_limit", "write_trap_block", "state_mismatch",
    "reused_before_fence", "published_unsettled", "staging_overwritten", "output_overwritten",
    "event_generation_mixed",
    // Rows.
    "token_id_out_of_range", "row_map_broken", "carry_split", "budget_exceeded",
    "reserve_too_small", "reserve_too_large", "launched_past_foreseen_end",
    // Books.
    "counter_negative", "blocks_not_conserved", "settle_out_of_order", "settled_twice",
    "not_empty_at_end",
    // Loop.
    "second_host_wait", "asleep_with_work_in_flight", "overlap_exceeds_depth", "stuck",
    "idle_while_runnable",
    // Groups.
    "collective_mismatch", "kind_differs", "mixed_placement", "empty_step_touched_live",
    "expert_without_copy"};
  return names;
}

bool is_legal_id(std::string_view id) {
  const auto dot = id.find('.');
  const auto stem = id.substr(0, dot);
  if (stem.empty() || !is_lower(stem[0])) return false;
  for (const char c : stem)
    if (!is_lower(c) && !is_digit(c) && c != '_') return false;
  return dot == std::string_view::npos || number(id.substr(dot + 1)).has_value();
}

bool is_reserved_id(std::string_view id) {
  const auto stem = id.substr(0, id.find('.'));
  return stem == "step" || stem == "paused" || stem == "drained" || stem == "flushed" ||
         stem == "eplb" || rank_number(stem).has_value();
}

result<scenario_event> parse_event(std::string_view text, const scenario& of, std::int32_t ranks) {
  for (const auto& event : plain_events)
    if (text == event.text) return scenario_event{event.kind, -1, 0, 0};
  const auto parts = split(text);
  const auto rank = rank_number(parts[0]);
  const auto rest = std::span(parts).subspan(rank ? 1 : 0);
  if (rank && *rank >= ranks)
    return fail(errc::bad_config,
                fmt::format("event '{}': found rank {}, expected 0 to {}", text, *rank, ranks - 1));
  if (rank && rest.size() == 1 && rest[0] == "dead")
    return scenario_event{scenario_event_kind::rank_dead, -1, static_cast<std::int32_t>(*rank), 0};
  if (const auto step = step_event(rest, static_cast<std::int32_t>(rank.value_or(0)))) return *step;
  for (const std::size_t stem : {2u, 1u}) {  // an id has at most two parts
    if (parts.size() <= stem) continue;
    auto event = request_event(std::span(parts).subspan(stem));
    if (!event) continue;
    const auto id = stem == 1 ? std::string(parts[0]) : fmt::format("{}.{}", parts[0], parts[1]);
    event->request = of.request_of(id);
    if (event->request >= 0) return *event;
    std::vector<std::string> ids;
    for (const auto& it : of.requests) ids.push_back(it.id);
    return fail(errc::bad_config, fmt::format("event '{}': no request has the id '{}'{}", text, id,
                                              did_you_mean(id, ids)));
  }
  return fail(errc::bad_config,
              fmt::format("found '{}', expected an event such as a.launched, a.chunk.2.launched, "
                          "a.token.3, a.finish, step.4.settled, rank1.dead or paused",
                          text));
}

std::string text_of(const scenario_event& event, const scenario& of) {
  using kind = scenario_event_kind;
  for (const auto& plain : plain_events)
    if (event.kind == plain.kind) return std::string(plain.text);
  const auto id =
    event.request >= 0 ? of.requests[static_cast<std::size_t>(event.request)].id : std::string();
  const auto step = (event.rank > 0 ? fmt::format("rank{}.", event.rank) : std::string()) +
                    fmt::format("step.{}.", event.number);
  switch (event.kind) {
  case kind::launched: return id + ".launched";
  case kind::chunk_launched: return fmt::format("{}.chunk.{}.launched", id, event.number);
  case kind::token: return fmt::format("{}.token.{}", id, event.number);
  case kind::preempted: return id + ".preempted";
  case kind::resumed: return id + ".resumed";
  case kind::finish: return id + ".finish";
  case kind::step_launched: return step + "launched";
  case kind::step_settled: return step + "settled";
  case kind::step_failed: return step + "failed";
  case kind::rank_dead: return fmt::format("rank{}.dead", event.rank);
  default: return {};
  }
}

bool matches_id(std::string_view pattern, std::string_view id) {
  if (pattern == "*") return true;
  if (!pattern.ends_with(".*")) return pattern == id;
  return id.starts_with(pattern.substr(0, pattern.size() - 1));
}

std::int32_t scenario::request_of(std::string_view id) const {
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].id == id) return static_cast<std::int32_t>(i);
  return -1;
}

}  // namespace deepinfer
