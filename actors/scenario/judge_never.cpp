#include <algorithm>
#include <map>
#include <set>

#include "actors/scenario/judge_context.hpp"
#include "config/scenario_names.hpp"

namespace deepinfer {

namespace {

bool contains(const std::vector<std::int32_t>& list, std::int32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Entries that the property forbids; each is said once.
class never_judge {
public:
  never_judge(const judge_context& context, const scenario_expectation& expectation,
              std::size_t until)
    : context_(context),
      log_(context.log()),
      place_(expectation.place),
      form_(std::get<never_form>(expectation.form)),
      entries_(log_.entries().first(std::min(until, log_.entries().size()))) {}

  void run() {
    if (form_.name == "block_shared_by") return shared();
    if (form_.name == "preempted") return preempted();
    after();
  }

private:
  void wrong(const audit_entry& entry, std::int32_t request, std::string seen) const {
    context_.add(place_, form_.name, {entry.us, entry.rank, entry.step, request}, "never",
                 std::move(seen));
  }

  void preempted() const {
    for (const auto& entry : entries_)
      if (entry.kind == audit_kind::happened && entry.what == scenario_event_kind::preempted &&
          contains(form_.requests, entry.request))
        wrong(entry, entry.request, context_.id_of(entry.request) + " was preempted");
  }

  /// A block is shared while two of the requests hold it, however often each.
  void shared() const {
    using place = std::pair<std::int32_t, block_id>;  // rank, block
    std::map<place, std::map<std::int32_t, int>> holders;
    for (const auto& entry : entries_) {
      const bool is_held = entry.kind == audit_kind::held;
      if ((!is_held && entry.kind != audit_kind::let_go) ||
          !contains(form_.requests, entry.request))
        continue;
      for (const auto block : log_.blocks_of(entry)) {
        auto& of = holders[{entry.rank, block}];
        if (is_held)
          ++of[entry.request];
        else if (--of[entry.request] <= 0)
          of.erase(entry.request);
        if (is_held && of.size() > 1)
          wrong(entry, entry.request,
                fmt::format("block {} of {} is also held by {}", block.value,
                            context_.id_of(entry.request), other_holder(of, entry.request)));
      }
    }
  }

  std::string other_holder(const std::map<std::int32_t, int>& holders, std::int32_t request) const {
    for (const auto& [other, count] : holders)
      if (other != request) return context_.id_of(other);
    return {};
  }

  void after() const {
    const auto from = log_.find(*form_.event);
    if (!from) return;
    const auto request = form_.requests.front();
    const auto event = text_of(*form_.event, context_.of);
    for (std::size_t order = from->order + 1; order < entries_.size(); ++order) {
      const auto& entry = entries_[order];
      if (form_.name == "token_after") {
        if (entry.kind == audit_kind::tokens && entry.request == request)
          wrong(entry, request, fmt::format("{} tokens after {}", entry.count, event));
        continue;
      }
      if (entry.kind != audit_kind::launched) continue;
      const auto& step = log_.steps()[entry.index];
      for (const auto& row : log_.rows(step))
        if (row.request == request)
          wrong(entry, request, fmt::format("a row in step {} after {}", step.step, event));
    }
  }

  const judge_context& context_;
  const audit_log& log_;
  const std::string& place_;
  const never_form& form_;
  std::span<const audit_entry> entries_;
};

}  // namespace

void judge_never(const judge_context& context, const scenario_expectation& expectation,
                 std::size_t until) {
  never_judge(context, expectation, until).run();
}

}  // namespace deepinfer
