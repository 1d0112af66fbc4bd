/// What happened in a run, in order: filled by whoever plays the scenario, read by the judge.
///
/// Append-only. Times are microseconds of the virtual clock and never go back; the place of an
/// entry in the log (its `order`) decides between equal times. Requests are indices into
/// `scenario::requests`; sequences of nobody (warm-up, padding) are not told. Columns of plain
/// numbers; nothing is checked here, so that the judge sees what was done, not what is allowed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/scenario.hpp"
#include "messages/plan.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// A broken rule or expectation. `place` is "FILE:LINE", or empty for what is always checked.
struct violation {
  std::string place{};
  std::string name{};  ///< of the property, or of the expectation's form
  std::string wanted{}, seen{};
  std::int64_t us = -1;
  std::int32_t rank = -1;
  std::int64_t step = 0;
  std::int32_t request = -1;
};

/// A row of a launched step, as the plan has it.
struct audit_row {
  std::int32_t request = -1;
  std::uint32_t epoch = 0;
  row_kind kind = row_kind::decode;
  std::int32_t width = 0;
  std::int32_t position = 0;  ///< of its first query; an upper bound where it is carried
  std::int32_t source = from_fresh;
  std::int32_t yields_min = 0, yields_max = 0;
  std::int32_t table_blocks = 0;  ///< blocks in its table, those of this step included
  bool is_gated = false;
  std::vector<block_id> added{};  ///< the last of them: what this step appends
};

struct audit_final {
  scenario_finish finish = scenario_finish::none;
  errc code = errc::ok;
  usage_counts usage{};
};

enum class audit_kind : std::uint8_t {
  submitted,
  tokens,    ///< `count` tokens from `index` on, outputs number, number + 1, ... from 0
  finished,  ///< `index` of its final record
  launched,  ///< `index` of its step
  settled,   ///< `index` of its step; no_index: no such step is in flight
  happened,  ///< `what`: preempted, resumed, paused, ...
  waited,    ///< for step `number`
  held,      ///< `count` blocks from `index` on
  let_go,
  depth_set,  ///< to `number`
  restarted,  ///< the rank: what it had in flight is gone
  asked,      ///< expectation `number`: a sample, or where a count is taken
};

struct audit_entry {
  std::int64_t us = 0;
  audit_kind kind = audit_kind::submitted;
  scenario_event_kind what = scenario_event_kind::paused;
  std::int32_t request = -1;
  std::int32_t rank = 0;
  std::int64_t number = 0;
  std::int64_t step = 0;  ///< that tokens or a final record came from; 0: none; settled: of its ids
  std::size_t index = 0;
  std::int32_t count = 0;
};

inline constexpr std::size_t no_index = static_cast<std::size_t>(-1);

struct audit_step {
  std::int32_t rank = 0;
  std::int64_t step = 0;
  step_kind kind = step_kind::empty;
  std::int32_t total_width = 0;  ///< as in step_plan
  std::int32_t bucket = 0;
  std::int64_t launched_us = 0;
  std::size_t launch_order = 0;
  std::size_t plan_order = 0;  ///< of the first entry that its plan knew nothing of
  std::size_t settle_order = no_index;
  bool has_failed = false;
  std::size_t row_begin = 0;
  std::int32_t rows = 0;
};

/// What a settled row gave; -1: its step has not settled, or has failed.
struct audit_row_result {
  std::int32_t width = -1;
  std::int32_t tokens = -1;
};

class audit_log {
public:
  audit_log(std::size_t requests, std::int32_t ranks);

  // --- filled by the player ---
  void submitted(std::int64_t us, std::int32_t request);
  /// Sent to the client; `step`: of `rank`, that gave them, 0 where none did. `logprobs`: empty, or
  /// one per token.
  void tokens(std::int64_t us, std::int32_t request, std::int32_t rank, std::int64_t step,
              std::int32_t first_output, std::span<const token_id> ids,
              std::span<const float> logprobs = {});
  void finished(std::int64_t us, std::int32_t request, std::int32_t rank, std::int64_t step,
                const audit_final& final);
  /// The step's plan stands, though it may be launched much later: what comes in between changes
  /// nothing of it. Not told: it was made when it was launched.
  void planned(std::int32_t rank, std::int64_t step);
  void launched(std::int64_t us, std::int32_t rank, std::int64_t step, step_kind kind,
                std::int32_t total_width, std::int32_t bucket, std::span<const audit_row> rows);
  /// `results`: one per row, or empty where the step has failed.
  void settled(std::int64_t us, std::int32_t rank, std::int64_t step, bool has_failed,
               std::span<const audit_row_result> results, std::span<const token_id> ids = {});
  /// preempted and resumed (of a request), rank_dead (of a rank), and what is of nobody.
  void happened(std::int64_t us, scenario_event_kind what, std::int32_t of = -1);
  void waited(std::int64_t us, std::int32_t rank, std::int64_t step);
  void held(std::int64_t us, std::int32_t rank, std::int32_t request,
            std::span<const block_id> blocks);
  void let_go(std::int64_t us, std::int32_t rank, std::int32_t request,
              std::span<const block_id> blocks);
  void depth_set(std::int64_t us, std::int32_t depth);
  void restarted(std::int64_t us, std::int32_t rank);
  /// The moment of an expectation with `at` or `after`, or a metric's at the end, has come.
  void asked(std::int64_t us, std::size_t expectation, std::optional<std::int64_t> sample = {});

  /// Highest written position + 1 of a request, so far.
  void written(std::int32_t request, std::int32_t end);
  /// Token rows given to dispatch, summed over layers: these more.
  void routed(std::int32_t rank, std::int64_t rows);
  /// One collective that a rank entered, as a digest of tag, sizes and bucket.
  void collective(std::int32_t rank, std::uint64_t digest);
  /// The placement that a rank has applied.
  void placed(std::int32_t rank, std::uint64_t digest);

  // --- read by the judge, and by the player who waits for an event ---
  struct occurrence {
    std::size_t order = 0;
    std::int64_t us = 0;
    std::int64_t sub = 0;  ///< decides between events of one entry

    friend bool operator<(const occurrence& a, const occurrence& b) {
      return std::pair(a.order, a.sub) < std::pair(b.order, b.sub);
    }
  };
  /// The first time an event happened.
  std::optional<occurrence> find(const scenario_event& event) const;

  std::span<const audit_entry> entries() const { return entries_; }
  std::span<const audit_step> steps() const { return steps_; }
  std::span<const audit_row> rows(const audit_step& step) const;
  std::span<const audit_row_result> results(const audit_step& step) const;
  /// The newest step of this number that was launched on the rank, or no_index.
  std::size_t step_index(std::int32_t rank, std::int64_t step) const;
  std::span<const token_id> ids_of(const audit_entry& tokens_or_settled) const;
  std::span<const float> logprobs_of(const audit_entry& tokens) const;  ///< empty: none were sent
  std::span<const block_id> blocks_of(const audit_entry& held_or_let_go) const;
  const audit_final& final_of(const audit_entry& finished) const { return finals_[finished.index]; }
  std::optional<std::int64_t> sample_of(const audit_entry& asked) const;
  /// The entry of an expectation's moment; null: it never came.
  const audit_entry* asked_entry(std::size_t expectation) const;

  std::int32_t written_end(std::int32_t request) const;
  std::int64_t routed_rows(std::int32_t rank) const;
  std::span<const std::uint64_t> collectives(std::int32_t rank) const;
  std::span<const std::uint64_t> placements(std::int32_t rank) const;
  std::int32_t ranks() const { return static_cast<std::int32_t>(by_rank_.size()); }
  std::size_t requests() const { return by_request_.size(); }

private:
  using point = std::optional<occurrence>;
  struct request_marks {
    point launched, preempted, resumed, finish;
    std::vector<point> tokens;  ///< by output
    std::vector<point> chunks;  ///< by prompt row launched
    std::int32_t written_end = 0;
  };
  struct step_marks {
    point launched, settled, failed;
    std::size_t newest = no_index;
    std::size_t planned = no_index;  ///< plan_order of the one that is launched next
  };
  struct rank_marks {
    std::map<std::int64_t, step_marks> steps;
    point dead;
    std::int64_t routed_rows = 0;
    std::vector<std::uint64_t> collectives, placements;
  };

  audit_entry& add(std::int64_t us, audit_kind kind);
  occurrence here(std::int64_t sub = 0) const;

  std::vector<audit_entry> entries_;
  std::vector<audit_step> steps_;
  std::vector<audit_row> rows_;
  std::vector<audit_row_result> results_;  ///< beside rows_
  std::vector<token_id> ids_;
  std::vector<float> logprobs_;
  std::map<std::size_t, std::size_t> logprob_begin_;  ///< of the entries that have some, by order
  std::vector<audit_final> finals_;
  std::vector<block_id> blocks_;
  std::vector<std::optional<std::int64_t>> samples_;
  std::map<std::size_t, std::size_t> asked_;  ///< order of the entry, by expectation
  std::vector<request_marks> by_request_;
  std::vector<rank_marks> by_rank_;
  std::array<point, 16> plain_{};  ///< by kind of event
};

}  // namespace deepinfer
