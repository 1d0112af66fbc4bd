/// The device side of the hash model: what a step's phases do with slots, tables and KV.
///
/// forward: moves, starts, block tables, the remap, widths (the fix-up); then every row reads its
/// prefix and writes its queries. The prefix is read when forward begins and again when it ends, on
/// devices that call device_work::begin; else once. sample: tokens of all queries of a decode row
/// and the last of a chunk, as far as drafts are right; slots advance; the drafter runs.
/// sample_gated: the same for gated rows, under their masks. One phase after the other.
/// Source: scenarios 3 and 4; messages/plan.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/model/hash_state.hpp"
#include "runtime/model/hash_work.hpp"

namespace deepinfer {

class hash_program {
public:
  hash_program(const runner_config& config, const hash_model_config& model);

  canary_log& canary() { return canary_; }
  const canary_log& canary() const { return canary_; }
  hash_state& state() { return state_; }
  const hash_state& state() const { return state_; }

  void prepare(hash_work& work);
  void read_prefixes(hash_work& work);
  void forward(hash_work& work);
  void sample(hash_work& work);
  void sample_gated(hash_work& work);

  /// For tests: what the next step's rows carry from row 0 changes on one of its ways: its length,
  /// or its first draft (its token where there are none).
  void split_carry(bool is_length);

  /// Token rows given to experts, summed over layers.
  std::uint64_t routed_rows() const { return routed_rows_; }
  /// Tokens that steps were padded with.
  std::uint64_t padded_tokens() const { return padded_tokens_; }

  void reset();

private:
  /// What the newest sampled step left for the next one's remap.
  struct sampled_rows {
    step_id step;
    std::vector<seq_id> sequences;
    std::vector<std::uint32_t> epochs;
    std::vector<token_id> tokens;  ///< newest; -1 where the row gave none
    std::vector<std::int32_t> lengths;
    std::vector<std::uint8_t> is_excused;  ///< gave none: it has ended, or its gate is closed
    std::vector<token_id> drafts;          ///< [rows, num_drafts]
  };

  std::string place(const hash_work& work, std::size_t row) const;
  void mark_stale_rows(const hash_work& work);
  void mark_holes(const hash_work& work);
  void append_blocks(const hash_work& work);
  void check_row_map(const hash_work& work);
  void fit_rows(hash_work& work);
  void set_widths(hash_work& work);
  bool is_row_whole(const hash_work& work, std::size_t row);
  bool is_position_right(const hash_work& work, std::size_t row, const hash_slot& slot);
  void take_ids(hash_work& work, std::size_t row);
  void check_carry(const hash_work& work, std::size_t row, const hash_slot& slot);
  void run_row(hash_work& work, std::size_t row);

  void sample_row(hash_work& work, std::size_t row, bool has_masks);
  token_id choose(hash_work& work, std::size_t row, std::int32_t query, bool has_masks,
                  const hash_history& history);
  void advance(hash_work& work, std::size_t row, std::int32_t positions,
               const hash_history& history);
  void draft(hash_work& work, std::size_t row);
  void publish(const hash_work& work, std::size_t row);

  runner_config config_;
  hash_model_config model_;
  canary_log canary_;
  hash_state state_;
  sampled_rows newest_;
  step_id newest_forward_;
  std::vector<std::uint8_t> scratch_flags_;
  std::vector<std::int32_t> scratch_widths_;
  std::vector<float> scratch_confidences_;
  std::atomic<std::uint64_t> routed_rows_{0};
  std::atomic<std::uint64_t> padded_tokens_{0};
};

}  // namespace deepinfer
