#include "actors/dashboard_snapshot.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "actors/host_address.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t most_steps = 64;  ///< of a rank

double micros(std::int64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}

json::value interval(std::int64_t begin_ns, std::int64_t end_ns) {
  if (begin_ns <= 0 || end_ns < begin_ns) return nullptr;
  return json::array{micros(begin_ns), micros(end_ns)};
}

json::value of(std::optional<double> value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::object step_json(const step_trace& it) {
  const auto phase = [&it](step_phase which) {
    const auto i = static_cast<std::size_t>(which);
    return interval(it.device.begin_ns[i], it.device.end_ns[i]);
  };
  auto sample = phase(step_phase::sample);
  const auto gated = phase(step_phase::sample_gated);
  if (sample.is_null())
    sample = gated;
  else if (!gated.is_null())
    sample.get_array()[1] = gated.get_array()[1];
  return {{"step", it.step.value},
          {"rank", it.rank.value},
          {"kind", it.kind},
          {"rows", it.rows},
          {"tokens", it.tokens},
          {"emitted", it.emitted},
          {"inflight", it.inflight_steps},
          {"carried", it.carried_rows},
          {"parked", it.parked_blocks},
          {"overrun", it.overrun_rows},
          {"plan", interval(it.plan_begin_ns, it.plan_end_ns)},
          {"settle", interval(it.settle_begin_ns, it.settle_end_ns)},
          {"forward", phase(step_phase::forward)},
          {"sample", std::move(sample)},
          {"idle_us", json::object{{"plan", micros(it.idle_plan_ns)},
                                   {"settle", micros(it.idle_settle_ns)},
                                   {"vote", micros(it.idle_vote_ns)},
                                   {"transfer", micros(it.idle_transfer_ns)}}}};
}

/// The steps to show, and what the page may say it knows of them.
struct step_choice {
  json::array steps;
  std::int64_t newest = -1;
};

step_choice choose_steps(const dashboard_view& view) {
  std::map<std::int32_t, std::uint64_t> newest;  // by rank
  for (const auto& it : view.steps)
    newest[it.rank.value] = std::max(newest[it.rank.value], it.step.value);
  step_choice out;
  if (newest.empty()) return out;
  std::uint64_t least = newest.begin()->second, most = 0;
  for (const auto& [rank, step] : newest) {
    least = std::min(least, step);
    most = std::max(most, step);
  }
  // A rank that began again counts from 1: what the page knows is of its life before.
  const auto known = view.known_step > static_cast<std::int64_t>(most) ? -1 : view.known_step;
  for (const auto& it : view.steps)
    if (static_cast<std::int64_t>(it.step.value) > known &&
        it.step.value + most_steps > newest[it.rank.value])
      out.steps.push_back(step_json(it));
  out.newest = static_cast<std::int64_t>(least);
  return out;
}

json::object totals_json(const node_stats& stats, const metrics& counts) {
  const auto total = [&counts](metric m) { return counts.value(m); };
  return {{"prompt_tokens", total(metric::prompt_tokens_total)},
          {"generation_tokens", stats.tokens_out},
          {"steps", stats.steps},
          {"empty_steps", counts.value(metric::steps_total, {"empty"})},
          {"preemptions", stats.preemptions},
          {"hit_tokens", total(metric::prefix_cache_hits_total)},
          {"query_tokens", total(metric::prefix_cache_queries_total)},
          {"busy_us", micros(stats.device_busy_ns)},
          {"span_us", micros(stats.device_span_ns)},
          {"idle_us", json::object{{"plan", micros(stats.idle_plan_ns)},
                                   {"settle", micros(stats.idle_settle_ns)},
                                   {"vote", micros(stats.idle_vote_ns)},
                                   {"transfer", micros(stats.idle_transfer_ns)}}},
          {"draft_tokens", stats.draft_tokens},
          {"accepted_tokens", stats.accepted_tokens}};
}

json::object quantiles(const metrics& counts, metric m) {
  return {{"p50", of(counts.quantile(m, 0.5))}, {"p95", of(counts.quantile(m, 0.95))}};
}

json::object kv_json(const node_stats& stats, const metrics& counts) {
  const auto total = stats.kv_blocks_total;
  auto left = total;
  const auto take = [&left](std::int64_t blocks) {
    const auto taken = std::clamp(blocks, std::int64_t{0}, left);
    left -= taken;
    return taken;
  };
  const auto free = take(stats.kv_blocks_free);
  const auto cached = take(stats.kv_blocks_cached);
  const auto deferred = take(stats.deferred_blocks);
  const auto reserved = take(static_cast<std::int64_t>(counts.value(metric::kv_reserved_blocks)));
  return {{"total", total},       {"used", left},         {"cached", cached},
          {"reserved", reserved}, {"deferred", deferred}, {"free", free}};
}

json::array requests_json(const request_list& list) {
  json::array out;
  for (const auto& it : list.requests) {
    if (out.size() == dashboard_requests) break;
    out.push_back(dashboard_request(it));
  }
  return out;
}

/// A rank that is down says nothing, or that it has no blocks.
json::object replica_json(std::size_t replica, const std::optional<node_stats>& known) {
  const auto stats = known.value_or(node_stats());
  return {{"replica", replica},
          {"state", stats.kv_blocks_total > 0 ? "up" : "down"},
          {"running", stats.running},
          {"waiting", stats.queued},
          {"generation_tokens", stats.tokens_out},
          {"steps", stats.steps},
          {"preemptions", stats.preemptions},
          {"kv", json::object{{"total", stats.kv_blocks_total},
                              {"cached", stats.kv_blocks_cached},
                              {"free", stats.kv_blocks_free}}},
          {"busy_us", micros(stats.device_busy_ns)},
          {"span_us", micros(stats.device_span_ns)}};
}

json::array replicas_json(const dashboard_view& view) {
  json::array out;
  for (std::size_t i = 0; i < view.replicas.size(); ++i)
    out.push_back(replica_json(i, view.replicas[i]));
  return out;
}

json::object group_json(const dashboard_view& view, const metrics& counts) {
  const auto votes = [&counts](std::string_view outcome) {
    double sum = 0.0;
    for (const auto rule : info_of(metric::prefill_votes_total).values[0])
      sum += counts.value(metric::prefill_votes_total, {rule, outcome});
    return sum;
  };
  return {{"size", view.group_size},
          {"go", votes("go")},
          {"wait", votes("wait")},
          {"vetoed", votes("vetoed")}};
}

json::object eplb_json(const dashboard_view& view, const metrics& counts) {
  json::array load;
  for (const auto& rank : view.expert_load) load.push_back(json::array(rank.begin(), rank.end()));
  return {{"placement_version", counts.value(metric::placement_version)},
          {"imbalance", counts.value(metric::eplb_imbalance_ratio)},
          {"gain", counts.value(metric::eplb_last_gain_ratio)},
          {"rebalances", counts.value(metric::eplb_rebalances_total)},
          {"cancelled", counts.value(metric::eplb_cancelled_total)},
          {"load", std::move(load)}};
}

/// Of the rank that hides least of its host work.
json::value overlap_json(const dashboard_view& view, const metrics& counts) {
  std::optional<double> least;
  for (const auto& it : view.steps) {
    const auto ratio = counts.value(metric::overlap_ratio, {std::to_string(it.rank.value)});
    least = std::min(least.value_or(ratio), ratio);
  }
  return of(least);
}

json::object node_json(const node_entry& it) {
  const bool is_up = it.state == "up";
  return {{"name", it.name},
          {"address", format_host_address({it.host, static_cast<std::uint16_t>(it.port)})},
          {"origin", it.origin},
          {"state", is_up ? "ready" : it.state},
          {"progress", is_up ? 1.0 : 0.0},
          {"takes_requests", is_up && it.origin != "told" && it.reason.empty()},
          {"reason", it.reason},
          {"snapshot", nullptr}};
}

/// Each node once, whatever ways lead to it: by the one that requests can go, or else the first.
json::array nodes_json(const node_list& list) {
  json::array out;
  for (const auto& it : list.nodes) {
    auto node = node_json(it);
    const auto same = std::find_if(out.begin(), out.end(), [&node](const json::value& known) {
      return known.at("name") == node["name"] || known.at("address") == node["address"];
    });
    if (same == out.end())
      out.push_back(std::move(node));
    else if (!same->at("takes_requests").as_bool() && node["takes_requests"].as_bool())
      *same = std::move(node);
  }
  if (out.size() < 2) out.clear();  // alone
  return out;
}

}  // namespace

std::int64_t waiting_for_replica(const request_list& list) {
  return std::count_if(list.requests.begin(), list.requests.end(),
                       [](const request_info& it) { return it.state == "routing"; });
}

json::object dashboard_request(const request_info& it) {
  return {{"id", it.id},
          {"state", it.state},
          {"tenant", it.tenant},
          {"replica", it.replica},
          {"prompt_tokens", it.prompt_tokens},
          {"cached_tokens", it.cached_tokens},
          {"output_tokens", it.output_tokens},
          {"age_s", static_cast<double>(it.age_us) * 1e-6},
          {"chunks_pending", it.chunks_pending}};
}

json::object dashboard_object(const dashboard_view& view, const metrics& counts) {
  auto chosen = choose_steps(view);
  const auto& health = view.health;
  const auto& model = view.model;
  json::object out;
  out["newest_step"] = chosen.newest;
  out["now_us"] = view.now_us;
  out["uptime_s"] = model.loaded_at > 0 && view.unix_seconds >= model.loaded_at
                      ? json::value(view.unix_seconds - model.loaded_at)
                      : json::value(nullptr);
  out["health"] = {{"state", name_of(health.state)}, {"progress", health.progress},
                   {"stage", health.stage},          {"node", health.node},
                   {"replicas", health.replicas},    {"open_requests", health.open_requests}};
  out["model"] = {{"names", json::array(model.names.begin(), model.names.end())},
                  {"max_model_len", model.max_model_len},
                  {"num_kv_blocks", model.num_kv_blocks},
                  {"block_size", model.block_size},
                  {"device", model.device},
                  {"kernels", model.kernels}};
  out["running"] = view.stats.running;
  out["waiting"] = view.stats.queued + waiting_for_replica(view.requests);
  out["totals"] = totals_json(view.stats, counts);
  out["ttft_s"] = quantiles(counts, metric::time_to_first_token_seconds);
  out["itl_s"] = quantiles(counts, metric::inter_token_latency_seconds);
  out["overlap"] = overlap_json(view, counts);
  out["kv"] = kv_json(view.stats, counts);
  out["steps"] = std::move(chosen.steps);
  out["requests"] = requests_json(view.requests);
  out["requests_total"] = view.requests.requests.size();
  out["group"] = group_json(view, counts);
  out["eplb"] = eplb_json(view, counts);
  out["replicas"] = replicas_json(view);
  out["nodes"] = nodes_json(view.nodes);
  return out;
}

std::string dashboard_snapshot(const dashboard_view& view, const metrics& counts) {
  return to_text(dashboard_object(view, counts));
}

}  // namespace deepinfer
