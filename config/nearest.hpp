/// "Did you mean": the known word nearest to a mistyped one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

/// Fewest insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`;
/// dashes and underscores count as equal. Cost |a|·|b|.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate of least distance (first one on a tie), or "" where none is within a third of the
/// longer word, at least one edit. Words over 64 bytes have no neighbours.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::string_view prefix = "");

/// The same of a key with a section: "log_level" and "server.log_level" are near to
/// "observability.log_level".
std::string did_you_mean_key(std::string_view key, std::span<const std::string> known);

}  // namespace deepinfer
