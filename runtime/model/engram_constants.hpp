/// The constants of one Engram table's hash: primes, row offsets and multipliers.
///
/// Columns are n-gram size major (2, 3, ... max_ngram), then head. Row of column q at a position
/// with classes c_0 (its own), c_1, ... : (c_0 * multiplier_0 XOR c_1 * multiplier_1 XOR ...) mod
/// prime_q + offset_q, over the n newest classes. Nothing of it is stored in a checkpoint: the
/// primes come with the model_config, the multipliers follow from the layer's number.
/// Source: model-v41.md 10.2.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/model_config.hpp"

namespace deepinfer {

struct engram_constants {
  std::vector<std::int64_t> primes;       ///< [columns]
  std::vector<std::int64_t> offsets;      ///< [columns] exclusive running sum of the primes
  std::vector<std::int64_t> multipliers;  ///< [max_ngram], odd, newest class first
};

engram_constants make_engram_constants(const engram_config& engram,
                                       const engram_layer_config& layer);

/// `count` odd numbers 2x + 1, x uniform below ((2^63 - 1) div classes) div 2, drawn as numpy's
/// default_rng(10007 * layer).integers does (SeedSequence, PCG64, Lemire's bounded draw).
/// Requires 1 <= classes < 2^29: above, numpy draws 32-bit numbers.
std::vector<std::int64_t> engram_multipliers(std::int32_t layer, std::int64_t classes,
                                             std::int32_t count);

}  // namespace deepinfer
