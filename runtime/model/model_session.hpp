/// A model driven by hand, without plans: given ids go in, logits and everything observed come out.
///
/// For the `logits` command and for tests. Sequences live in slots; a row feeds ids of one sequence
/// at a position the caller names: whole prompts, chunks of any size, single tokens, or, after
/// rejected drafts, an earlier position again (what lies at and above it is then as if never
/// written). Memory is held for every position of every slot.
/// Errors: invalid_argument for ids outside the vocabulary, rows beyond the sizes given, slots
/// named twice.
/// Source: model-v41.md 14.3, 15, 16.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/model/deepseek_v41.hpp"

namespace deepinfer {

struct session_config {
  numeric_mode numeric = numeric_mode::exact;
  kernels::isa kernels = kernels::best_isa();
  std::int32_t slots = 1;
  std::int32_t max_positions = 0;  ///< of one sequence
  std::int32_t max_tokens = 0;     ///< of one step; 0: max_positions
  std::int32_t block_size = 0;     ///< 0: the least multiple of all ratios that is >= 16
  std::int32_t num_drafts = 0;     ///< d, overhang w: rings hold 1 + d + w positions beyond what is
  std::int32_t draft_overhang = 0;  ///< read, so as many may be taken back
  bool with_draft = false;
  bool prefix_cache = false;              ///< blocks carry resume points (resume_point.hpp)
  std::int32_t resume_stride = 1;         ///< every so many blocks do
  replay_mode replay = replay_mode::off;  ///< bounded by state().late_begin (replay.hpp)
};

struct session_row {
  std::int32_t slot = 0;
  std::int32_t position = 0;  ///< of the first id
  std::span<const token_id> ids;
};

struct session_drafts {
  std::vector<token_id> ids;      ///< [sequences, K]
  std::vector<float> confidence;  ///< [sequences, K] raw logits
};

class model_session {
public:
  static result<std::unique_ptr<model_session>> make(std::shared_ptr<const model_weights> weights,
                                                     const session_config& config);

  /// Runs one step of these rows, in this order.
  result<void> run(const stream_ref& stream, std::span<const session_row> rows,
                   model_observer* observer = nullptr);

  /// Logits [tokens, vocab] of all tokens of the last step.
  std::vector<float> logits(const stream_ref& stream);

  /// Feeds `ids` to slot 0 from position 0 in chunks (0: whole) and returns all logits.
  result<std::vector<float>> run_all(const stream_ref& stream, std::span<const token_id> ids,
                                     std::int32_t chunk = 0, model_observer* observer = nullptr);

  /// One greedy draft pass: slot s stands at positions[s], anchors[s] belongs to the next.
  result<session_drafts> draft(const stream_ref& stream, std::span<const std::int32_t> slots,
                               std::span<const std::int32_t> positions,
                               std::span<const token_id> anchors, std::int32_t drafts,
                               model_observer* observer = nullptr);

  const model_config& config() const { return model_.config(); }
  kv_state& state() { return state_; }

private:
  model_session(std::shared_ptr<const model_weights> weights, kv_layout layout,
                const session_config& config);
  result<void> check_rows(std::span<const session_row> rows) const;

  session_config sizes_;
  kv_state state_;
  deepseek_v41 model_;
  std::vector<std::int32_t> token_id_, slot_, position_, row_token_, row_first_;
};

}  // namespace deepinfer
