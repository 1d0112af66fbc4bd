/// Keys of prefixes: a 128-bit hash chain over full blocks of ids, salted by tenant.
///   key of blocks 0..i = prefix_next(key of blocks 0..i-1, ids of block i), from prefix_root(salt)
/// The two 64-bit lanes are mixed apart from each other, by different functions: inputs made to
/// collide in one of them do not in the other. For the same ids each lane is a bijection of its
/// parent: other salts or other beginnings never meet again over equal blocks.
/// Not cryptographic: a key is a hint, and ids are compared on a hit (prefix_index).
/// Pure; allocates nothing. Errors: none. Cost: four multiplications for each id.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "messages/kv.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// A tenant's salt as a number. Never 0, which is the salt of requests that have none.
std::uint64_t prefix_salt(std::string_view text);

/// Key of the empty prefix of a tenant.
prefix_key prefix_root(std::uint64_t salt);

/// Key of the prefix that `ids`, one full block, continue.
prefix_key prefix_next(prefix_key parent, std::span<const token_id> ids);

}  // namespace deepinfer
