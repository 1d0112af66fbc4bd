/// The steps of sample_rows that read one row's whole vocabulary, and the frame that runs them: a
/// twin of sample_rows is the frame with its own steps.
///
/// Shapes: x [vocab], of which no entry is NaN or +inf once find_peak has said so; maxima
/// [group_count(vocab)]. Each runs on one thread and allocates nothing.
/// Precision: every twin of find_peak, draw_id and list_best gives the reference's answer, ties
/// included. A twin of sum_exp may sum in another order and with another exp: the relative
/// difference stays below 1e-13.
/// Errors: none; find_peak reports bad logits.
/// Cost: O(vocab) each.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/sampling/sample_rows.hpp"
#include "kernels/sampling/slot_sampling.hpp"

namespace deepinfer::kernels {

/// Consecutive ids that share an entry of `maxima`; the ids of eight draws of noise.
inline constexpr std::int32_t group_ids = 32;
constexpr std::int32_t group_count(std::int32_t vocab) {
  return vocab / group_ids + (vocab % group_ids != 0 ? 1 : 0);
}

/// The lowest id with the largest x, or -1 if there is none above -inf. `is_bad`: a NaN or +inf,
/// and then the rest means nothing.
struct peak {
  std::int32_t id = -1;
  float x = -std::numeric_limits<float>::infinity();
  bool is_bad = false;
};

/// One row on its way through the steps.
struct row_view {
  const float* x = nullptr;       ///< [vocab] logits, adjusted where the step asks for it
  const float* maxima = nullptr;  ///< largest x of every group; written by find_peak
  std::int32_t vocab = 0;
  peak top;  ///< of x; not bad, id >= 0
};

struct draw_id_args {
  row_view row;  ///< adjusted logits
  const slot_sampling* sampling = nullptr;
  std::int32_t position = 0;
  float* scaled = nullptr;        ///< [vocab] scratch; may be row.x, which is then lost
  std::uint64_t* keys = nullptr;  ///< [vocab] scratch
};

struct row_steps {
  /// Writes `maxima` for its own twins; the reference leaves them alone.
  peak (*find_peak)(const float* x, std::int32_t vocab, float* maxima);
  /// From the temperature on: the cuts and the argmax of x + noise.
  std::int32_t (*draw_id)(const draw_id_args& args);
  /// Sum of exp(x - top.x) in f64.
  double (*sum_exp)(const row_view& row);
  /// Writes ids [vocab] above -inf, among them the `count` first-ranked ones (all, if there are
  /// fewer), in any order. Returns how many.
  std::int32_t (*list_best)(const row_view& row, std::int32_t count, std::int32_t* ids);
};

/// sample_rows made of these steps.
void sample_rows_by(const row_steps& steps, const stream_ref& stream, const sample_rows_args& args);

peak find_peak_ref(const float* x, std::int32_t vocab, float* maxima);
peak find_peak_avx2(const float* x, std::int32_t vocab, float* maxima);
std::int32_t draw_id_ref(const draw_id_args& args);
std::int32_t draw_id_avx2(const draw_id_args& args);
double sum_exp_ref(const row_view& row);
double sum_exp_avx2(const row_view& row);
std::int32_t list_best_ref(const row_view& row, std::int32_t count, std::int32_t* ids);
std::int32_t list_best_avx2(const row_view& row, std::int32_t count, std::int32_t* ids);

/// The k-th largest of x[0, count), 1 <= k; -inf if fewer than k are above -inf.
float kth_largest_avx2(const float* x, std::int32_t count, std::int32_t k);

// What the twins of draw_id must compute with the very same bits, once an id is in question.

/// (x - top) / temperature, in f64, rounded to f32. Never falls where x rises.
float scale_logit(float x, float top, float temperature);
/// x + gumbel noise of the word, in f64.
double noisy_score(float x, std::uint32_t word);

}  // namespace deepinfer::kernels
