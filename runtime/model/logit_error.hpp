/// How far one set of logits is from another of the same positions: what `fast` numerics cost.
///
/// Kullback-Leibler divergence in nats, of the distribution `other` gives from the one `exact`
/// gives, temperature 1. A position is clear where exact's best logit leads by more than
/// clear_margin: there another arg-max would be an error, elsewhere it may be a toss-up.
/// Source: performance.md 3 (numeric modes).
#pragma once

#include <cstdint>
#include <span>

namespace deepinfer {

struct logit_error {
  static constexpr float clear_margin = 0.5f;

  std::int64_t positions = 0;
  double mean_kl = 0;
  double max_kl = 0;
  double max_difference = 0;      ///< of a logit
  std::int64_t argmax_equal = 0;  ///< positions
  std::int64_t clear = 0;         ///< positions with a clear arg-max
  std::int64_t clear_and_equal = 0;
};

/// Both are [positions, vocab]. A position with a value that is not finite counts as an infinite
/// divergence.
logit_error compare_logits(std::span<const float> exact, std::span<const float> other,
                           std::int64_t vocab);

}  // namespace deepinfer
