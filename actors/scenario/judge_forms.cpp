#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "actors/scenario/counts.hpp"
#include "actors/scenario/judge_context.hpp"
#include "config/scenario_names.hpp"
#include "config/units.hpp"

namespace deepinfer {

namespace {

std::string_view text_of(step_kind kind) {
  switch (kind) {
  case step_kind::prefill: return "prefill";
  case step_kind::decode: return "decode";
  case step_kind::mixed: return "mixed";
  case step_kind::empty: break;
  }
  return "empty";
}

/// One expectation against the entries before `until`.
class form_judge {
public:
  form_judge(const judge_context& context, const scenario_expectation& expectation,
             std::size_t index, std::size_t until)
    : context_(context),
      log_(context.log()),
      expectation_(expectation),
      index_(index),
      until_(until) {}

  void operator()(const request_form& form) const {
    for (const auto request : form.requests) check_request(form, request);
  }

  void operator()(const metric_form& form) const {
    const auto* asked = log_.asked_entry(index_);
    const auto sample = asked ? log_.sample_of(*asked) : std::nullopt;
    const auto name = "metric " + form.metric;
    if (!sample)
      wrong(name, deepinfer::text_of(form.bounds), "it was not sampled");
    else if (!form.bounds.holds(*sample))
      wrong(name, deepinfer::text_of(form.bounds),
            form.bounds.is_time ? microseconds_text(*sample) : fmt::format("{}", *sample));
  }

  void operator()(const count_form& form) const {
    const auto count = count_of(log_, context_.it, form, expectation_.rank, until_);
    if (!form.bounds.holds(count))
      wrong("count " + form.count, deepinfer::text_of(form.bounds), fmt::format("{}", count));
  }

  void operator()(const never_form& form) const {
    if (!form.requests.empty()) judge_never(context_, expectation_, until_);
  }

  void operator()(const step_form& form) const {
    const auto rank = expectation_.rank.value_or(0);
    const auto index = log_.step_index(rank, form.step);
    const auto name = fmt::format("step {}", form.step);
    if (index == no_index || log_.steps()[index].launch_order >= until_) {
      wrong(name, "launched", "never launched");
      return;
    }
    check_step(form, name, log_.steps()[index]);
  }

  // Tokens, and an end that they bring, are sent when their step settles. The log has them when
  // they arrive: at the same time, but maybe behind a launch of that time.
  std::optional<audit_log::occurrence> when(const scenario_event& event) const {
    auto found = log_.find(event);
    if (!found) return found;
    const auto& entry = log_.entries()[found->order];
    const bool is_end = entry.kind == audit_kind::finished &&
                        (log_.final_of(entry).finish == scenario_finish::stop ||
                         log_.final_of(entry).finish == scenario_finish::length);
    if (entry.step == 0 || (entry.kind != audit_kind::tokens && !is_end)) return found;
    const auto index = log_.step_index(entry.rank, entry.step);
    if (index == no_index || log_.steps()[index].settle_order >= found->order) return found;
    constexpr std::int64_t most_events_of_an_entry = 1 << 20;
    found->sub += static_cast<std::int64_t>(found->order) * most_events_of_an_entry;
    found->order = log_.steps()[index].settle_order;
    return found;
  }

  void operator()(const order_form& form) const {
    std::optional<audit_log::occurrence> before;
    for (std::size_t i = 0; i < form.events.size(); ++i) {
      const auto found = when(form.events[i]);
      if (!found || found->order >= until_) {
        wrong("order", form.names[i], "it never happened");
        return;
      }
      if (before && !(*before < *found)) {
        wrong("order", fmt::format("{} before {}", form.names[i - 1], form.names[i]),
              fmt::format("{} at {}, {} at {}", form.names[i - 1], microseconds_text(before->us),
                          form.names[i], microseconds_text(found->us)));
        return;
      }
      before = found;
    }
  }

  void operator()(const decisions_form& form) const {
    const auto group = expectation_.rank.value_or(0) / context_.it.engine.ranks_per_group();
    std::vector<std::string_view> wanted, seen;
    for (const auto kind : form.kinds) wanted.push_back(text_of(kind));
    for (const auto& step : group_steps(log_, context_.it.engine, group, until_))
      if (step.step >= form.from && seen.size() < wanted.size()) seen.push_back(text_of(step.kind));
    if (seen != wanted)
      wrong("decisions", fmt::format("{}", fmt::join(wanted, ", ")),
            fmt::format("{}", fmt::join(seen, ", ")));
  }

  void operator()(const equal_form& form) const {
    const bool is_rank =
      form.what == scenario_equal::collectives || form.what == scenario_equal::placement;
    for (std::size_t i = 1; i < form.of.size(); ++i) {
      // A case of the matrix may have fewer ranks.
      if (is_rank && std::max(form.of[0], form.of[i]) >= log_.ranks()) continue;
      if (is_equal(form, form.of[0], form.of[i])) continue;
      const auto name_of = [&](std::int32_t of) {
        return is_rank ? fmt::format("rank{}", of) : context_.id_of(of);
      };
      wrong("equal", "those of " + name_of(form.of[0]), "others of " + name_of(form.of[i]),
            is_rank ? -1 : form.of[i]);
    }
  }

  void operator()(const refused_form&) const {}  // judged before everything else

private:
  void wrong(std::string name, std::string wanted, std::string seen,
             std::int32_t request = -1) const {
    const auto us =
      until_ < log_.entries().size() ? log_.entries()[until_].us : context_.outcome.end_us;
    context_.add(expectation_.place, std::move(name),
                 {us, expectation_.rank.value_or(-1), 0, request}, std::move(wanted),
                 std::move(seen));
  }

  /// First entry of a kind for a request, before `until`.
  const audit_entry* first(audit_kind kind, std::int32_t request) const {
    for (const auto& entry : log_.entries().first(std::min(until_, log_.entries().size())))
      if (entry.kind == kind && entry.request == request) return &entry;
    return nullptr;
  }

  void check_request(const request_form& form, std::int32_t request) const {
    const auto* finished = first(audit_kind::finished, request);
    const auto final = finished ? log_.final_of(*finished) : audit_final();
    const auto ids = tokens_of(log_, request, until_);
    const auto tokens = std::ssize(ids);
    check_end(form, request, final);
    if (!form.tokens.holds(tokens))
      wrong("request", deepinfer::text_of(form.tokens) + " tokens", fmt::format("{}", tokens),
            request);
    if (form.ids && *form.ids != ids)
      wrong("request", fmt::format("ids {}", fmt::join(*form.ids, " ")),
            fmt::format("{}", fmt::join(ids, " ")), request);
    if (!form.cached.holds(final.usage.cached_tokens))
      wrong("request", deepinfer::text_of(form.cached) + " cached tokens",
            fmt::format("{}", final.usage.cached_tokens), request);
    if (form.reasoning_tokens && *form.reasoning_tokens != final.usage.reasoning_tokens)
      wrong("request", fmt::format("{} reasoning tokens", *form.reasoning_tokens),
            fmt::format("{}", final.usage.reasoning_tokens), request);
    check_time("finish", form.within_us, request, finished);
    check_time("first token", form.first_token_within_us, request,
               first(audit_kind::tokens, request));
  }

  void check_end(const request_form& form, std::int32_t request, const audit_final& final) const {
    const bool is_any = form.finish.empty() || std::find(form.finish.begin(), form.finish.end(),
                                                         final.finish) != form.finish.end();
    if (!is_any) {
      std::vector<std::string_view> names;
      for (const auto finish : form.finish) names.push_back(name_of(finish));
      wrong("request", fmt::format("finish {}", fmt::join(names, " or ")),
            std::string(name_of(final.finish)), request);
    }
    if (!form.code.empty() && form.code != name_of(final.code))
      wrong("request", "code " + form.code, std::string(name_of(final.code)), request);
  }

  void check_time(const char* what, std::optional<std::int64_t> within_us, std::int32_t request,
                  const audit_entry* seen) const {
    if (!within_us) return;
    const auto wanted = fmt::format("{} within {}", what, microseconds_text(*within_us));
    const auto* from = first(audit_kind::submitted, request);
    if (!from || !seen)
      wrong("request", wanted, "none", request);
    else if (seen->us - from->us > *within_us)
      wrong("request", wanted, "after " + microseconds_text(seen->us - from->us), request);
  }

  void check_step(const step_form& form, const std::string& name, const audit_step& step) const {
    std::map<std::int32_t, std::int32_t> widths;
    std::int32_t width = 0;
    const auto rows = log_.rows(step);
    const auto results = log_.results(step);
    for (const auto& row : rows) width += row.width;
    // Where the device splits a smaller total, only its result tells the widths.
    const bool is_split = width > step.total_width;
    for (std::size_t i = 0; i < rows.size(); ++i)
      widths[rows[i].request] =
        is_split && results[i].width >= 0 ? results[i].width : rows[i].width;
    width = std::min(width, step.total_width);
    if (form.kind && *form.kind != step.kind)
      wrong(name, fmt::format("kind {}", text_of(*form.kind)), std::string(text_of(step.kind)));
    if (!form.rows.empty() && form.rows != widths)
      wrong(name, "rows " + row_text(form.rows), row_text(widths));
    check_number(name, "row_count", form.row_count, step.rows);
    check_number(name, "width", form.width, width);
    check_number(name, "bucket", form.bucket, step.bucket);
  }

  std::string row_text(const std::map<std::int32_t, std::int32_t>& rows) const {
    std::vector<std::string> parts;
    for (const auto& [request, width] : rows)
      parts.push_back(fmt::format("{}: {}", context_.id_of(request), width));
    return fmt::format("{{ {} }}", fmt::join(parts, ", "));
  }

  void check_number(const std::string& name, const char* what, std::optional<std::int32_t> wanted,
                    std::int32_t seen) const {
    if (wanted && *wanted != seen)
      wrong(name, fmt::format("{} {}", what, *wanted), fmt::format("{}", seen));
  }

  bool is_equal(const equal_form& form, std::int32_t a, std::int32_t b) const {
    switch (form.what) {
    case scenario_equal::tokens: return tokens_of(log_, a, until_) == tokens_of(log_, b, until_);
    case scenario_equal::logprobs:
      return logprobs_of(log_, a, until_) == logprobs_of(log_, b, until_);
    case scenario_equal::collectives: break;
    case scenario_equal::placement: return is_same(log_.placements(a), log_.placements(b));
    }
    return is_same(log_.collectives(a), log_.collectives(b));
  }

  static bool is_same(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

  const judge_context& context_;
  const audit_log& log_;
  const scenario_expectation& expectation_;
  std::size_t index_;
  std::size_t until_;
};

}  // namespace

void judge_expectation(const judge_context& context, std::size_t index) {
  const auto& expectation = context.of.expectations[index];
  const auto& when = expectation.when;
  std::size_t until = no_index;
  if (when.at_us || when.after) {
    const auto* asked = context.log().asked_entry(index);
    if (!asked) {
      context.add(expectation.place, "moment", {context.outcome.end_us},
                  when.after ? deepinfer::text_of(*when.after, context.of)
                             : microseconds_text(*when.at_us),
                  "it never came");
      return;
    }
    until = static_cast<std::size_t>(asked - context.log().entries().data());
  }
  std::visit(form_judge(context, expectation, index, until), expectation.form);
}

}  // namespace deepinfer
