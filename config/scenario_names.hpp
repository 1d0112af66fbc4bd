/// The words of the scenario language: metrics, counts, properties, events, ids.
///
/// Pure text; nothing here runs a scenario. Errors are `bad_config` without a place: the caller
/// adds it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/scenario.hpp"

namespace deepinfer {

/// Names of section "metrics": what a runner samples of the product.
std::span<const std::string> scenario_metrics();
/// Is the metric in seconds, so that its bounds are times? Sampled as microseconds.
bool is_time_metric(std::string_view metric);

/// Names of counts taken from the audit log.
std::span<const std::string> scenario_counts();

/// Properties without arguments: those always checked, and `idle_while_runnable`.
std::span<const std::string> scenario_properties();

/// `[a-z][a-z0-9_]*`, optionally `.N`.
bool is_legal_id(std::string_view id);
/// Would the id be read as something else: an event, a rank?
bool is_reserved_id(std::string_view id);

/// "a.token.3", "rank2.step.4.settled", "paused". Ranks are below `ranks`.
result<scenario_event> parse_event(std::string_view text, const scenario& of, std::int32_t ranks);

/// The event as written, with the ids of `of`.
std::string text_of(const scenario_event& event, const scenario& of);

/// Does `pattern` (an id, `x.*` or `*`) mean this id?
bool matches_id(std::string_view pattern, std::string_view id);

}  // namespace deepinfer
