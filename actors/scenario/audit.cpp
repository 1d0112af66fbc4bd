#include "actors/scenario/audit.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

template <class Point, class Value>
void mark_first(Point& point, const Value& value) {
  if (!point) point = value;
}

}  // namespace

audit_log::audit_log(std::size_t requests, std::int32_t ranks)
  : by_request_(requests),
    by_rank_(at(ranks)) {}

audit_entry& audit_log::add(std::int64_t us, audit_kind kind) {
  DI_CHECK(entries_.empty() || us >= entries_.back().us, "time went back from {} to {} us",
           entries_.back().us, us);
  auto& entry = entries_.emplace_back();
  entry.us = us;
  entry.kind = kind;
  return entry;
}

audit_log::occurrence audit_log::here(std::int64_t sub) const {
  return {entries_.size() - 1, entries_.back().us, sub};
}

void audit_log::submitted(std::int64_t us, std::int32_t request) {
  add(us, audit_kind::submitted).request = request;
}

void audit_log::tokens(std::int64_t us, std::int32_t request, std::int32_t rank, std::int64_t step,
                       std::int32_t first_output, std::span<const token_id> ids,
                       std::span<const float> logprobs) {
  auto& entry = add(us, audit_kind::tokens);
  entry.request = request;
  entry.rank = rank;
  entry.step = step;
  entry.number = first_output;
  entry.index = ids_.size();
  entry.count = static_cast<std::int32_t>(ids.size());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  if (!logprobs.empty()) logprob_begin_[entries_.size() - 1] = logprobs_.size();
  logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
  auto& marks = by_request_[at(request)].tokens;
  if (marks.size() < at(first_output) + ids.size()) marks.resize(at(first_output) + ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    mark_first(marks[at(first_output) + i], here(static_cast<std::int64_t>(i)));
}

void audit_log::finished(std::int64_t us, std::int32_t request, std::int32_t rank,
                         std::int64_t step, const audit_final& final) {
  auto& entry = add(us, audit_kind::finished);
  entry.request = request;
  entry.rank = rank;
  entry.step = step;
  entry.index = finals_.size();
  finals_.push_back(final);
  mark_first(by_request_[at(request)].finish, here());
}

void audit_log::planned(std::int32_t rank, std::int64_t step) {
  by_rank_[at(rank)].steps[step].planned = entries_.size();
}

void audit_log::launched(std::int64_t us, std::int32_t rank, std::int64_t step, step_kind kind,
                         std::int32_t total_width, std::int32_t bucket,
                         std::span<const audit_row> rows) {
  auto& entry = add(us, audit_kind::launched);
  entry.rank = rank;
  entry.number = step;
  entry.index = steps_.size();
  auto& marks = by_rank_[at(rank)].steps[step];
  mark_first(marks.launched, here());
  marks.newest = steps_.size();
  steps_.push_back(
    {.rank = rank,
     .step = step,
     .kind = kind,
     .total_width = total_width,
     .bucket = bucket,
     .launched_us = us,
     .launch_order = entries_.size() - 1,
     .plan_order = std::min(std::exchange(marks.planned, no_index), entries_.size() - 1),
     .row_begin = rows_.size(),
     .rows = static_cast<std::int32_t>(rows.size())});
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  results_.resize(rows_.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& of = by_request_[at(rows[i].request)];
    mark_first(of.launched, here());
    if (rows[i].kind == row_kind::prefill) of.chunks.emplace_back(here());
  }
}

void audit_log::settled(std::int64_t us, std::int32_t rank, std::int64_t step, bool has_failed,
                        std::span<const audit_row_result> results, std::span<const token_id> ids) {
  auto& entry = add(us, audit_kind::settled);
  entry.rank = rank;
  entry.number = step;
  entry.index = step_index(rank, step);
  if (entry.index == no_index) return;
  auto& it = steps_[entry.index];
  auto& marks = by_rank_[at(rank)].steps[step];
  mark_first(marks.settled, here());
  if (has_failed) mark_first(marks.failed, here());
  entry.step = static_cast<std::int64_t>(ids_.size());
  entry.count = static_cast<std::int32_t>(ids.size());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  if (it.settle_order != no_index) return;  // the judge sees the second entry
  it.settle_order = entries_.size() - 1;
  it.has_failed = has_failed;
  DI_CHECK(has_failed || std::ssize(results) == it.rows, "{} results for {} rows", results.size(),
           it.rows);
  if (has_failed) return;
  for (std::size_t i = 0; i < results.size(); ++i) results_[it.row_begin + i] = results[i];
}

void audit_log::happened(std::int64_t us, scenario_event_kind what, std::int32_t of) {
  auto& entry = add(us, audit_kind::happened);
  entry.what = what;
  if (what == scenario_event_kind::rank_dead) {
    entry.rank = of;
    mark_first(by_rank_[at(of)].dead, here());
    return;
  }
  entry.request = of;
  if (what == scenario_event_kind::preempted)
    mark_first(by_request_[at(of)].preempted, here());
  else if (what == scenario_event_kind::resumed)
    mark_first(by_request_[at(of)].resumed, here());
  else
    mark_first(plain_[static_cast<std::size_t>(what)], here());
}

void audit_log::waited(std::int64_t us, std::int32_t rank, std::int64_t step) {
  auto& entry = add(us, audit_kind::waited);
  entry.rank = rank;
  entry.number = step;
}

void audit_log::held(std::int64_t us, std::int32_t rank, std::int32_t request,
                     std::span<const block_id> blocks) {
  auto& entry = add(us, audit_kind::held);
  entry.rank = rank;
  entry.request = request;
  entry.index = blocks_.size();
  entry.count = static_cast<std::int32_t>(blocks.size());
  blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
}

void audit_log::let_go(std::int64_t us, std::int32_t rank, std::int32_t request,
                       std::span<const block_id> blocks) {
  held(us, rank, request, blocks);
  entries_.back().kind = audit_kind::let_go;
}

void audit_log::depth_set(std::int64_t us, std::int32_t depth) {
  add(us, audit_kind::depth_set).number = depth;
}

void audit_log::restarted(std::int64_t us, std::int32_t rank) {
  add(us, audit_kind::restarted).rank = rank;
}

void audit_log::asked(std::int64_t us, std::size_t expectation,
                      std::optional<std::int64_t> sample) {
  auto& entry = add(us, audit_kind::asked);
  entry.number = static_cast<std::int64_t>(expectation);
  entry.index = samples_.size();
  samples_.push_back(sample);
  asked_.try_emplace(expectation, entries_.size() - 1);
}

void audit_log::written(std::int32_t request, std::int32_t end) {
  auto& highest = by_request_[at(request)].written_end;
  highest = std::max(highest, end);
}

void audit_log::routed(std::int32_t rank, std::int64_t rows) {
  by_rank_[at(rank)].routed_rows += rows;
}

void audit_log::collective(std::int32_t rank, std::uint64_t digest) {
  by_rank_[at(rank)].collectives.push_back(digest);
}

void audit_log::placed(std::int32_t rank, std::uint64_t digest) {
  by_rank_[at(rank)].placements.push_back(digest);
}

std::optional<audit_log::occurrence> audit_log::find(const scenario_event& event) const {
  using kind = scenario_event_kind;
  const auto numbered = [&](const std::vector<point>& list) {
    return at(event.number) <= list.size() ? list[at(event.number) - 1] : point();
  };
  if (event.request >= 0) {
    const auto& of = by_request_[at(event.request)];
    switch (event.kind) {
    case kind::launched: return of.launched;
    case kind::chunk_launched: return numbered(of.chunks);
    case kind::token: return numbered(of.tokens);
    case kind::preempted: return of.preempted;
    case kind::resumed: return of.resumed;
    default: return of.finish;
    }
  }
  if (event.rank >= ranks()) return {};
  const auto& rank = by_rank_[at(event.rank)];
  const auto found = rank.steps.find(event.number);
  const auto marks = found == rank.steps.end() ? step_marks() : found->second;
  switch (event.kind) {
  case kind::step_launched: return marks.launched;
  case kind::step_settled: return marks.settled;
  case kind::step_failed: return marks.failed;
  case kind::rank_dead: return rank.dead;
  default: return plain_[static_cast<std::size_t>(event.kind)];
  }
}

std::span<const audit_row> audit_log::rows(const audit_step& step) const {
  return std::span(rows_).subspan(step.row_begin, at(step.rows));
}

std::span<const audit_row_result> audit_log::results(const audit_step& step) const {
  return std::span(results_).subspan(step.row_begin, at(step.rows));
}

std::size_t audit_log::step_index(std::int32_t rank, std::int64_t step) const {
  if (rank >= ranks()) return no_index;
  const auto& steps = by_rank_[at(rank)].steps;
  const auto found = steps.find(step);
  return found == steps.end() ? no_index : found->second.newest;
}

std::span<const token_id> audit_log::ids_of(const audit_entry& entry) const {
  const auto begin = entry.kind == audit_kind::settled ? at(entry.step) : entry.index;
  return std::span(ids_).subspan(begin, at(entry.count));
}

std::span<const float> audit_log::logprobs_of(const audit_entry& tokens) const {
  const auto found = logprob_begin_.find(at(&tokens - entries_.data()));
  if (found == logprob_begin_.end()) return {};
  auto end = logprobs_.size();
  if (const auto next = std::next(found); next != logprob_begin_.end()) end = next->second;
  return std::span(logprobs_).subspan(found->second, end - found->second);
}

std::span<const block_id> audit_log::blocks_of(const audit_entry& entry) const {
  return std::span(blocks_).subspan(entry.index, at(entry.count));
}

std::optional<std::int64_t> audit_log::sample_of(const audit_entry& asked) const {
  return samples_[asked.index];
}

const audit_entry* audit_log::asked_entry(std::size_t expectation) const {
  const auto found = asked_.find(expectation);
  return found == asked_.end() ? nullptr : &entries_[found->second];
}

std::int32_t audit_log::written_end(std::int32_t request) const {
  return by_request_[at(request)].written_end;
}

std::int64_t audit_log::routed_rows(std::int32_t rank) const {
  return by_rank_[at(rank)].routed_rows;
}

std::span<const std::uint64_t> audit_log::collectives(std::int32_t rank) const {
  return by_rank_[at(rank)].collectives;
}

std::span<const std::uint64_t> audit_log::placements(std::int32_t rank) const {
  return by_rank_[at(rank)].placements;
}

}  // namespace deepinfer
