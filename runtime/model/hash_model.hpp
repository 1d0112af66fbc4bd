/// The hash model: tokens by arithmetic instead of weights, so that a scheduler, a KV pool and a
/// device can be wrong in a way that shows.
///
///   mix(x)       x ^= x >> 32;  x *= K;  x ^= x >> 29;  x *= K;  x ^= x >> 32     (mod 2^64)
///   chain(-1)  = mix(seed + K)
///   chain(p)   = mix(chain(p - 1) ^ ((id(p) + 1) * K)), then through the experts
///   token(p+1) = 16 + mix(chain(p) ^ s) mod (vocab - 16)        unless this output is scripted
///   s          = 0 if greedy, else mix(sample_seed * K + p + 1); with a penalty additionally
///                ^ (sum over the outputs before this one of mix(id))
///
/// With a grammar the token is the first that it allows at or above this one (hash_grammar.hpp).
/// These functions are the rules alone; hash_runner.hpp is the machine that must reproduce them
/// through block tables, slots, drafts and remaps. Source: scenarios 3.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/model/hash_experts.hpp"
#include "runtime/model/hash_grammar.hpp"
#include "runtime/model/hash_ids.hpp"

namespace deepinfer {

/// How much of its prefix a row reads. `last_block`: its last block and one other, the next one at
/// each read, so that a row's cost does not grow with its length; wrong entries are found later.
enum class hash_check : std::uint8_t { full, last_block };

struct hash_model_config {
  std::int32_t vocab = 1000;  ///< > 16
  std::int32_t first_id = 1;  ///< least id that may be an input; 0 where BOS has id 0
  std::uint64_t seed = 1;
  /// Drafts accepted by the 1st, 2nd, ... decode row of a sequence, cycling; empty: all of them.
  std::vector<std::int32_t> accept{};
  /// Raw confidence by draft position; what is missing is 1. Empty: the drafter gives none.
  std::vector<float> confidence{};
  hash_expert_shape experts{};
  std::int32_t window = 0;  ///< W: latest chains that a row reads in the sequence's slot; 0: none
  std::int32_t ratio = 0;   ///< R: positions of a compressed entry; divides block_size; 0: none
  hash_check check = hash_check::full;
  /// Is `written_end` of each sequence remembered for good; false for a server without an end.
  bool keeps_written_ends = true;
};

std::uint64_t hash_key(std::string_view text);

/// The first `count` ids of prompt text `text`.
std::vector<token_id> hash_prompt(const hash_model_config& model, std::string_view text,
                                  std::int32_t count);

constexpr std::uint64_t hash_chain_start(const hash_model_config& model) {
  return hash_mix(model.seed + hash_factor);
}
/// Before the experts.
constexpr std::uint64_t hash_chain_next(std::uint64_t before, token_id id) {
  return hash_mix(before ^ ((static_cast<std::uint64_t>(id) + 1) * hash_factor));
}
/// Behind them. `records` as in hash_through_experts.
inline std::uint64_t hash_chain_at(const hash_model_config& model,
                                   std::span<const hash_expert> records, std::uint64_t before,
                                   std::int32_t position, token_id id) {
  return hash_through_experts(model.experts, records, hash_chain_next(before, id), position);
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
  bool has_reasoning = false;
  bool ignores_eos = false;
  std::vector<token_id> stop_ids{};  ///< besides id 1

  static hash_sampling of(const sampling_params& params);

  /// Whether this output ends the sequence by its id.
  bool is_stop(token_id id, std::int32_t output) const;
};

/// What a test decides about a request's outputs, numbered from 1.
struct hash_script {
  std::vector<token_id> prompt{};  ///< may be empty: then the canary cannot compare ids with it
  std::vector<std::pair<std::int32_t, token_id>> tokens{};  ///< (output, id)
  std::int32_t stop_after = 0;                              ///< this output is the stop id; 0: none
  /// What outputs that are not scripted are drawn from; null: any word. Not empty.
  std::shared_ptr<const std::vector<token_id>> words{};
  std::vector<std::int32_t> accept{};  ///< empty: the model's
  std::vector<float> confidence{};     ///< empty: the model's
  std::optional<hash_grammar> grammar{};

  /// The scripted id of an output, or -1.
  token_id at(std::int32_t output) const;
};

/// What the outputs before a token leave for it.
struct hash_history {
  std::uint64_t penalty_sum = 0;  ///< of mix(id)
  hash_grammar_state grammar;

  static hash_history at_start(const hash_sampling& sampling) {
    return {0, hash_grammar_state::at_start(sampling.has_reasoning)};
  }
  void add(token_id output);

  friend bool operator==(const hash_history&, const hash_history&) = default;
};

/// The token at `position` (output number `output`), after `chain` of the position before it,
/// before any grammar. `script` may be null.
token_id hash_choice(const hash_model_config& model, const hash_sampling& sampling,
                     const hash_script* script, std::uint64_t chain, std::int32_t position,
                     std::int32_t output, std::uint64_t penalty_sum);

/// The same with the script's grammar; is_dead_end, where given, tells that it allows nothing: then
/// the token is the one before any grammar.
token_id hash_true_token(const hash_model_config& model, const hash_sampling& sampling,
                         const hash_script* script, std::uint64_t chain, std::int32_t position,
                         std::int32_t output, const hash_history& history,
                         bool* is_dead_end = nullptr);

/// One sequence by the rules alone: the oracle of tests and of the canary. Grows as it is asked;
/// goes on after a stop id or a dead end, because over-run rows do.
class hash_sequence {
public:
  /// `script.prompt` is not empty.
  hash_sequence(hash_model_config model, hash_script script, hash_sampling sampling);

  token_id id(std::int32_t position);
  std::uint64_t chain(std::int32_t position);  ///< -1 is legal
  token_id output(std::int32_t number);        ///< from 1

  /// Outputs up to `most`, id 1 included where it comes first, the output of a dead end not.
  std::vector<token_id> outputs(std::int32_t most);

  /// Output at which the grammar allowed nothing, so far; 0: none.
  std::int32_t dead_end() const { return dead_end_; }

  const hash_script& script() const { return script_; }

private:
  void grow_to(std::int32_t position);

  hash_model_config model_;
  hash_script script_;
  hash_sampling sampling_;
  std::vector<token_id> ids_;
  std::vector<std::uint64_t> chains_;  ///< chains_[p + 1] = chain(p)
  hash_history history_;
  std::int32_t dead_end_ = 0;
};

}  // namespace deepinfer
