#include "actors/scenario/judge.hpp"

#include <algorithm>

#include "actors/scenario/counts.hpp"
#include "actors/scenario/judge_context.hpp"
#include "config/units.hpp"

namespace deepinfer {

namespace {

bool is_meant(const scenario_expectation& expectation, const scenario_case& it) {
  return holds_for(expectation.only_for, it.settings);
}

/// A refused start is what was expected, or all there is to say.
bool judge_start(const judge_context& context) {
  const auto& refused = context.outcome.refused;
  const scenario_expectation* expected = nullptr;
  for (const auto& it : context.of.expectations)
    if (std::holds_alternative<refused_form>(it.form) && is_meant(it, context.it)) expected = &it;
  if (!refused && !expected) return true;
  if (!refused) {
    context.add(expected->place, "start", {}, "refused", "the engine started");
    return false;
  }
  if (!expected) {
    context.add(context.of.path, "start", {}, "an engine that starts", refused->message);
    return false;
  }
  const auto& field = std::get<refused_form>(expected->form).field;
  if (field != refused->param)
    context.add(expected->place, "start", {}, "refused because of " + field, refused->message);
  return false;
}

/// What the player reported, placed at the `never` about it.
void take_reports(const judge_context& context) {
  for (auto report : context.outcome.violations) {
    for (const auto& it : context.of.expectations) {
      const auto* never = std::get_if<never_form>(&it.form);
      if (report.place.empty() && never && never->name == report.name && is_meant(it, context.it))
        report.place = it.place;
    }
    context.found.push_back(std::move(report));
  }
}

bool is_prefix(const std::vector<token_id>& a, const std::vector<token_id>& b) {
  const auto size = std::min(a.size(), b.size());
  return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin());
}

scenario_finish finish_of(const audit_log& log, std::int32_t request) {
  const auto found = log.find({scenario_event_kind::finish, request, 0, 0});
  return found ? log.final_of(log.entries()[found->order]).finish : scenario_finish::none;
}

std::string text_of(scenario_finish finish, const std::vector<token_id>& tokens) {
  std::string ids;
  for (std::size_t i = 0; i < std::min<std::size_t>(tokens.size(), 8); ++i)
    ids += fmt::format(" {}", tokens[i]);
  return fmt::format("{} with {} tokens:{}{}", name_of(finish), tokens.size(), ids,
                     tokens.size() > 8 ? " ..." : "");
}

}  // namespace

std::string text_of(const scenario_bounds& bounds) {
  const auto number = [&](std::int64_t value) {
    return bounds.is_time ? microseconds_text(value) : fmt::format("{}", value);
  };
  if (bounds.min && bounds.max && *bounds.min == *bounds.max) return number(*bounds.min);
  if (bounds.min && bounds.max)
    return fmt::format("{} to {}", number(*bounds.min), number(*bounds.max));
  return bounds.min ? "at least " + number(*bounds.min) : "at most " + number(*bounds.max);
}

std::vector<violation> judge(const scenario& of, const scenario_case& it,
                             const run_outcome& outcome) {
  std::vector<violation> found;
  // What was refused may be what the oracle can't work with.
  const auto oracle = outcome.refused ? std::vector<oracle_answer>() : ask_oracle(of, it);
  const judge_context context{of, it, outcome, oracle, found};
  if (!judge_start(context)) return found;
  take_reports(context);
  judge_requests(context);
  judge_steps(context);
  if (!outcome.violations.empty()) return found;  // cut short: what it expects can't be told
  for (std::size_t i = 0; i < of.expectations.size(); ++i)
    if (is_meant(of.expectations[i], it)) judge_expectation(context, i);
  return found;
}

std::vector<violation> compare_with_shadow(const scenario& of, const run_outcome& outcome,
                                           const run_outcome& shadow) {
  std::vector<violation> found;
  if (shadow.refused) {
    found.push_back({of.path, "same_tokens_as", "an engine that starts", shadow.refused->message});
    return found;
  }
  for (std::size_t i = 0; i < of.requests.size(); ++i) {
    const auto request = static_cast<std::int32_t>(i);
    const auto tokens = tokens_of(outcome.log, request, no_index);
    const auto other = tokens_of(shadow.log, request, no_index);
    const auto finish = finish_of(outcome.log, request);
    const auto other_finish = finish_of(shadow.log, request);
    const bool is_aborted =
      finish == scenario_finish::abort || other_finish == scenario_finish::abort;
    if (is_aborted ? is_prefix(tokens, other)
                   : finish == other_finish && tokens == other &&
                       logprobs_of(outcome.log, request, no_index) ==
                         logprobs_of(shadow.log, request, no_index))
      continue;
    violation it;
    it.place = of.path;
    it.name = "same_tokens_as";
    it.wanted = text_of(other_finish, other);
    it.seen = text_of(finish, tokens);
    it.request = request;
    found.push_back(std::move(it));
  }
  return found;
}

}  // namespace deepinfer
