/// The distribution that a row's token is drawn from, as sample_rows draws it: adjusted logits over
/// the temperature, after the cuts. For the rules that need its probabilities.
///   p(id) = exp(x_of(key)) / sum for the kept keys, 0 for all other ids
/// Not for greedy slots. Runs on one thread, allocates nothing.
/// Errors: `status`, as of sample_rows; then nothing is kept.
/// Precision: masses in f64, summed in an order that depends on the row alone.
/// Cost: O(vocab); O(position) more with penalties.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/sampling/adjust_logits.hpp"
#include "kernels/sampling/slot_sampling.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer::kernels {

/// Scratch of one thread: a row's adjusted logits, its candidates, and what penalties count.
struct filter_scratch {
  float* x = nullptr;               ///< [vocab]
  std::uint64_t* keys = nullptr;    ///< [vocab]
  std::uint32_t* counts = nullptr;  ///< [vocab] zero
  std::int32_t* touched = nullptr;  ///< [vocab]
};

/// Bytes of the scratch of one thread, a multiple of 64.
std::size_t filter_scratch_bytes(std::int32_t vocab);
/// Thread `part`'s share of `memory`: 64-byte aligned, zero before its first use.
filter_scratch filter_scratch_of(void* memory, std::int32_t vocab, std::int64_t part);

struct filter_row_args {
  const float* logits = nullptr;  ///< [vocab]
  std::int32_t vocab = 0;
  std::int32_t position = 0;  ///< of the token produced
  const slot_sampling* sampling = nullptr;
  const std::int32_t* history = nullptr;  ///< as of adjust_logits
  const std::int32_t* table = nullptr;
  std::int32_t block_size = 1;
  const std::uint32_t* mask = nullptr;  ///< allowed ids, or null
  filter_scratch scratch;
};

struct filtered_row {
  sample_status status = sample_status::ok;
  const std::uint64_t* keys = nullptr;  ///< [size] kept ids (keep_candidates.hpp), in no order
  std::int32_t size = 0;
  double sum = 0;

  double probability(std::uint64_t key) const;
  /// Of an id; 0 if it was cut.
  double probability_of(std::int32_t id) const;
};

filtered_row filter_row(const filter_row_args& args);

/// Running argmax of log(weight) + gumbel noise: draws an id with the chance of its weight. Ties go
/// to the lowest id; ids of weight 0 never win.
class weight_race {
public:
  weight_race(std::uint64_t seed, std::int32_t position, draw_purpose purpose)
    : seed_(seed),
      position_(static_cast<std::uint32_t>(position)),
      purpose_(purpose) {}

  void enter(std::int32_t id, double weight);
  std::int32_t winner() const { return best_id_; }  ///< -1: nothing had a weight

private:
  std::uint64_t seed_;
  std::uint32_t position_;
  draw_purpose purpose_;
  double best_score_ = 0;
  std::int32_t best_id_ = -1;
};

}  // namespace deepinfer::kernels
