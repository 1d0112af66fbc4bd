/// The classical acceptance rule: goes over ids that sample_rows chose, before verify_rows.
///
/// With p the distribution of a query (filter_row) and q the one its draft d was drawn from:
///   accepted iff p(d) > U * q(d), U of (seed, position, accept): the query's id becomes d, and the
///   row's next query is looked at; else the id is drawn from max(p - q, 0) with purpose residual
/// A row whose drafts are all accepted keeps the id that sample_rows drew for its last query.
/// So the ids that stand are distributed as without drafts. q is one-hot where draft_probs is null.
/// Greedy slots are left alone: sample_rows' id decides there, as with every rule.
/// Where p - q has no positive entry although d was rejected (rounding), sample_rows' id stays.
///
/// Shapes: below. rows == 0 is a legal call. `scratch`: filter_scratch_bytes(vocab) per thread,
/// 64-byte aligned, zero before its first use.
/// Errors: a query that sample_rows failed is left as it is, and ends its row.
/// chosen_logprobs follow the ids (log softmax of the raw logits, as in sample_rows).
/// Cost: O(vocab) per judged draft.
/// Source: architecture.md 4 ("Acceptance"); model-v41.md 12.1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sampling/adjust_logits.hpp"
#include "kernels/sampling/slot_sampling.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct reject_drafts_args {
  const float* logits = nullptr;  ///< [queries, logits_stride]
  std::int64_t logits_stride = 0;
  const std::int32_t* query_begin = nullptr;  ///< [rows + 1]
  const std::int32_t* slot = nullptr;         ///< [queries]
  const std::int32_t* position = nullptr;     ///< [queries] of the token produced
  const std::int32_t* draft = nullptr;        ///< [queries] or -1; query j of a row: its draft j
  const slot_sampling* sampling = nullptr;    ///< [slots]
  const float* draft_probs = nullptr;         ///< [slots, drafts_max, vocab] q, or null
  std::int32_t drafts_max = 0;

  const std::int32_t* history = nullptr;  ///< as of sample_rows
  const std::int32_t* tables = nullptr;
  std::int32_t table_stride = 0;
  std::int32_t block_size = 1;
  const std::uint32_t* const* masks = nullptr;  ///< [queries] as of sample_rows

  std::int32_t rows = 0;
  std::int32_t vocab = 0;
  const sample_status* status = nullptr;      ///< [queries] of sample_rows
  std::int32_t* id = nullptr;                 ///< [queries] in and out
  const std::int32_t* best_counts = nullptr;  ///< [queries] of sample_rows; < 0: no logprobs
  float* chosen_logprobs = nullptr;           ///< [queries] in and out
  void* scratch = nullptr;
};

void reject_drafts_ref(const stream_ref& stream, const reject_drafts_args& args);

}  // namespace deepinfer::kernels
