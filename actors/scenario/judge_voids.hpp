/// Which launched rows give nothing though their step settles well; for the judge of steps.
///
/// A row is void when a row of its sequence and epoch, or of a later one, has failed before it;
/// when its sequence was preempted by an engine that drops what was launched; and when its epoch
/// began behind cached blocks that a step was still to write, and this step, or one launched before
/// it, has failed. Recounted from plans alone: who writes which block follows from tables,
/// positions and widths. Errors: none.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/scenario/audit.hpp"
#include "config/scenario.hpp"

namespace deepinfer {

class void_rows {
public:
  void_rows(const audit_log& log, const scenario_engine& engine);

  void launch(const audit_step& step);
  void fail(const audit_step& step);
  void preempt(std::int32_t request, std::size_t order);
  /// Nothing of the rank goes on.
  void lose(std::int32_t rank);

  /// As things stand at entry `until` of the log.
  bool gives_nothing(const audit_step& step, const audit_row& row, std::size_t until) const;

private:
  struct request_state {
    std::uint32_t epoch = 0;       ///< of its newest row
    std::uint32_t void_below = 0;  ///< rows of earlier epochs give nothing
    std::size_t preempted = no_index;
    std::int32_t rank = -1;
    std::int64_t waits_for = 0;  ///< newest step that writes what its epoch began behind; 0: none
    std::vector<block_id> table{};
  };

  void take_hits(const audit_step& step, const audit_row& row, request_state& state);

  const audit_log& log_;
  const scenario_engine& engine_;
  std::vector<request_state> requests_;
  std::vector<std::map<block_id, std::int64_t>> writers_;  ///< by rank: newest step, by block
};

}  // namespace deepinfer
