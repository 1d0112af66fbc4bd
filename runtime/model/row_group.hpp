/// Rows of a step that are sampled together: which they are, the queries they become on the device,
/// and what they give, on both sides of the copy out.
///
/// The host knows the rows and a bound of their queries; how many queries a row really has, and
/// what they are, is device data (kernels/step/list_queries).
/// Shapes: below. Sized once; nothing is allocated later. Errors: std::bad_alloc, as of lazy_array.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sampling/sample_rows.hpp"
#include "kernels/step/list_queries.hpp"
#include "runtime/model/lazy_array.hpp"
#include "runtime/model/step_inputs.hpp"

namespace deepinfer {

/// Most alternatives a token's logprobs may have.
inline constexpr std::int32_t max_logprobs = 20;

/// Most rows and queries of a step, as arrays are sized for them.
struct group_limits {
  std::int32_t rows = 0;
  std::int32_t queries = 0;
  std::int32_t best = 0;  ///< alternatives of a token
};

/// What a group gives, on one side of the copy out.
struct group_outputs {
  explicit group_outputs(const group_limits& most)
    : query_begin(most.rows + 1),
      given(most.rows),
      ids(most.queries),
      status(most.queries),
      best_counts(most.queries),
      chosen_logprobs(most.queries),
      best_ids(std::int64_t{most.queries} * most.best),
      best_logprobs(std::int64_t{most.queries} * most.best) {}

  void copy_from(const group_outputs& other, std::int32_t rows, std::int64_t queries,
                 std::int64_t best) {
    if (rows == 0) return;
    const auto copy = [](const auto& from, auto& to, std::int64_t count) {
      std::copy_n(from.data(), count, to.data());
    };
    copy(other.query_begin, query_begin, rows + 1);
    copy(other.given, given, rows);
    copy(other.ids, ids, queries);
    copy(other.status, status, queries);
    copy(other.best_counts, best_counts, queries);
    copy(other.chosen_logprobs, chosen_logprobs, queries);
    copy(other.best_ids, best_ids, queries * best);
    copy(other.best_logprobs, best_logprobs, queries * best);
  }

  lazy_array<std::int32_t> query_begin;       ///< [rows + 1]
  lazy_array<std::int32_t> given;             ///< [rows] ids that stand
  lazy_array<std::int32_t> ids;               ///< [queries]
  lazy_array<kernels::sample_status> status;  ///< [queries]
  lazy_array<std::int32_t> best_counts;       ///< [queries]
  lazy_array<float> chosen_logprobs;          ///< [queries]
  lazy_array<std::int32_t> best_ids;          ///< [queries, best]
  lazy_array<float> best_logprobs;            ///< [queries, best]
};

struct row_group {
  explicit row_group(const group_limits& most)
    : limits(most),
      row(most.rows),
      asks(most.rows),
      token(most.queries),
      slot(most.queries),
      position(most.queries),
      draft(most.queries),
      is_alive(most.rows),
      draft_slot(most.rows),
      draft_position(most.rows),
      anchor(most.rows),
      made(most),
      copied(most) {}

  void clear() {
    row.clear();
    asks.clear();
    queries = 0;
  }
  void put(std::int32_t which, kernels::row_asks what, std::int32_t width) {
    row.put(which);
    asks.put(what);
    queries += what == kernels::row_asks::nothing      ? 0
               : what == kernels::row_asks::last_token ? 1
                                                       : width;
  }
  void copy_in() {
    row.copy_in();
    asks.copy_in();
  }
  void copy_out() { copied.copy_from(made, rows(), queries, limits.best); }
  std::int32_t rows() const { return row.size(); }

  const group_limits limits;
  staged_column<std::int32_t> row;        ///< [rows] of the step, ascending
  staged_column<kernels::row_asks> asks;  ///< [rows]
  std::int32_t queries = 0;               ///< a bound

  // On the device.
  lazy_array<std::int32_t> token, slot, position, draft;        ///< [queries]
  lazy_array<std::int32_t> is_alive;                            ///< [rows]
  lazy_array<std::int32_t> draft_slot, draft_position, anchor;  ///< [rows] for the drafter
  group_outputs made, copied;                                   ///< device side, host side
};

}  // namespace deepinfer
