#include "kernels/attention/top_rows.hpp"

#include "kernels/attention/index_scores.hpp"
#include "kernels/attention/lanes_avx2.hpp"

#include <algorithm>
#include <limits>

namespace deepinfer::kernels {
namespace {

/// Keys grow with the score as signed integers; this one is that of -inf and NaN.
constexpr std::int32_t never = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t always = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t keys_together = 512;
constexpr std::int64_t border_room = 2048;

inline __m256i keys_of(__m256 score) {
  const auto infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const auto is_there = _mm256_castps_si256(
    _mm256_cmp_ps(score, _mm256_sub_ps(_mm256_setzero_ps(), infinity), _CMP_GT_OQ));
  const auto bits = _mm256_castps_si256(_mm256_add_ps(score, _mm256_setzero_ps()));  // -0 to +0
  const auto below = _mm256_and_si256(_mm256_srai_epi32(bits, 31), _mm256_set1_epi32(always));
  return _mm256_blendv_epi8(_mm256_set1_epi32(never), _mm256_xor_si256(bits, below), is_there);
}

inline __m256i load_keys(const std::int32_t* key) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key));
}

inline void store_keys(std::int32_t* to, __m256i keys) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), keys);
}

inline unsigned bits_of(__m256i mask) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
}

/// A key per row. Up to the next multiple of eight, keys past `count` are `never`.
struct row_keys {
  const float* score;

  void make(std::int64_t first, std::int64_t count, std::int32_t* to) const {
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) store_keys(to + i, keys_of(_mm256_loadu_ps(score + first + i)));
    if (i == count) return;
    const auto mask = first_lanes(count - i);
    const auto keys = keys_of(_mm256_maskload_ps(score + first + i, mask));
    store_keys(to + i, _mm256_blendv_epi8(_mm256_set1_epi32(never), keys, mask));
  }
};

/// A key per block: that of its best row; the newest block's is above all.
struct block_keys {
  const float* score;
  std::int64_t size;
  std::int64_t blocks;

  void make(std::int64_t first, std::int64_t count, std::int32_t* to) const {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = first + i == blocks - 1 ? always : best(score + (first + i) * size);
    for (auto i = count; i % 8 != 0; ++i) to[i] = never;
  }

private:
  std::int32_t best(const float* rows) const {
    auto most = _mm256_set1_epi32(never);
    std::int64_t i = 0;
    for (; i + 8 <= size; i += 8) most = _mm256_max_epi32(most, keys_of(_mm256_loadu_ps(rows + i)));
    if (i < size) {
      const auto mask = first_lanes(size - i);
      const auto keys = keys_of(_mm256_maskload_ps(rows + i, mask));
      most = _mm256_max_epi32(most, _mm256_blendv_epi8(_mm256_set1_epi32(never), keys, mask));
    }
    auto four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1)));
    return _mm_cvtsi128_si32(four);
  }
};

/// Calls body(first, count, keys) for all keys in order.
template <class Keys, class Body>
inline void for_keys(const Keys& keys, std::int64_t count, Body&& body) {
  std::int32_t made[keys_together];
  for (std::int64_t first = 0; first < count; first += keys_together) {
    const auto some = std::min(keys_together, count - first);
    keys.make(first, some, made);
    body(first, some, made);
  }
}

/// How many of `count` keys are at least `least`, which is above `never`.
inline std::int64_t at_least(const std::int32_t* key, std::int64_t count, std::int32_t least) {
  const auto below = _mm256_set1_epi32(least - 1);
  auto found = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < count; i += 8)
    found = _mm256_sub_epi32(found, _mm256_cmpgt_epi32(load_keys(key + i), below));
  auto four = _mm_add_epi32(_mm256_castsi256_si128(found), _mm256_extracti128_si256(found, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
  return _mm_cvtsi128_si32(four) + _mm_extract_epi32(four, 1);
}

struct threshold {
  std::int32_t key = never;  ///< everything above is taken,
  std::int64_t equal = 0;    ///< and so many of its equals, lowest index first
};

/// The keys between which the k-th largest lies: those that share their upper eleven bits with it.
struct border {
  std::int32_t lowest;
  std::int64_t held;   ///< keys in the range
  std::int64_t above;  ///< keys over it
};

constexpr int low_bits = 21;

/// False if no more than k keys are eligible.
template <class Keys>
inline bool find_border(const Keys& keys, std::int64_t count, std::int64_t k, border& found) {
  std::int32_t held[2][2048] = {};  // two, since neighbours often fall into one bin
  for_keys(keys, count, [&held](std::int64_t, std::int64_t some, const std::int32_t* key) {
    for (std::int64_t i = 0; i < some; i += 2) {
      ++held[0][(static_cast<std::uint32_t>(key[i]) ^ 0x80000000u) >> low_bits];
      ++held[1][(static_cast<std::uint32_t>(key[i + 1]) ^ 0x80000000u) >> low_bits];
    }
  });
  // Below bin 4 is nothing but `never`: -inf has the key of 0x007fffff.
  std::int64_t above = 0;
  for (std::int32_t bin = 2047; bin >= 4; --bin) {
    const std::int64_t here = held[0][bin] + held[1][bin];
    if (above + here > k) {
      found = {
        static_cast<std::int32_t>((static_cast<std::uint32_t>(bin) << low_bits) ^ 0x80000000u),
        here, above};
      return true;
    }
    above += here;
  }
  return false;
}

/// The largest key that at least `wanted` keys reach, bit by bit; `reach` counts them.
template <class Reach>
inline std::int32_t bisect(std::int32_t lowest, std::int64_t wanted, Reach&& reach) {
  auto key = lowest;
  for (auto bit = low_bits - 1; bit >= 0; --bit)
    if (reach(key | (1 << bit)) >= wanted) key |= 1 << bit;
  return key;
}

template <class Keys>
inline threshold find_threshold(const Keys& keys, std::int64_t count, std::int64_t k) {
  border at;
  if (count <= k || !find_border(keys, count, k, at)) return {};
  const auto wanted = k - at.above;  // may be 0: then nothing of the border is taken
  if (wanted == 0) return {at.lowest + ((1 << low_bits) - 1), 0};
  if (at.held > border_room) {
    const auto reach = [&](std::int32_t least) {
      std::int64_t sum = 0;
      for_keys(keys, count, [&](std::int64_t, std::int64_t some, const std::int32_t* key) {
        sum += at_least(key, some, least);
      });
      return sum;
    };
    const auto key = bisect(at.lowest, k, reach);
    return {key, k - (key == always ? 0 : reach(key + 1))};
  }
  std::int32_t inside[border_room + 8];
  std::int64_t size = 0;
  for_keys(keys, count, [&](std::int64_t, std::int64_t some, const std::int32_t* key) {
    const auto bin = _mm256_set1_epi32(at.lowest >> low_bits);
    for (std::int64_t i = 0; i < some; i += 8) {
      const auto all = load_keys(key + i);
      for (auto hits = bits_of(_mm256_cmpeq_epi32(_mm256_srai_epi32(all, low_bits), bin)); hits;
           hits &= hits - 1)
        inside[size++] = key[i + __builtin_ctz(hits)];
    }
  });
  std::fill(inside + size, inside + (size + 7) / 8 * 8, never);
  const auto reach = [&](std::int32_t least) { return at_least(inside, size, least); };
  const auto key = bisect(at.lowest, wanted, reach);
  return {key, wanted - (key == always ? 0 : reach(key + 1))};
}

/// Writes the chosen indices ascending, then -1 up to k entries.
template <class Keys>
inline void select(const Keys& keys, std::int64_t count, std::int64_t k, std::int32_t* out) {
  std::int64_t taken = 0;
  if (k > 0) {
    auto least = find_threshold(keys, count, k);
    for_keys(keys, count, [&](std::int64_t first, std::int64_t some, const std::int32_t* key) {
      const auto border_key = _mm256_set1_epi32(least.key);
      for (std::int64_t i = 0; i < some; i += 8) {
        const auto all = load_keys(key + i);
        auto hits = bits_of(_mm256_cmpgt_epi32(all, border_key));
        auto equals = least.equal > 0 ? bits_of(_mm256_cmpeq_epi32(all, border_key)) : 0u;
        for (; equals && least.equal > 0; equals &= equals - 1, --least.equal)
          hits |= equals & (~equals + 1u);
        for (; hits; hits &= hits - 1)
          out[taken++] = static_cast<std::int32_t>(first + i) + __builtin_ctz(hits);
      }
    });
  }
  std::fill(out + taken, out + k, -1);
}

}  // namespace

void top_rows_of_token_avx2(const top_rows_args& a, std::int64_t token, const float* score) {
  const auto visible = a.batch.is_padding(token) ? 0 : a.batch.visible(token, a.ratio);
  select(row_keys{score}, visible, a.k, a.selected + token * a.k);
}

void candidate_blocks_of_token_avx2(const candidate_blocks_args& a, std::int64_t token,
                                    const float* score) {
  const auto visible = a.batch.is_padding(token) ? 0 : a.batch.visible(token, a.ratio);
  const auto blocks = (visible + a.size - 1) / a.size;
  select(block_keys{score, a.size, blocks}, blocks, a.k, a.blocks + token * a.k);
}

void top_rows_avx2(const stream_ref& stream, const top_rows_args& a) {
  check_scores(a.batch, a.ratio, a.first, a.count, a.row_limit);
  stream.for_ranges(a.count, [&](std::int64_t begin, std::int64_t end) {
    for (auto local = begin; local < end; ++local)
      top_rows_of_token_avx2(a, a.first + local, a.score + local * a.row_limit);
  });
}

void candidate_blocks_avx2(const stream_ref& stream, const candidate_blocks_args& a) {
  check_scores(a.batch, a.ratio, a.first, a.count, a.row_limit);
  stream.for_ranges(a.count, [&](std::int64_t begin, std::int64_t end) {
    for (auto local = begin; local < end; ++local)
      candidate_blocks_of_token_avx2(a, a.first + local, a.score + local * a.row_limit);
  });
}

}  // namespace deepinfer::kernels
