/// Chooses the next token of every row of a step, and its logprobs where they are asked for.
///
///   x    = logits + bias;  penalties;  stop ids and what the grammar lacks at -inf
///   x    = (x - x_max) / temperature
///   kept = top_k highest; of these the mass before them <= top_p; of these p >= min_p * p_max
///   id   = argmax over kept of x + gumbel_noise(seed, position, target, id)
///
/// Ties go to the lowest id everywhere: in top-k, in the order of top-p, in the argmax. Below
/// greedy_temperature the id is the argmax of x and the cuts do not matter. Ids at -inf are no
/// candidates. Noise is a function of (seed, position, id) alone, and a row's arithmetic depends on
/// that row alone, so batch, row order and threads change nothing [I43].
/// Penalties count the ids at positions [0, position) of the paged history [I42].
/// Logprobs are of the raw distribution: log softmax of `logits`, before everything above.
///
/// Shapes: below. rows == 0 is a legal call. A row with slot < 0 is padding: only its id (-1),
/// status (ok) and logprob count (-1) are written. Nothing is allocated; `scratch` holds
/// sample_rows_scratch_bytes(vocab, threads) bytes, 64-byte aligned, zero before its first use, and
/// belongs to this op (it is left ready for the next call, of the same vocab and threads).
/// Errors: per row, `status`; a failed row has id -1 and no logprobs, others are not affected.
/// Precision: x in f32; masses in fixed point (keep_candidates.hpp), so that their order does not
/// matter; logprobs summed in f64. Every twin gives the same ids, statuses and alternatives, ties
/// included; logprobs of two twins differ by the last bit of the f32 at most, or, where the sum
/// nearly cancels, by rounding in f64.
/// Cost: O(vocab) a row, no full sort; O(position) more with penalties.
/// Source: architecture 4 ("Order of sampling", "Random numbers", "Acceptance").
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sampling/adjust_logits.hpp"
#include "kernels/sampling/slot_sampling.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct sample_rows_args {
  static constexpr const char* op_name = "sample_rows";
  const float* logits = nullptr;            ///< [rows, logits_stride], the first vocab of each used
  std::int64_t logits_stride = 0;           ///< >= vocab
  const std::int32_t* slots = nullptr;      ///< [rows] slot of each row, < 0: padding
  const std::int32_t* positions = nullptr;  ///< [rows] of the token produced, >= 1
  const slot_sampling* sampling = nullptr;  ///< [slots of the rank]

  // Read by rows with penalties only. The id at position p of the sequence in slot s is
  // history[tables[s * table_stride + p / block_size] * block_size + p % block_size].
  const std::int32_t* history = nullptr;  ///< [blocks, block_size]
  const std::int32_t* tables = nullptr;   ///< [slots, table_stride]
  std::int32_t table_stride = 0;
  std::int32_t block_size = 1;

  /// [rows] bits of the ids a grammar allows (bit id % 32 of word id / 32); an entry may be null:
  /// all ids. Null as a whole: no row has a grammar.
  const std::uint32_t* const* masks = nullptr;

  std::int32_t rows = 0;
  std::int32_t vocab = 0;  ///< >= 1

  std::int32_t* ids = nullptr;      ///< [rows] out
  sample_status* status = nullptr;  ///< [rows] out

  // Logprobs out; may be null when no row's slot asks for them.
  std::int32_t best_max = 0;            ///< most alternatives a row may get; caps slot.logprobs
  std::int32_t* best_counts = nullptr;  ///< [rows] out: -1 not asked, else alternatives written
  float* chosen_logprobs = nullptr;     ///< [rows] out where best_counts >= 0
  std::int32_t* best_ids = nullptr;     ///< [rows, best_max] out, best first
  float* best_logprobs = nullptr;       ///< [rows, best_max] out

  void* scratch = nullptr;
};

/// Bytes of scratch for a team of `threads`.
std::size_t sample_rows_scratch_bytes(std::int32_t vocab, std::int32_t threads);

void sample_rows_ref(const stream_ref& stream, const sample_rows_args& args);
void sample_rows_avx2(const stream_ref& stream, const sample_rows_args& args);

}  // namespace deepinfer::kernels
