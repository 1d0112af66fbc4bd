/// What all step programs of a runner share on the device, and the sampling of a group of rows over
/// it. Only the compute stream touches it.
///
/// sample_group: ids of the group's queries, acceptance, what its sequences carry on, their drafts.
/// Errors: std::bad_alloc, as of lazy_array; a failed row has its status in the group.
/// Source: architecture.md 3, 4.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/sampling/slot_sampling.hpp"
#include "runtime/model/deepseek_v41.hpp"
#include "runtime/model/drafter.hpp"
#include "runtime/model/row_columns.hpp"
#include "runtime/model/row_group.hpp"
#include "runtime/model/thread_scratch.hpp"

namespace deepinfer {

struct step_device_state {
  step_device_state(std::shared_ptr<const model_weights> weights, kv_layout layout,
                    const runner_config& config);

  kernels::carried_view slots() { return carried.view(kv.length.data(), kv.newest.data()); }
  group_limits limits() const;

  runner_config config;
  kv_state kv;
  deepseek_v41 model;
  std::unique_ptr<drafter> drafts;              ///< null: none are made
  carried_columns carried;                      ///< of the slots
  lazy_array<kernels::slot_sampling> sampling;  ///< [slots]

  lazy_array<std::int32_t> token_id, token_slot, token_position, row_token,
    row_first;                         ///< [tokens]
  lazy_array<float> survival;          ///< [rows]
  lazy_array<std::int32_t> heap;       ///< [rows]
  lazy_array<float> logits;            ///< [queries, vocab] of rows that need no host
  lazy_array<std::int32_t> draft_ids;  ///< [rows, drafts]
  lazy_array<float> draft_confidence;  ///< [rows, drafts]
  thread_scratch sample_scratch, reject_scratch;
};

/// What a group's rows are in their step; device arrays.
struct step_rows {
  const std::int32_t* slot = nullptr;            ///< [rows of the step]
  const std::int32_t* row_begin = nullptr;       ///< [rows of the step + 1]
  const std::int32_t* first_position = nullptr;  ///< [rows of the step]
  kernels::carried_view after{};                 ///< rows of the step
};

/// `logits` [queries of the group, vocab]; `masks` [queries] or null, as of sample_rows.
void sample_group(const stream_ref& stream, step_device_state& shared, const step_rows& rows,
                  row_group& group, const float* logits, const std::uint32_t* const* masks);

}  // namespace deepinfer
