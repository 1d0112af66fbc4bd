/// What a request's grammar allows next: the interface between the scheduler and any grammar.
///
/// A mask has one bit per id of the vocabulary: bit id % 32 of word id / 32; set = allowed. Masks
/// for a row of width 1 + d are made while its step runs: fill, then for each draft advance and
/// fill, stopping at the first draft that is refused, then rewind [I44]. Emitted tokens advance for
/// good, so at most grammar_rewind_limit ids are ever taken back [I45].
/// Single-threaded: a source and its matchers belong to one scheduler, and the source outlives
/// them. Errors: values; one request's grammar never fails another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// Most ids that `rewind` can take back: what all launched rows of a sequence may hold.
inline constexpr std::int32_t grammar_rewind_limit = 64;

constexpr std::size_t mask_words(std::int32_t vocabulary) {
  return (static_cast<std::size_t>(vocabulary) + 31) / 32;
}

/// Where one sequence is in its grammar.
class grammar_matcher {
public:
  virtual ~grammar_matcher() = default;

  /// Overwrites all mask_words(vocabulary) words. False: a dead end, no id is allowed.
  virtual bool fill_mask(std::span<std::uint32_t> words) = 0;

  /// Moves past `token`, any number. False: it is not allowed, and nothing has changed.
  virtual bool advance(token_id token) = 0;

  /// Takes back the last `ids` ids that were advanced, at most grammar_rewind_limit in a row.
  virtual void rewind(std::int32_t ids) = 0;

  /// The text is complete: only ids that end the sequence may follow, any number of them.
  virtual bool has_ended() const = 0;
};

/// Makes matchers; a grammar may take time to build elsewhere.
class grammar_source {
public:
  virtual ~grammar_source() = default;

  /// The matcher of a sequence whose `params` name a grammar. Null with `error` empty: still being
  /// built, and whoever finishes it wakes the scheduler. Null with `error` set: it can't be built.
  /// `error` is empty when called.
  virtual std::unique_ptr<grammar_matcher> poll(seq_id sequence, const sampling_params& params,
                                                std::string& error) = 0;
};

}  // namespace deepinfer
