/// The hash model: tokens by arithmetic instead of weights, so that a scheduler, a KV pool and a
/// device can be wrong in a way that shows.
///
///   mix(x)       x ^= x >> 32;  x *= K;  x ^= x >> 29;  x *= K;  x ^= x >> 32     (mod 2^64)
///   chain(-1)  = mix(seed + K)
///   chain(p)   = mix(chain(p - 1) ^ ((id(p) + 1) * K))          id(p): token at position p
///   token(p+1) = 16 + mix(chain(p) ^ s) mod (vocab - 16)        unless this output is scripted
///   s          = 0 if greedy, else mix(sample_seed * K + p + 1); with a penalty additionally
///                ^ (sum over the outputs before this one of mix(id))
///
/// Ids 16.. are words, 0 is never an input, 1 ends a sequence. These functions are the rules alone;
/// hash_runner.hpp is the machine that must reproduce them through block tables, slots and remaps.
/// Source: scenarios 3 (without drafts, grammar, experts and state).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

struct hash_model_config {
  std::int32_t vocab = 1000;  ///< > 16
  std::uint64_t seed = 1;
};

inline constexpr token_id hash_stop_id = 1;
inline constexpr token_id hash_first_word = 16;

constexpr std::uint64_t hash_factor = 0x9E3779B97F4A7C15u;  // K

constexpr std::uint64_t hash_mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= hash_factor;
  x ^= x >> 29;
  x *= hash_factor;
  return x ^ (x >> 32);
}

std::uint64_t hash_key(std::string_view text);

/// The first `count` ids of prompt text `text`.
std::vector<token_id> hash_prompt(const hash_model_config& model, std::string_view text,
                                  std::int32_t count);

constexpr std::uint64_t hash_chain_start(const hash_model_config& model) {
  return hash_mix(model.seed + hash_factor);
}
constexpr std::uint64_t hash_chain_next(std::uint64_t before, token_id id) {
  return hash_mix(before ^ ((static_cast<std::uint64_t>(id) + 1) * hash_factor));
}

/// logprob of the token after the position with this chain.
constexpr float hash_logprob(std::uint64_t chain) {
  return -static_cast<float>(1 + (chain >> 40) % 1000) / 1000.0f;
}

/// What the rules take from a request's sampling parameters.
struct hash_sampling {
  bool is_greedy = true;
  std::uint64_t seed = 0;    ///< sample_seed, unless greedy
  bool has_penalty = false;  ///< any of the product's penalties is on
  std::int32_t min_tokens = 0;
  bool has_logprobs = false;

  static hash_sampling of(const sampling_params& params);
};

/// What a test decides about a request's outputs, numbered from 1.
struct hash_script {
  std::vector<token_id> prompt;  ///< may be empty: then the canary cannot compare ids with it
  std::vector<std::pair<std::int32_t, token_id>> tokens;  ///< (output, id)
  std::int32_t stop_after = 0;                            ///< this output is the stop id; 0: none

  /// The scripted id of an output, or -1.
  token_id at(std::int32_t output) const;
};

/// The token at `position` (output number `output`), after `chain` of the position before it.
/// `penalty_sum`: sum of mix(id) over the outputs before it. `script` may be null.
token_id hash_choice(const hash_model_config& model, const hash_sampling& sampling,
                     const hash_script* script, std::uint64_t chain, std::int32_t position,
                     std::int32_t output, std::uint64_t penalty_sum);

/// One sequence by the rules alone: the oracle of tests and of the canary. Grows as it is asked;
/// goes on after a stop id, because over-run rows do.
class hash_sequence {
public:
  /// `script.prompt` is not empty.
  hash_sequence(hash_model_config model, hash_script script, hash_sampling sampling);

  token_id id(std::int32_t position);
  std::uint64_t chain(std::int32_t position);  ///< -1 is legal
  token_id output(std::int32_t number);        ///< from 1

  /// Outputs up to `most`, the stop id included where it comes first.
  std::vector<token_id> outputs(std::int32_t most);

  const hash_script& script() const { return script_; }

private:
  void grow_to(std::int32_t position);

  hash_model_config model_;
  hash_script script_;
  hash_sampling sampling_;
  std::vector<token_id> ids_;
  std::vector<std::uint64_t> chains_;  ///< chains_[p + 1] = chain(p)
  std::uint64_t penalty_sum_ = 0;
};

}  // namespace deepinfer
