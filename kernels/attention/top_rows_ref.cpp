#include "kernels/attention/top_rows.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/attention/index_scores.hpp"

namespace deepinfer::kernels {
namespace {

constexpr std::uint32_t always = 0xffffffffu;

/// Grows with the score; 0 = not eligible (-inf, NaN). -0 and +0 are the same.
std::uint32_t order_of(float score) {
  if (!(score > -std::numeric_limits<float>::infinity())) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct threshold {
  std::uint32_t key;   ///< everything above is taken,
  std::int64_t equal;  ///< and so many of its equals, lowest index first
};

/// The k-th largest of `count` keys, byte by byte from the top; all eligible ones if there are no
/// more.
template <class Key>
threshold find_threshold(std::int64_t count, std::int64_t k, Key&& key) {
  std::uint32_t prefix = 0, mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    std::int64_t held[256] = {}, eligible = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t value = key(i);
      if (value == 0 || (value & mask) != prefix) continue;
      ++held[(value >> shift) & 255u];
      ++eligible;
    }
    if (mask == 0 && eligible <= k) return {0, 0};
    std::uint32_t digit = 255;
    for (; held[digit] < k; --digit) k -= held[digit];
    prefix |= digit << shift;
    mask |= 255u << shift;
  }
  return {prefix, k};
}

/// Writes the chosen indices ascending, then -1 up to k entries.
template <class Key>
void select(std::int64_t count, std::int64_t k, std::int32_t* out, Key&& key) {
  std::int64_t taken = 0;
  if (k > 0 && count > 0) {
    auto border = find_threshold(count, k, key);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t value = key(i);
      const bool is_equal = value == border.key && border.equal > 0;
      if (value > border.key || is_equal) out[taken++] = static_cast<std::int32_t>(i);
      if (is_equal) --border.equal;
    }
  }
  std::fill(out + taken, out + k, -1);
}

}  // namespace

void top_rows_ref(const stream_ref& stream, const top_rows_args& a) {
  check_scores(a.batch, a.ratio, a.first, a.count, a.row_limit);
  stream.for_ranges(a.count, [&](std::int64_t begin, std::int64_t end) {
    for (auto local = begin; local < end; ++local) {
      const auto token = a.first + local;
      const float* score = a.score + local * a.row_limit;
      const auto visible = a.batch.is_padding(token) ? 0 : a.batch.visible(token, a.ratio);
      select(visible, a.k, a.selected + token * a.k,
             [&](std::int64_t row) { return order_of(score[row]); });
    }
  });
}

void candidate_blocks_ref(const stream_ref& stream, const candidate_blocks_args& a) {
  check_scores(a.batch, a.ratio, a.first, a.count, a.row_limit);
  stream.for_ranges(a.count, [&](std::int64_t begin, std::int64_t end) {
    for (auto local = begin; local < end; ++local) {
      const auto token = a.first + local;
      const float* score = a.score + local * a.row_limit;
      const auto visible = a.batch.is_padding(token) ? 0 : a.batch.visible(token, a.ratio);
      const auto blocks = (visible + a.size - 1) / a.size;
      select(blocks, a.k, a.blocks + token * a.k, [&](std::int64_t block) {
        if (block == blocks - 1) return always;
        std::uint32_t best = 0;
        for (auto row = block * a.size; row < (block + 1) * a.size; ++row)
          best = std::max(best, order_of(score[row]));
        return best;
      });
    }
  });
}

}  // namespace deepinfer::kernels
