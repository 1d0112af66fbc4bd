#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "actors/scenario/counts.hpp"
#include "actors/scenario/judge_context.hpp"
#include "actors/scenario/judge_voids.hpp"

namespace deepinfer {

namespace {

/// Replays launches and settles. Committed positions, outputs and what is in flight are recounted
/// here from plans and results, so that the engine's own books play no part. A plan is held against
/// what it could know: the entries before its `plan_order`.
class step_judge {
public:
  explicit step_judge(const judge_context& context)
    : context_(context),
      log_(context.log()),
      engine_(context.it.engine),
      requests_(context.of.requests.size()),
      ranks_(static_cast<std::size_t>(log_.ranks())),
      voids_(log_, engine_),
      depths_{{0, engine_.depth, engine_.depth}} {}

  void run() {
    for (std::size_t order = 0; order < log_.entries().size(); ++order) {
      const auto& entry = log_.entries()[order];
      auto& rank = ranks_[static_cast<std::size_t>(entry.rank)];
      switch (entry.kind) {
      case audit_kind::launched: launch(entry, rank); break;
      case audit_kind::settled: settle(entry, rank, order); break;
      case audit_kind::waited: wait(entry, rank); break;
      case audit_kind::restarted: lose(entry, rank); break;
      case audit_kind::depth_set: {
        const auto depth = static_cast<std::int32_t>(entry.number);
        depths_.push_back({order, depth, std::max(depths_.back().most, depth)});
        break;
      }
      case audit_kind::happened:
        if (entry.what == scenario_event_kind::rank_dead) lose(entry, rank);
        if (entry.what == scenario_event_kind::preempted) voids_.preempt(entry.request, order);
        break;
      default: break;
      }
    }
  }

private:
  struct request_state {
    bool has_rows = false;
    std::uint32_t epoch = 0;
    std::int64_t committed = 0;  ///< positions of this epoch whose rows have settled
    std::int64_t outputs = 0;    ///< that settled rows gave
  };
  struct rank_state {
    std::deque<std::size_t> in_flight;  ///< indices of steps
    std::size_t newest = no_index;
    std::map<std::int64_t, int> waits;
  };
  struct row_flight {
    std::int64_t tokens_min = 0;
    bool may_yield = false;
  };
  struct depth_change {
    std::size_t order = 0;
    std::int32_t depth = 1;
    std::int32_t most = 1;  ///< so far
  };

  request_state& of(std::int32_t request) { return requests_[static_cast<std::size_t>(request)]; }
  /// As the plan of the step knew it.
  const depth_change& depth_of(const audit_step& step) const {
    auto at = depths_.rbegin();
    while (std::next(at) != depths_.rend() && at->order >= step.plan_order) ++at;
    return *at;
  }
  void add(const char* name, const audit_entry& entry, std::int32_t request, std::string wanted,
           std::string seen) const {
    context_.add("", name, {entry.us, entry.rank, entry.number, request}, std::move(wanted),
                 std::move(seen));
  }

  void launch(const audit_entry& entry, rank_state& rank) {
    const auto& step = log_.steps()[entry.index];
    const auto rows = log_.rows(step);
    const auto& allowed = depth_of(step);
    if (std::ssize(rank.in_flight) + 1 > allowed.depth)
      add("overlap_exceeds_depth", entry, -1, fmt::format("{} steps in flight", allowed.depth),
          fmt::format("{}", rank.in_flight.size() + 1));
    check_budget(entry, step);
    check_group(entry, step);
    std::set<std::int32_t> taken;
    for (const auto& row : rows) {
      auto& state = of(row.request);
      const bool is_first = !state.has_rows || state.epoch != row.epoch;
      if (is_first) {
        state.has_rows = true;
        state.epoch = row.epoch;
        state.committed = row.position;
      }
      const auto flight = flight_of(rank, row, step.plan_order);
      if (is_first && row.source == from_slot)
        add("row_map_broken", entry, row.request, "host values in a sequence's first row",
            "its slot");
      check_source(entry, rank, row, flight, taken);
      check_reserve(entry, row, state, allowed.most);
      check_foreseen(entry, row, state, flight);
    }
    voids_.launch(step);
    rank.in_flight.push_back(entry.index);
    rank.newest = entry.index;
  }

  /// What rows of the same sequence and epoch have in flight.
  row_flight flight_of(const rank_state& rank, const audit_row& row, std::size_t plan_order) const {
    row_flight out;
    for (const auto index : rank.in_flight) {
      const auto& step = log_.steps()[index];
      for (const auto& other : log_.rows(step)) {
        if (other.request != row.request || other.epoch != row.epoch) continue;
        if (voids_.gives_nothing(step, other, plan_order)) continue;
        out.tokens_min += other.yields_min;
        out.may_yield |= other.yields_max > 0;
      }
    }
    return out;
  }

  void check_budget(const audit_entry& entry, const audit_step& step) const {
    std::int64_t width = 0;
    for (const auto& row : log_.rows(step)) width += row.width;
    width = std::min<std::int64_t>(width, step.total_width);
    if (width > engine_.max_num_batched_tokens)
      add("budget_exceeded", entry, -1, fmt::format("{} tokens", engine_.max_num_batched_tokens),
          fmt::format("{}", width));
  }

  /// Ranks of a group that have rows do the same kind of step.
  void check_group(const audit_entry& entry, const audit_step& step) const {
    if (engine_.mixed_steps || step.kind == step_kind::empty) return;
    const auto ranks = engine_.ranks_per_group();
    const auto first = step.rank / ranks * ranks;
    for (std::int32_t rank = first; rank < first + ranks; ++rank) {
      const auto index = log_.step_index(rank, step.step);
      if (rank == step.rank || index == no_index) continue;
      const auto& other = log_.steps()[index];
      if (other.launch_order > step.launch_order) continue;  // said once, by the later one
      if (other.kind != step_kind::empty && other.kind != step.kind)
        add("kind_differs", entry, -1, fmt::format("the kind of rank {}", rank), "another kind");
    }
  }

  void check_source(const audit_entry& entry, const rank_state& rank, const audit_row& row,
                    const row_flight& flight, std::set<std::int32_t>& taken) {
    const auto broken = [&](std::string wanted, std::string seen) {
      add("row_map_broken", entry, row.request, std::move(wanted), std::move(seen));
    };
    if (row.source == from_fresh) {
      if (row.kind == row_kind::decode && flight.may_yield)
        broken("its tokens from the device", "host values, with tokens of it in flight");
      return;
    }
    if (row.source == from_slot) return;
    const auto newest =
      rank.newest == no_index ? std::span<const audit_row>() : log_.rows(log_.steps()[rank.newest]);
    if (row.source < 0 || row.source >= std::ssize(newest)) {
      broken(fmt::format("one of {} rows of the step before", newest.size()),
             fmt::format("row {}", row.source));
      return;
    }
    const auto& source = newest[static_cast<std::size_t>(row.source)];
    if (source.request != row.request || source.epoch != row.epoch)
      broken(fmt::format("a row of epoch {}", row.epoch),
             fmt::format("row {}, of '{}' in epoch {}", row.source, context_.id_of(source.request),
                         source.epoch));
    if (!taken.insert(row.source).second)
      broken("each row once", fmt::format("row {} twice", row.source));
  }

  void check_reserve(const audit_entry& entry, const audit_row& row, const request_state& state,
                     std::int32_t depth_max) {
    const auto capacity = std::int64_t{row.table_blocks} * engine_.block_size;
    const auto needed = reserved_tokens(row, engine_);
    if (capacity < needed)
      add("reserve_too_small", entry, row.request, fmt::format("blocks for {} tokens", needed),
          fmt::format("for {}", capacity));
    // Beyond what is committed: what may be in flight or, in a prefill, the whole prompt.
    const auto in_flight = std::int64_t{depth_max} * (1 + engine_.num_drafts);
    const auto prompt = std::ssize(context_.answer(row.request).prompt) + state.outputs;
    const auto most = std::max<std::int64_t>(
      needed, std::max<std::int64_t>(state.committed + in_flight, prompt) + engine_.draft_overhang);
    const auto rounded = most + engine_.block_size - 1;
    if (capacity > rounded)
      add("reserve_too_large", entry, row.request,
          fmt::format("blocks for {} tokens at most", most), fmt::format("for {}", capacity));
  }

  void check_foreseen(const audit_entry& entry, const audit_row& row, const request_state& state,
                      const row_flight& flight) const {
    if (row.kind != row_kind::decode) return;
    const auto& request = context_.of.requests[static_cast<std::size_t>(row.request)];
    const auto limit = std::min<std::int64_t>(
      request.max_tokens, engine_.max_model_len - std::ssize(context_.answer(row.request).prompt));
    if (state.outputs + flight.tokens_min >= limit)
      add("launched_past_foreseen_end", entry, row.request, fmt::format("at most {} tokens", limit),
          fmt::format("a row behind {} settled and {} certain ones", state.outputs,
                      flight.tokens_min));
  }

  void settle(const audit_entry& entry, rank_state& rank, std::size_t order) {
    const auto index = entry.index;
    if (index != no_index && log_.steps()[index].settle_order < order) {
      add("settled_twice", entry, -1, "once", "again");
      return;
    }
    if (index == no_index || rank.in_flight.empty() || rank.in_flight.front() != index) {
      add("settle_out_of_order", entry, -1,
          rank.in_flight.empty()
            ? std::string("no step")
            : fmt::format("step {}", log_.steps()[rank.in_flight.front()].step),
          fmt::format("step {}", entry.number));
      std::erase(rank.in_flight, index);
      if (index == no_index) return;
    } else {
      rank.in_flight.pop_front();
    }
    const auto& step = log_.steps()[index];
    const auto rows = log_.rows(step);
    const auto results = log_.results(step);
    if (step.has_failed) return voids_.fail(step);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& state = of(rows[i].request);
      if (voids_.gives_nothing(step, rows[i], order)) continue;
      state.outputs += results[i].tokens;
      if (rows[i].epoch == state.epoch)
        state.committed += rows[i].kind == row_kind::prefill ? results[i].width : results[i].tokens;
    }
  }

  void wait(const audit_entry& entry, rank_state& rank) {
    const auto index = log_.step_index(entry.rank, entry.number);
    if (index == no_index) return;
    const auto& step = log_.steps()[index];
    const auto rows = log_.rows(step);
    const bool is_gated =
      std::any_of(rows.begin(), rows.end(), [](const audit_row& row) { return row.is_gated; });
    const auto waits = ++rank.waits[entry.number];
    // A step that was given up is waited for again, until the device has proved it finished.
    if (waits > 1 && !is_gated && !step.has_failed)
      add("second_host_wait", entry, -1, "one wait for the step", fmt::format("{}", waits));
  }

  /// The rank's steps are gone with it, and what they would have given.
  void lose(const audit_entry& entry, rank_state& rank) {
    voids_.lose(entry.rank);
    rank = {};
  }

  const judge_context& context_;
  const audit_log& log_;
  const scenario_engine& engine_;
  std::vector<request_state> requests_;
  std::vector<rank_state> ranks_;
  void_rows voids_;
  std::vector<depth_change> depths_;
};

}  // namespace

void judge_steps(const judge_context& context) {
  step_judge(context).run();
}

}  // namespace deepinfer
