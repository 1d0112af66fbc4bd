/// Experts of the hash model: affine functions modulo 2^61 - 1 that every token row goes through.
///
///   f(x) = a x + b mod (2^61 - 1)       a = 1 + mix(layer * experts + expert) mod (2^61 - 2)
///                                       b = mix(a) mod (2^61 - 1)
///   chain -> mix(chain ^ sum of f(chain mod (2^61 - 1)) over layers and picks)     (mod 2^64)
///
/// The row at position p takes picks[p mod n] in each layer. One rank: all experts are local, the
/// record of expert e of layer l is in place layer * experts + expert. Source: scenarios 3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

struct hash_expert_shape {
  std::int32_t layers = 0;  ///< 0: no experts
  std::int32_t experts = 0;
  std::int32_t top_k = 0;
  std::vector<std::vector<std::int32_t>> picks{};  ///< lists of top_k experts, cycling by position
};

struct hash_expert {
  std::uint64_t factor = 0;  // a
  std::uint64_t offset = 0;  // b
};

hash_expert hash_expert_of(const hash_expert_shape& shape, std::int32_t layer, std::int32_t expert);

/// All of them, [layers, experts].
std::vector<hash_expert> hash_experts_of(const hash_expert_shape& shape);

/// A list is wrong in a way that a row would notice: picks missing, of another length than top_k,
/// or outside [0, experts). Programmer error.
void hash_check_experts(const hash_expert_shape& shape);

/// The chain behind the experts. `records`: [layers, experts], or empty: computed as needed.
std::uint64_t hash_through_experts(const hash_expert_shape& shape,
                                   std::span<const hash_expert> records, std::uint64_t chain,
                                   std::int32_t position);

}  // namespace deepinfer
