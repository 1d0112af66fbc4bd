/// What a plan brings to the device: host columns of one staging ring slot and their device copies.
///
/// `fill` writes the host side only (worker thread), `copy_in` copies what is used of it (copy-in
/// stream). Sized once by the runner_config: nothing is allocated later. Sizes that a plan exceeds
/// are a scheduler's error (DI_CHECK).
/// Source: messages/plan.hpp; architecture.md 3 steps 3 and 4.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sampling/slot_sampling.hpp"
#include "kernels/step/copy_blocks.hpp"
#include "messages/plan.hpp"
#include "runtime/base/check.hpp"
#include "runtime/model/lazy_array.hpp"
#include "runtime/model/step_runner.hpp"

namespace deepinfer {

/// A host column and its device copy.
template <class T>
class staged_column {
public:
  staged_column() = default;
  explicit staged_column(std::int64_t capacity) : host_(capacity), device_(capacity) {}

  void clear() { used_ = 0; }
  /// Room for so many entries, instead of what the column holds now.
  void reserve(std::int64_t capacity) {
    if (capacity > host_.size()) *this = staged_column(capacity);
  }
  void put(const T& value) {
    DI_CHECK(used_ < host_.size(), "column of {} entries is full", used_);
    host_[used_++] = value;
  }
  void copy_in() { std::copy_n(host_.data(), used_, device_.data()); }
  std::int32_t size() const { return static_cast<std::int32_t>(used_); }
  const T* host() const { return host_.data(); }
  const T* device() const { return device_.data(); }

private:
  lazy_array<T> host_, device_;
  std::int64_t used_ = 0;
};

struct step_inputs {
  explicit step_inputs(const runner_config& config);

  /// Everything of `plan` but the sampling parameters of its starts, which the caller puts.
  void fill(const step_plan& plan);
  void copy_in();

  std::int32_t rows = 0;
  std::int32_t tokens = 0;          ///< of the step: padding fills what its rows do not have
  std::int64_t position_limit = 0;  ///< every position of the step is below

  staged_column<std::int32_t> slot, source, planned, width;  ///< [rows]
  staged_column<std::int32_t> fresh_begin;                   ///< [rows] (of fresh rows)
  staged_column<std::int32_t> fresh;                         ///< ids the host knew
  staged_column<std::int32_t> table_begin;                   ///< [rows]
  staged_column<std::int32_t> block_begin;                   ///< [rows + 1]
  staged_column<std::int32_t> blocks;
  std::int32_t kept_tokens = -1;  ///< of step_tokens; set by whoever fills the starts' sampling

  staged_column<std::int32_t> start_slot, start_position;  ///< [starts]
  staged_column<std::int32_t> start_late;                  ///< [starts] of replay, else empty
  staged_column<kernels::slot_sampling> start_sampling;    ///< [starts]
  staged_column<kernels::block_copy> moves;                ///< grows: a plan may bring any number

private:
  template <class Call>
  void for_each_column(Call call) {
    for (auto* column : {&slot, &source, &planned, &width, &fresh_begin, &fresh, &table_begin,
                         &block_begin, &blocks, &start_slot, &start_position, &start_late})
      call(*column);
    call(start_sampling);
    call(moves);
  }
  void put_row(const step_plan& plan, std::int32_t row);

  const std::int32_t width_max_;  ///< of a decode row
};

}  // namespace deepinfer
