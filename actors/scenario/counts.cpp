#include "actors/scenario/counts.hpp"

#include <algorithm>
#include <map>

namespace deepinfer {

namespace {

/// What a count is about; absent conditions hold for everything.
class selection {
public:
  selection(const count_form& what, std::optional<std::int32_t> rank) : what_(what), rank_(rank) {}

  bool has_rank(std::int32_t rank) const { return !rank_ || *rank_ == rank; }
  bool has_request(std::int32_t request) const {
    return !what_.of || std::find(what_.of->begin(), what_.of->end(), request) != what_.of->end();
  }
  bool has_kind(step_kind kind) const { return !what_.kind || *what_.kind == kind; }
  bool has_time(std::int64_t us) const {
    return (!what_.from_us || us >= *what_.from_us) && (!what_.to_us || us <= *what_.to_us);
  }
  bool has_step(const audit_step& step) const {
    return has_rank(step.rank) && has_kind(step.kind) && has_time(step.launched_us);
  }
  bool names_any(const audit_log& log, const audit_step& step) const {
    const auto rows = log.rows(step);
    return !what_.of || std::any_of(rows.begin(), rows.end(),
                                    [&](const audit_row& row) { return has_request(row.request); });
  }

private:
  const count_form& what_;
  std::optional<std::int32_t> rank_;
};

/// Adds `value(step, row, result)` over the selected rows launched before `until`.
template <class Value>
std::int64_t sum_rows(const audit_log& log, const selection& selected, std::size_t until,
                      Value value) {
  std::int64_t sum = 0;
  for (const auto& step : log.steps()) {
    if (step.launch_order >= until || !selected.has_step(step)) continue;
    const auto rows = log.rows(step);
    const auto results = log.results(step);
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (selected.has_request(rows[i].request)) sum += value(step, rows[i], results[i]);
  }
  return sum;
}

template <class Value>
std::int64_t most_rows(const audit_log& log, const selection& selected, std::size_t until,
                       Value value) {
  std::int64_t most = 0;
  sum_rows(log, selected, until, [&](const auto&, const audit_row& row, const auto&) {
    most = std::max<std::int64_t>(most, value(row));
    return 0;
  });
  return most;
}

/// Adds `value(entry)` over the entries before `until` whose rank and request are selected.
template <class Value>
std::int64_t sum_entries(const audit_log& log, const selection& selected, std::size_t until,
                         Value value) {
  std::int64_t sum = 0;
  for (const auto& entry : log.entries().first(std::min(until, log.entries().size())))
    if (selected.has_rank(entry.rank) && selected.has_time(entry.us) &&
        (entry.request < 0 || selected.has_request(entry.request)))
      sum += value(entry);
  return sum;
}

std::int64_t entries_of_kind(const audit_log& log, const selection& selected, std::size_t until,
                             audit_kind kind) {
  return sum_entries(log, selected, until,
                     [kind](const audit_entry& entry) { return entry.kind == kind ? 1 : 0; });
}

bool is_settled(const audit_step& step, std::size_t until) {
  return step.settle_order < until && !step.has_failed;
}

/// By request: where it ended by stop or length.
std::vector<std::optional<std::size_t>> ends_of(const audit_log& log, std::size_t until) {
  std::vector<std::optional<std::size_t>> out;
  for (std::size_t i = 0; i < log.requests(); ++i)
    out.push_back(end_order(log, static_cast<std::int32_t>(i), until));
  return out;
}

std::int64_t overrun_rows(const audit_log& log, const selection& selected, std::size_t until) {
  const auto ends = ends_of(log, until);
  return sum_rows(log, selected, until,
                  [&](const audit_step& step, const audit_row& row, const audit_row_result&) {
                    const auto end = ends[static_cast<std::size_t>(row.request)];
                    return is_settled(step, until) && end && step.settle_order > *end ? 1 : 0;
                  });
}

/// Tokens of the finishing step and of those behind it, less what was sent of them.
std::int64_t discarded_tokens(const audit_log& log, const selection& selected, std::size_t until) {
  const auto ends = ends_of(log, until);
  std::map<std::pair<std::int32_t, std::size_t>, std::int64_t> sent;  // by request and step
  for (const auto& entry : log.entries().first(std::min(until, log.entries().size())))
    if (entry.kind == audit_kind::tokens && entry.step > 0)
      sent[{entry.request, log.step_index(entry.rank, entry.step)}] += entry.count;
  return sum_rows(
    log, selected, until,
    [&](const audit_step& step, const audit_row& row, const audit_row_result& result) {
      const auto end = ends[static_cast<std::size_t>(row.request)];
      if (!is_settled(step, until) || !end || step.settle_order < *end) return std::int64_t{0};
      const auto index = static_cast<std::size_t>(&step - log.steps().data());
      return std::max<std::int64_t>(0, result.tokens - sent[{row.request, index}]);
    });
}

std::int64_t count_group_steps(const audit_log& log, const scenario_case& it,
                               const selection& selected, std::size_t until) {
  std::int64_t count = 0;
  for (std::int32_t group = 0; group < it.engine.groups; ++group)
    for (const auto& step : group_steps(log, it.engine, group, until))
      if (selected.has_kind(step.kind) && selected.has_time(step.launched_us)) ++count;
  return count;
}

std::int64_t count_rank_or_request(const audit_log& log, const count_form& what,
                                   const selection& selected) {
  std::int64_t out = 0;
  if (what.count == "routed_rows") {
    for (std::int32_t rank = 0; rank < log.ranks(); ++rank)
      if (selected.has_rank(rank)) out += log.routed_rows(rank);
    return out;
  }
  for (std::size_t i = 0; i < log.requests(); ++i) {  // written_end: the highest
    const auto request = static_cast<std::int32_t>(i);
    if (selected.has_request(request)) out = std::max<std::int64_t>(out, log.written_end(request));
  }
  return out;
}

template <class Value, class Get>
std::vector<Value> gathered(const audit_log& log, std::int32_t request, std::size_t until,
                            Get get) {
  std::vector<Value> out;
  for (const auto& entry : log.entries().first(std::min(until, log.entries().size()))) {
    if (entry.kind != audit_kind::tokens || entry.request != request) continue;
    const auto values = get(entry);
    if (values.empty()) continue;
    const auto begin = static_cast<std::size_t>(entry.number);
    if (out.size() < begin + values.size()) out.resize(begin + values.size());
    std::copy(values.begin(), values.end(), out.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return out;
}

}  // namespace

std::vector<group_step> group_steps(const audit_log& log, const scenario_engine& engine,
                                    std::int32_t group, std::size_t until) {
  const auto ranks = engine.ranks_per_group();
  std::map<std::int64_t, group_step> by_number;
  for (const auto& step : log.steps()) {
    if (step.launch_order >= until || step.rank / ranks != group) continue;
    auto& out = by_number.try_emplace(step.step, group_step{step.step, step.kind, step.launched_us})
                  .first->second;
    if (step.kind == step_kind::empty || step.kind == out.kind) continue;
    out.kind = out.kind == step_kind::empty ? step.kind : step_kind::mixed;
  }
  std::vector<group_step> out;
  for (const auto& [number, step] : by_number) out.push_back(step);
  return out;
}

std::int64_t reserved_tokens(const audit_row& row, const scenario_engine& engine) {
  const bool has_drafter = engine.num_drafts > 0 && row.yields_max > 0;
  return std::int64_t{row.position} + row.width + (has_drafter ? engine.draft_overhang : 0);
}

std::optional<std::size_t> end_order(const audit_log& log, std::int32_t request,
                                     std::size_t until) {
  const auto found = log.find({scenario_event_kind::finish, request, 0, 0});
  if (!found || found->order >= until) return {};
  const auto& entry = log.entries()[found->order];
  const auto finish = log.final_of(entry).finish;
  if (finish != scenario_finish::stop && finish != scenario_finish::length) return {};
  const auto step = entry.step > 0 ? log.step_index(entry.rank, entry.step) : no_index;
  return step == no_index ? found->order : log.steps()[step].settle_order;
}

std::vector<token_id> tokens_of(const audit_log& log, std::int32_t request, std::size_t until) {
  return gathered<token_id>(log, request, until,
                            [&](const audit_entry& entry) { return log.ids_of(entry); });
}

std::vector<float> logprobs_of(const audit_log& log, std::int32_t request, std::size_t until) {
  return gathered<float>(log, request, until,
                         [&](const audit_entry& entry) { return log.logprobs_of(entry); });
}

std::int64_t count_of(const audit_log& log, const scenario_case& it, const count_form& what,
                      std::optional<std::int32_t> rank, std::size_t until) {
  const selection selected(what, rank);
  const auto& name = what.count;
  if (name == "steps")
    return std::count_if(log.steps().begin(), log.steps().end(), [&](const audit_step& step) {
      return step.launch_order < until && selected.has_step(step) && selected.names_any(log, step);
    });
  if (name == "failed_steps")
    return std::count_if(log.steps().begin(), log.steps().end(), [&](const audit_step& step) {
      return step.settle_order < until && step.has_failed && selected.has_step(step) &&
             selected.names_any(log, step);
    });
  if (name == "group_steps") return count_group_steps(log, it, selected, until);
  if (name == "rows")
    return sum_rows(log, selected, until, [](const auto&, const auto&, const auto&) { return 1; });
  if (name == "chunks")
    return sum_rows(log, selected, until, [](const auto&, const audit_row& row, const auto&) {
      return row.kind == row_kind::prefill ? 1 : 0;
    });
  if (name == "fresh_rows")
    return sum_rows(log, selected, until, [](const auto&, const audit_row& row, const auto&) {
      return row.source == from_fresh ? 1 : 0;
    });
  if (name == "reserved_peak")
    return most_rows(log, selected, until,
                     [&](const audit_row& row) { return reserved_tokens(row, it.engine); });
  if (name == "blocks_peak")
    return most_rows(log, selected, until, [](const audit_row& row) { return row.table_blocks; });
  if (name == "overrun_rows") return overrun_rows(log, selected, until);
  if (name == "discarded_tokens") return discarded_tokens(log, selected, until);
  if (name == "host_waits") return entries_of_kind(log, selected, until, audit_kind::waited);
  if (name == "final_records") return entries_of_kind(log, selected, until, audit_kind::finished);
  if (name == "tokens")
    return sum_entries(log, selected, until, [](const audit_entry& entry) {
      return entry.kind == audit_kind::tokens ? entry.count : 0;
    });
  if (name == "preemptions")
    return sum_entries(log, selected, until, [](const audit_entry& entry) {
      return entry.what == scenario_event_kind::preempted && entry.kind == audit_kind::happened;
    });
  return count_rank_or_request(log, what, selected);
}

}  // namespace deepinfer
