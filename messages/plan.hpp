/// One step between scheduler and worker: the plan that is launched, the result that is settled.
/// Columns, not row structs; index i is a row. Vectors keep their capacity when reused.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "messages/request.hpp"
#include "runtime/base/device_work.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

enum class step_kind : std::uint8_t { empty, prefill, decode, mixed };
enum class row_kind : std::uint8_t { prefill, decode };

/// Remap: where a row takes its newest token and length from. >= 0: that row of the newest launched
/// step (same sequence and epoch, injective) [I26].
inline constexpr std::int32_t from_fresh = -1;  ///< host values: `tokens`, `position`
inline constexpr std::int32_t from_slot =
  -2;  ///< carried in the sequence's slot from an older step

/// Told to the device once per epoch of a sequence, with its first row: resets the slot.
struct slot_start {
  slot_id slot;
  seq_id sequence;
  std::uint32_t epoch = 0;
  std::int32_t prompt_tokens = 0;  ///< ids of the original prompt: outputs begin at this position
  std::int32_t outputs = 0;  ///< outputs already known when the epoch starts (after preemption)
  std::shared_ptr<const sampling_params> params;
};

/// scheduler -> worker. Immutable once sent.
struct step_plan {
  step_id step;
  step_kind kind = step_kind::empty;

  // Rows, in batch order. All of these have one entry per row.
  std::vector<seq_id> sequences;
  std::vector<std::uint32_t> epochs;
  std::vector<slot_id> slots;
  std::vector<row_kind> kinds;
  std::vector<std::int32_t> sources;  ///< the remap
  std::vector<std::int32_t> widths;   ///< query tokens: chunk length, or 1 + drafts
  std::vector<std::int32_t>
    positions;  ///< of the row's first query: exact if fresh, else an upper bound
  std::vector<std::int32_t> yields_max;  ///< most tokens the row can give (0: not a final chunk)
  std::vector<std::int32_t> yields_min;  ///< fewest

  /// Host ids of fresh rows: row i owns tokens[token_begin[i], token_begin[i + 1]); a carried row
  /// owns none. token_begin has rows + 1 entries.
  std::vector<std::int32_t> token_begin;
  std::vector<token_id> tokens;

  /// Blocks appended to the row's block table by this step, in stream order before its forward:
  /// row i's blocks[block_begin[i], block_begin[i + 1]) go to ordinals table_begin[i], ...
  std::vector<std::int32_t> table_begin;
  std::vector<std::int32_t> block_begin;
  std::vector<block_id> blocks;

  std::vector<slot_start> starts;

  std::int32_t rows() const { return static_cast<std::int32_t>(sequences.size()); }
  std::span<const token_id> row_tokens(std::int32_t row) const {
    const auto i = static_cast<std::size_t>(row);
    return std::span(tokens).subspan(static_cast<std::size_t>(token_begin[i]),
                                     static_cast<std::size_t>(token_begin[i + 1] - token_begin[i]));
  }
  std::span<const block_id> row_blocks(std::int32_t row) const {
    const auto i = static_cast<std::size_t>(row);
    return std::span(blocks).subspan(static_cast<std::size_t>(block_begin[i]),
                                     static_cast<std::size_t>(block_begin[i + 1] - block_begin[i]));
  }

  /// Empties every column, keeping capacity; `token_begin` and `block_begin` start with 0.
  void clear();
};

/// worker -> scheduler, once per step, in launch order. On failure (`code` not ok) the token
/// columns are empty and every row of the plan has failed.
struct step_result {
  step_id step;
  errc code = errc::ok;
  std::vector<seq_id> sequences;
  std::vector<std::uint32_t> epochs;
  /// Row i gave tokens[token_begin[i], token_begin[i + 1]); rows + 1 entries.
  std::vector<std::int32_t> token_begin;
  std::vector<token_id> tokens;
  /// One per token where any row asked for logprobs, else empty; an entry without ids: not asked.
  std::vector<token_logprobs> logprobs;
  phase_times times;
  const char* what = "";  ///< more about a failure: a literal

  std::span<const token_id> row_tokens(std::int32_t row) const {
    const auto i = static_cast<std::size_t>(row);
    return std::span(tokens).subspan(static_cast<std::size_t>(token_begin[i]),
                                     static_cast<std::size_t>(token_begin[i + 1] - token_begin[i]));
  }
  void clear();
};

}  // namespace deepinfer
