/// What a router has to know of a prompt that nobody has tokenized yet: about how many tokens it
/// has, and how it begins, stride by stride.
///
/// Pure. Two prompts that begin with the same n strides of text, or of ids, have equal first n
/// fingerprints where their salts are equal, too. A fingerprint is a hint: nothing is shared by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/client.hpp"

namespace deepinfer {

/// Ids and bytes of a stride: about one KV block of either.
inline constexpr std::size_t stride_ids = 64;
inline constexpr std::size_t stride_bytes = 256;
/// More strides of a prompt than these say nothing more of it.
inline constexpr std::size_t strides_most = 256;

struct prompt_outline {
  std::int64_t tokens = 0;            ///< ids as given; of text, an estimate
  std::vector<std::uint64_t> prefix;  ///< number i is of strides 0 to i, whole ones alone
};

/// Looks at no byte of the prompt.
std::int64_t about_tokens(const generate_request& request);

prompt_outline outline_of(const generate_request& request);

}  // namespace deepinfer
