#include "runtime/text/unicode_class.hpp"

#include <array>
#include <map>
#include <vector>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

constexpr std::size_t leaf_size = 256;
constexpr std::size_t leaf_count = 0x110000 / leaf_size;
using leaf = std::array<char_class, leaf_size>;

/// Equal leaves are kept once: about 20 KB instead of 1.1 MB, so that a text's classes stay in
/// cache.
struct class_table {
  std::array<std::uint8_t, leaf_count> leaf_of{};
  std::vector<leaf> leaves;

  class_table() {
    std::map<leaf, std::uint8_t> known;
    std::size_t run = 0;
    for (std::size_t number = 0; number < leaf_count; ++number) {
      leaf filled{};
      for (std::size_t at = 0; at < leaf_size; ++at) {
        const auto code_point = number * leaf_size + at;
        while (run + 1 < unicode_class_runs.size() &&
               unicode_class_runs[run + 1] >> 3 <= code_point)
          ++run;
        filled[at] = static_cast<char_class>(unicode_class_runs[run] & 7u);
      }
      const auto [found, is_new] =
        known.try_emplace(filled, static_cast<std::uint8_t>(leaves.size()));
      if (is_new) leaves.push_back(filled);
      leaf_of[number] = found->second;
    }
    DI_CHECK(leaves.size() <= 256, "{} different leaves do not fit a byte", leaves.size());
  }
};

}  // namespace

char_class class_of(char32_t code_point) {
  static const class_table table;
  if (code_point >= 0x110000) return char_class::other;
  return table.leaves[table.leaf_of[code_point / leaf_size]][code_point % leaf_size];
}

}  // namespace deepinfer
