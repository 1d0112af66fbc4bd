#include "actors/gateway_snapshot.hpp"

#include <algorithm>
#include <map>

#include "actors/dashboard_snapshot.hpp"
#include "runtime/base/json.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/base/whole_number.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t max_depth = 32;

/// An answer of another version may lack a key.
const json::value& at(const json::value& object, std::string_view key) {
  static const json::value nothing;
  const auto* members = object.if_object();
  const auto* found = members ? members->if_contains(key) : nullptr;
  return found ? *found : nothing;
}

std::string text_of(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : std::string();
}

/// Adds numbers, those inside of objects too; what is no number stays.
void add_numbers(json::value& sum, const json::value& more) {
  if (auto* members = sum.if_object()) {
    for (auto& it : *members) add_numbers(it.value(), at(more, it.key()));
  } else if (sum.is_number() && more.is_number()) {
    const auto a = whole_number(sum), b = whole_number(more);
    if (a && b)
      sum = *a + *b;
    else
      sum = sum.to_number<double>() + more.to_number<double>();
  }
}

/// Takes the greater (or less) of what is known, inside of objects too.
void take_extreme(json::value& known, const json::value& more, bool is_least) {
  if (auto* members = known.if_object()) {
    for (auto& it : *members) take_extreme(it.value(), at(more, it.key()), is_least);
  } else if (more.is_number()) {
    const bool is_beyond =
      !known.is_null() && (more.to_number<double>() < known.to_number<double>()) == is_least;
    if (known.is_null() || is_beyond) known = more;
  }
}

struct known_part {
  json::value snapshot;  ///< null: none
  json::object entry;
};

known_part read_part(const gateway_part& it) {
  known_part out;
  std::string failure = it.failure;
  if (!it.snapshot.empty()) {
    auto read = parse_json(it.snapshot, max_depth);
    if (read && read->is_object())
      out.snapshot = std::move(*read);
    else
      failure = "its snapshot is no JSON object";
  }
  const bool has_said = it.health.has_value();
  out.entry = {
    {"name", has_said ? it.health->node : text_of(at(at(out.snapshot, "health"), "node"))},
    {"address", it.address},
    {"state", has_said ? name_of(it.health->state) : "down"},
    {"progress", has_said ? it.health->progress : 0.0},
    {"takes_requests", it.takes_requests},
    {"reason", it.reason.empty() ? failure : it.reason}};
  return out;
}

void add_part(json::object& sum, const json::value& part) {
  for (const auto* counted : {"running", "waiting", "totals", "kv", "group"})
    add_numbers(sum[counted], at(part, counted));
  for (const auto* longest : {"ttft_s", "itl_s"})
    take_extreme(sum[longest], at(part, longest), false);
  take_extreme(sum["overlap"], at(part, "overlap"), true);
  auto& eplb = sum["eplb"];
  const auto& more = at(part, "eplb");
  for (const auto* counted : {"rebalances", "cancelled"})
    add_numbers(eplb.get_object()[counted], at(more, counted));
  for (const auto* most : {"placement_version", "imbalance", "gain"})
    take_extreme(eplb.get_object()[most], at(more, most), false);
  const auto& model = at(part, "model");
  if (sum["model"].at("names").get_array().empty() && at(model, "names").is_array())
    sum["model"] = model;
  else
    add_numbers(sum["model"].get_object()["num_kv_blocks"], at(model, "num_kv_blocks"));
}

/// Of the nodes that have run a step the one that has run fewest: to others some come again.
std::int64_t newest_step_of(const std::vector<known_part>& parts) {
  std::int64_t out = -1;
  for (const auto& it : parts) {
    const auto step = whole_number(at(it.snapshot, "newest_step")).value_or(-1);
    if (step >= 0) out = out < 0 ? step : std::min(out, step);
  }
  return out;
}

/// What the nodes know of their requests, by id, with their names.
std::map<std::string, json::object> requests_by_id(const std::vector<known_part>& parts) {
  std::map<std::string, json::object> out;
  for (const auto& part : parts) {
    const auto* list = at(part.snapshot, "requests").if_array();
    if (!list) continue;
    for (const auto& it : *list) {
      if (!it.is_object()) continue;
      auto request = it.get_object();
      request["node"] = part.entry.at("name");
      out.emplace(text_of(at(it, "id")), std::move(request));
    }
  }
  return out;
}

void set_requests(json::object& sum, const gateway_view& view,
                  const std::vector<known_part>& parts) {
  auto there = requests_by_id(parts);
  json::array out;
  if (!view.requests) {
    for (auto& [id, it] : there)
      if (out.size() < dashboard_requests) out.push_back(std::move(it));
    sum["requests_total"] = there.size();
  } else {
    for (const auto& it : view.requests->requests) {
      if (out.size() == dashboard_requests) break;
      auto shown = dashboard_request(it);
      const auto known = there.find(it.id);
      if (known != there.end()) {
        auto own = std::move(shown);
        shown = std::move(known->second);
        for (const auto* here : {"tenant", "age_s"}) shown[here] = own[here];
      } else {
        shown["node"] = "";
      }
      out.push_back(std::move(shown));
    }
    sum["requests_total"] = view.requests->requests.size();
  }
  sum["requests"] = std::move(out);
}

}  // namespace

std::string gateway_snapshot(const gateway_view& view) {
  static const metrics nothing_counted;
  dashboard_view own;
  own.health = view.health;
  own.now_us = view.now_us;
  if (view.requests) own.requests = *view.requests;  // those that wait here wait in no node
  auto out = dashboard_object(own, nothing_counted);
  out["uptime_s"] = view.uptime_s;
  std::vector<known_part> parts;
  for (const auto& it : view.nodes) parts.push_back(read_part(it));
  for (const auto& it : parts)
    if (!it.snapshot.is_null()) add_part(out, it.snapshot);
  out["newest_step"] = newest_step_of(parts);
  set_requests(out, view, parts);
  json::array nodes;
  for (auto& it : parts) {
    it.entry["snapshot"] = std::move(it.snapshot);
    nodes.push_back(std::move(it.entry));
  }
  out["nodes"] = std::move(nodes);
  return to_text(out);
}

}  // namespace deepinfer
