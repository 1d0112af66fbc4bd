/// One step between scheduler and worker: the plan that is launched, the result that is settled.
/// Columns, not row structs; index i is a row. Vectors keep their capacity when reused.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "messages/kv.hpp"
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
  /// Of the first query. What lies before it is in full cached blocks, the first of the row's
  /// blocks; what else the slot keeps of it is restored from the last of them.
  std::int32_t position = 0;
  std::int32_t output_limit = 0;  ///< most outputs the sequence may ever have
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
  std::vector<std::int32_t> widths;   ///< most query tokens: chunk length, or 1 + drafts
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

  /// Query tokens of the whole step: the sum of the widths. Or less, in a decode step: then each
  /// row has one, and the device gives the rest to the drafts of the largest cumulative confidence
  /// (missing ones count 1; ties: the lower row), at most width - 1 to each row.
  std::int32_t total_width = 0;
  std::int32_t bucket = 0;  ///< tokens the step is padded to; 0: it is not padded

  /// One entry per row. 1: the row is sampled when the host has sent its masks (`sample_gate`),
  /// behind the rows that need none; the step's results travel only then.
  std::vector<std::uint8_t> gated;

  /// Done in this order, before everything else the step does.
  std::vector<block_move> moves;

  bool is_gated() const {
    for (const auto row : gated)
      if (row != 0) return true;
    return false;
  }
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

/// scheduler -> worker: masks of the gated rows of a launched step, all of them at once.
///
/// Row rows[i] has one mask per query token it was planned with, counted from its first: words
/// [(mask_begin[i] + j) * words, ... + words) say what the token after query j may be (bit id % 32
/// of word id / 32). mask_begin has one entry more than rows. A chunk has one mask, for its last.
struct sample_gate {
  step_id step;
  std::int32_t words = 0;  ///< of a mask: vocabulary / 32, rounded up
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> mask_begin;
  std::vector<std::uint32_t> masks;
};

/// Why no token could be chosen for a row. The row's own fault, and the same when computed again:
/// it ends that row's sequence and nobody else's.
enum class row_error : std::uint8_t {
  none,
  bad_logits,    ///< a logit, adjusted as the request asks, is NaN or infinite
  no_candidate,  ///< every id is masked
  bad_history,   ///< an id before it is not of the vocabulary
};

/// worker -> scheduler, once per step, in launch order. On failure (`code` not ok) the token
/// columns are empty and every row of the plan has failed.
struct step_result {
  step_id step;
  errc code = errc::ok;
  std::vector<seq_id> sequences{};
  std::vector<std::uint32_t> epochs{};
  /// Row i gave tokens[token_begin[i], token_begin[i + 1]); rows + 1 entries.
  std::vector<std::int32_t> token_begin{};
  std::vector<token_id> tokens{};
  /// One per token where any row asked for logprobs, else empty; an entry without ids: not asked.
  std::vector<token_logprobs> logprobs{};
  /// Query tokens that each row really had: less than planned where the device split the step's
  /// total, 0 where its stop mask had killed the row (which then gives no token).
  std::vector<std::int32_t> widths{};
  /// What the drafter made of each row for the row behind it: [rows, drafts_per_row], ids -1 and
  /// confidences 0 in rows that yield nothing; empty without a drafter. Confidences lie in [0, 1]:
  /// the chance that a draft is accepted if all before it are. Empty: the drafter gives none.
  std::int32_t drafts_per_row = 0;
  std::vector<token_id> drafts{};
  std::vector<float> confidences{};
  /// What keeps row i from a token behind those it gave; such a row may give fewer than it was
  /// planned to. Empty: no row of the step has failed.
  std::vector<row_error> row_errors{};
  phase_times times{};
  const char* what = "";  ///< more about a failure: a literal

  std::span<const token_id> row_tokens(std::int32_t row) const {
    const auto i = static_cast<std::size_t>(row);
    return std::span(tokens).subspan(static_cast<std::size_t>(token_begin[i]),
                                     static_cast<std::size_t>(token_begin[i + 1] - token_begin[i]));
  }
  row_error error_of(std::int32_t row) const {
    return row_errors.empty() ? row_error::none : row_errors[static_cast<std::size_t>(row)];
  }
  void clear();
};

}  // namespace deepinfer
