#include "config/nearest.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace deepinfer {

namespace {

constexpr std::size_t longest_word = 64;

char folded(char c) {
  return c == '-' ? '_' : c;
}

std::string_view last_part(std::string_view key) {
  return key.substr(key.rfind('.') + 1);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto x = folded(a[i - 1]), y = folded(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (x == y ? 0u : 1u)});
      if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y)
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > longest_word) return {};
  std::string best;
  std::size_t best_distance = longest_word;
  for (const auto& candidate : candidates) {
    const auto limit = std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
    const auto distance = edit_distance(word, candidate);
    if (distance > limit || distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::string_view prefix) {
  const auto best = nearest_word(word, candidates);
  return best.empty() ? std::string() : fmt::format("; did you mean '{}{}'?", prefix, best);
}

std::string did_you_mean_key(std::string_view key, std::span<const std::string> known) {
  const auto name = last_part(key);
  if (name.size() < key.size())
    if (auto near = did_you_mean(key, known); !near.empty()) return near;
  std::vector<std::string> names;
  for (const auto& it : known) names.emplace_back(last_part(it));
  const auto best = nearest_word(name, names);
  if (best.empty()) return name.size() < key.size() ? std::string() : did_you_mean(key, known);
  // Two sections may have settings of one name.
  std::string out;
  for (const auto& it : known)
    if (last_part(it) == best) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", it);
  return fmt::format("; did you mean {}?", out);
}

}  // namespace deepinfer
