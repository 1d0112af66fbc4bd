/// What the ids of the hash model are, and its mixing function.
///
/// 0 is no input (but see hash_model_config::first_id), 1 ends a sequence, 2 ends reasoning, 3..15
/// are the texts "a".."m", the rest of the vocabulary are words: their decimal number and a space.
/// Source: scenarios 3.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/ids.hpp"

namespace deepinfer {

inline constexpr token_id hash_stop_id = 1;
inline constexpr token_id hash_end_of_reasoning_id = 2;
inline constexpr token_id hash_first_letter = 3;
inline constexpr token_id hash_first_word = 16;

/// What an id spells; "" for 0, 1 and 2.
std::string hash_text(token_id id);

constexpr std::uint64_t hash_factor = 0x9E3779B97F4A7C15u;  // K

constexpr std::uint64_t hash_mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= hash_factor;
  x ^= x >> 29;
  x *= hash_factor;
  return x ^ (x >> 32);
}

}  // namespace deepinfer
