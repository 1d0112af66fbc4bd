// Top-p without a list of candidates: the race is run over all ids, and only its winner is asked
// whether it stays. An id stays if the mass ranked before it is at most top_p of the whole, so one
// pass over the row tells. If the winner falls out, so do all ids ranked after it, and the race is
// run again among those before it: 1 + ln(1 / top_p) races on average, 1.05 at top_p = 0.95.
//
// The passes compute in f32 within known bounds. An id whose noise might win by these bounds is
// scored as the reference scores it; a mass too near the line leaves the row to the reference.
#include <immintrin.h>

#include <cmath>

#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

namespace {

constexpr float lowest = -__FLT_MAX__;
constexpr float beyond = __builtin_inff();
constexpr float log2e = 1.44269504f;

/// The first-ranked ids: id i is inside if x[i] >= (i <= last ? low : above). Ids with
/// low <= x < above are equal after the temperature.
struct region {
  float low;
  float above;
  std::int32_t last;
};

// --- exact scalar parts --------------------------------------------------------------------------

// Floats in their order as whole numbers, and back.
std::int64_t order_of(float x) {
  const auto bits = __builtin_bit_cast(std::int32_t, x);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
float float_of(std::int64_t order) {
  const auto bits = static_cast<std::int32_t>(order);
  return __builtin_bit_cast(float, bits ^ (bits >> 31 & 0x7fffffff));
}

/// The lowest logit for whose scaled value `holds`, or `beyond`; `holds` stays true as it rises.
template <class Holds>
float lowest_logit(const draw_id_args& a, Holds holds) {
  const auto top = a.row.top.x;
  const auto scaled = [&](float x) { return scale_logit(x, top, a.sampling->temperature); };
  if (!holds(scaled(top))) return beyond;
  if (holds(scaled(lowest))) return lowest;
  auto below = order_of(lowest);
  auto from = order_of(top);
  while (from - below > 1) {
    const auto middle = below + (from - below) / 2;
    (holds(scaled(float_of(middle))) ? from : below) = middle;
  }
  return float_of(from);
}

/// The ids ranked before one with this logit; `last` is the last id of those equal to it.
region region_up_to(const draw_id_args& a, float logit, std::int32_t last) {
  const float x = scale_logit(logit, a.row.top.x, a.sampling->temperature);
  return {lowest_logit(a, [x](float other) { return other >= x; }),
          lowest_logit(a, [x](float other) { return other > x; }), last};
}

// --- vectors -------------------------------------------------------------------------------------

/// The logits of one group; the last group of a row is filled up with -inf.
class group_reader {
public:
  explicit group_reader(const row_view& row) : x_(row.x), whole_(row.vocab / group_ids) {
    for (std::int32_t i = 0; i < group_ids; ++i) {
      const auto id = whole_ * group_ids + i;
      tail_[i] = id < row.vocab ? row.x[id] : -__builtin_inff();
    }
  }
  const float* operator[](std::int32_t group) const {
    return group < whole_ ? x_ + std::int64_t{group} * group_ids : tail_;
  }

private:
  const float* x_;
  std::int32_t whole_;
  alignas(32) float tail_[group_ids];
};

/// The thresholds of a region, laid out by group: the same for all ids of a group but one.
class threshold_table {
public:
  explicit threshold_table(const region& r) : mixed_group_(r.last / group_ids) {
    for (std::int32_t i = 0; i < group_ids; ++i) {
      low_[i] = r.low;
      above_[i] = r.above;
      mixed_[i] = mixed_group_ * group_ids + i <= r.last ? r.low : r.above;
    }
  }
  /// [group_ids] of them.
  const float* operator[](std::int32_t group) const {
    return group < mixed_group_ ? low_ : group == mixed_group_ ? mixed_ : above_;
  }

private:
  std::int32_t mixed_group_;
  alignas(32) float low_[group_ids];
  alignas(32) float above_[group_ids];
  alignas(32) float mixed_[group_ids];
};

/// Groups that may hold an id of the region.
std::int32_t groups_of(const region& r, const row_view& row) {
  return r.above > row.top.x ? group_count(r.last + 1) : group_count(row.vocab);
}

/// Bits of the groups in [group, group + 8) below `groups` whose largest x is at or above `least`.
unsigned live_groups(const row_view& row, std::int32_t group, std::int32_t groups, float least) {
  unsigned bits = 0;
  if (group + 8 <= groups)
    return static_cast<unsigned>(_mm256_movemask_ps(
      _mm256_cmp_ps(_mm256_loadu_ps(row.maxima + group), _mm256_set1_ps(least), _CMP_GE_OQ)));
  for (auto i = group; i < groups; ++i)
    if (row.maxima[i] >= least) bits |= 1u << (i - group);
  return bits;
}

/// Philox4x32-10 with counter (position, target, draw, 0): a 64-bit lane holds a word of a draw in
/// its low half, and above it what the products leave there, unread.
class draws {
public:
  draws(std::uint64_t seed, std::uint32_t position) {
    const auto low = static_cast<std::uint32_t>(seed);
    const auto high = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < rounds; ++round) {
      key0_[round] = lanes(low + static_cast<std::uint32_t>(round) * 0x9E3779B9u);
      key1_[round] = lanes(high + static_cast<std::uint32_t>(round) * 0xBB67AE85u);
    }
    // In the first round word 0 is the same for all draws.
    const auto first = std::uint64_t{multiplier0} * position;
    first_high_ = lanes(static_cast<std::uint32_t>(first >> 32) ^ high);
    first_low_ = lanes(static_cast<std::uint32_t>(first));
  }

  /// The words of a group's ids, in their order. Two chains of products run side by side.
  void group_words(std::uint32_t group, __m256i* words) const {
    const auto draw = _mm256_set1_epi64x(std::int64_t{group} * (group_ids / 4));
    __m256i c0[2], c1[2], c2[2], c3[2];
    for (int h = 0; h < 2; ++h) {
      const auto order = h == 0 ? _mm256_setr_epi64x(0, 2, 1, 3) : _mm256_setr_epi64x(4, 6, 5, 7);
      c1[h] = _mm256_mul_epu32(_mm256_add_epi64(draw, order), lanes(multiplier1));
      c0[h] = _mm256_xor_si256(_mm256_srli_epi64(c1[h], 32), key0_[0]);
      c2[h] = first_high_;
      c3[h] = first_low_;
    }
#pragma GCC unroll 9
    for (int round = 1; round < rounds; ++round) {
      for (int h = 0; h < 2; ++h) {
        const auto p0 = _mm256_mul_epu32(c0[h], lanes(multiplier0));
        const auto p1 = _mm256_mul_epu32(c2[h], lanes(multiplier1));
        c0[h] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(c1[h], key0_[round]));
        c2[h] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c3[h], key1_[round]));
        c1[h] = p1;
        c3[h] = p0;
      }
    }
    for (int h = 0; h < 2; ++h) {
      const auto c01 = _mm256_blend_epi32(c0[h], _mm256_slli_epi64(c1[h], 32), 0xaa);
      const auto c23 = _mm256_blend_epi32(c2[h], _mm256_slli_epi64(c3[h], 32), 0xaa);
      words[2 * h] = _mm256_unpacklo_epi64(c01, c23);
      words[2 * h + 1] = _mm256_unpackhi_epi64(c01, c23);
    }
  }

private:
  static constexpr int rounds = 10;
  static constexpr std::uint32_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
  static __m256i lanes(std::uint32_t word) {
    return _mm256_set1_epi64x(word);
  }

  __m256i key0_[rounds], key1_[rounds];
  __m256i first_high_, first_low_;
};

/// The argmax of x + noise over the region.
///
/// u = 1 - (n + 1/2) 2^-24 with n the upper 24 bits of the word, flipped. As -log u >= 1 - u, an id
/// can only reach the best score so far if n <= 2^24 exp(x - best). 2^y is at most the float whose
/// exponent and mantissa are y + 127 in fixed point. Rounding moves x - best by less than 2e-5.
class race {
public:
  explicit race(const draw_id_args& a)
    : a_(a),
      draws_(a.sampling->seed, static_cast<std::uint32_t>(a.position)),
      reader_(a.row),
      slope_(log2e * 0x1p23f / a.sampling->temperature) {
    __m256i words[4];
    draws_.group_words(static_cast<std::uint32_t>(a.row.top.id / group_ids), words);
    alignas(32) std::uint32_t word[group_ids];
    for (int v = 0; v < 4; ++v)
      _mm256_store_si256(reinterpret_cast<__m256i*>(word + 8 * v), words[v]);
    top_score_ = noisy_score(0.0f, word[a.row.top.id % group_ids]);
  }

  /// The winner among the region's ids at or above `least`, the top always among them.
  std::int32_t run(region r, float least) {
    id_ = a_.row.top.id;
    set_best(top_score_);
    const auto groups = groups_of(r, a_.row);
    r.low = r.low < least ? least : r.low;
    r.above = r.above < least ? least : r.above;
    const threshold_table thresholds(r);
    for (std::int32_t group = 0; group < groups; group += 8) {
      auto live = live_groups(a_.row, group, groups, r.low < reach_ ? reach_ : r.low);
      for (; live != 0; live &= live - 1) {
        const auto live_group = group + __builtin_ctz(live);
        enter_group(live_group, thresholds[live_group]);
      }
    }
    return id_;
  }

private:
  void set_best(double score) {
    best_ = score;
    offset_ = static_cast<float>((24 + 127 + 3e-4 - score * static_cast<double>(log2e)) * 0x1p23);
    // Below it not even the largest noise, 17.33, wins.
    const double far = (score - 17.5) * static_cast<double>(a_.sampling->temperature);
    const double at = static_cast<double>(a_.row.top.x) + far;
    reach_ =
      at > static_cast<double>(lowest) ? static_cast<float>(at - std::fabs(at) * 0x1p-22) : lowest;
  }

  void enter_group(std::int32_t group, const float* thresholds) {
    const auto* x = reader_[group];
    const auto first = group * group_ids;
    __m256i words[4];
    draws_.group_words(static_cast<std::uint32_t>(group), words);
    const auto top = _mm256_set1_ps(a_.row.top.x);
    const auto slope = _mm256_set1_ps(slope_);
    const auto offset = _mm256_set1_ps(offset_);
    __m256 hits[4];
    for (int v = 0; v < 4; ++v) {
      const auto logits = _mm256_loadu_ps(x + 8 * v);
      const auto most = _mm256_castsi256_ps(
        _mm256_cvtps_epi32(_mm256_fmadd_ps(_mm256_sub_ps(logits, top), slope, offset)));
      const auto flipped = _mm256_xor_si256(words[v], _mm256_set1_epi32(-1));
      const auto n = _mm256_cvtepi32_ps(_mm256_srli_epi32(flipped, 8));
      hits[v] = _mm256_cmp_ps(n, most, _CMP_LE_OQ);
    }
    const auto any = _mm256_or_ps(_mm256_or_ps(hits[0], hits[1]), _mm256_or_ps(hits[2], hits[3]));
    if (_mm256_movemask_ps(any) == 0) return;
    // Few come here, so whether they are inside is asked here only.
    for (int v = 0; v < 4; ++v) {
      alignas(32) std::uint32_t word[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(word), words[v]);
      auto hit = static_cast<unsigned>(_mm256_movemask_ps(hits[v]));
      for (; hit != 0; hit &= hit - 1) {
        const auto at = 8 * v + __builtin_ctz(hit);
        if (x[at] >= thresholds[at]) score(x[at], first + at, word[at % 8]);
      }
    }
  }

  void score(float logit, std::int32_t id, std::uint32_t word) {
    const auto value =
      noisy_score(scale_logit(logit, a_.row.top.x, a_.sampling->temperature), word);
    if (value < best_ || (value == best_ && id >= id_)) return;
    id_ = id;
    set_best(value);
  }

  const draw_id_args& a_;
  draws draws_;
  group_reader reader_;
  float slope_;  ///< of the fixed-point exponent over the logit
  double top_score_ = 0;
  double best_ = 0;
  std::int32_t id_ = -1;
  float offset_ = 0;  ///< and its value at the top
  float reach_ = 0;   ///< lower logits cannot win
};

// --- masses --------------------------------------------------------------------------------------

/// 2^(x * scale) for x * scale in [-126, 0] within 4e-7: a polynomial through the Chebyshev nodes.
__m256 exp2_of(__m256 x, __m256 scale) {
  const auto round = _mm256_set1_ps(0x1.8p23f);
  const auto shifted = _mm256_fmadd_ps(x, scale, round);
  const auto f = _mm256_fmsub_ps(x, scale, _mm256_sub_ps(shifted, round));  // in [-1/2, 1/2]
  auto p = _mm256_set1_ps(0.00133908634f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.00967603192f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.0555035711f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.240221075f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.693147188f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.00000008f));
  const auto exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

__m256d in_double(__m256 v) {
  return _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                       _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

double sum_lanes(__m256d v) {
  const auto half = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}

struct masses {
  double whole;
  double before;
};

/// Sums of exp of the scaled logits over both regions, `before` inside `whole`, each within 7e-6 of
/// the whole: 6e-6 by x in f32 (x > -32: below that there is nothing to sum), the rest by 2^y and
/// by adding up a group in f32.
template <bool is_whole_row>
masses sum_masses(const draw_id_args& a, const region& whole, const region& before) {
  const auto& row = a.row;
  const threshold_table whole_table(whole), before_table(before);
  const group_reader reader(row);
  const float temperature = a.sampling->temperature;
  const auto top = _mm256_set1_ps(row.top.x);
  const auto scale = _mm256_set1_ps(log2e / temperature);
  const auto floor = _mm256_set1_ps(-80.0f * temperature);
  const double far = static_cast<double>(row.top.x) - 32.0 * static_cast<double>(temperature);
  const auto least = far > static_cast<double>(whole.low) ? static_cast<float>(far) : whole.low;
  auto whole_sum = _mm256_setzero_pd(), before_sum = whole_sum;
  const auto groups = groups_of(whole, row);
  for (std::int32_t base = 0; base < groups; base += 8) {
    for (auto live = live_groups(row, base, groups, least); live != 0; live &= live - 1) {
      const auto group = base + __builtin_ctz(live);
      const auto* x = reader[group];
      const auto* in_whole = whole_table[group];
      const auto* in_before = before_table[group];
      auto whole_part = _mm256_setzero_ps(), before_part = whole_part;
      for (int v = 0; v < 32; v += 8) {
        const auto logits = _mm256_loadu_ps(x + v);
        const auto w = exp2_of(_mm256_max_ps(_mm256_sub_ps(logits, top), floor), scale);
        const auto add = [&](__m256 part, const float* thresholds) {
          return _mm256_add_ps(
            part,
            _mm256_and_ps(w, _mm256_cmp_ps(logits, _mm256_load_ps(thresholds + v), _CMP_GE_OQ)));
        };
        whole_part = is_whole_row ? _mm256_add_ps(whole_part, w) : add(whole_part, in_whole);
        before_part = add(before_part, in_before);
      }
      whole_sum = _mm256_add_pd(whole_sum, in_double(whole_part));
      before_sum = _mm256_add_pd(before_sum, in_double(before_part));
    }
  }
  return {sum_lanes(whole_sum), sum_lanes(before_sum)};
}

// --- top-k ---------------------------------------------------------------------------------------

/// Bits of a group's ids at or above `least`.
std::uint32_t bits_at_least(const float* x, float least) {
  const auto limit = _mm256_set1_ps(least);
  std::uint32_t bits = 0;
  for (int v = 0; v < 4; ++v) {
    const auto found = _mm256_cmp_ps(_mm256_loadu_ps(x + 8 * v), limit, _CMP_GE_OQ);
    bits |= static_cast<std::uint32_t>(_mm256_movemask_ps(found)) << (8 * v);
  }
  return bits;
}

/// The k-th largest logit. The k-th largest of the maxima bounds it from below, and fewer than
/// 32 * k ids lie above that bound.
float kth_logit(const draw_id_args& a, const group_reader& reader, std::int32_t k) {
  const auto& row = a.row;
  const auto groups = group_count(row.vocab);
  const auto bound = k <= groups ? kth_largest_avx2(row.maxima, groups, k) : -beyond;
  if (!(bound > -beyond)) return kth_largest_avx2(row.x, row.vocab, k);
  const float above = float_of(order_of(bound) + 1);
  auto* few = reinterpret_cast<float*>(a.keys);  // free until there are keys
  std::int32_t size = 0;
  for (std::int32_t group = 0; group < groups; ++group) {
    if (row.maxima[group] < above) continue;
    const auto* x = reader[group];
    for (auto bits = bits_at_least(x, above); bits != 0; bits &= bits - 1)
      few[size++] = x[__builtin_ctz(bits)];
  }
  return size < k ? bound : kth_largest_avx2(few, size, k);
}

/// The k first-ranked ids; `all` if there are no more than k candidates.
region first_k(const draw_id_args& a, const region& all) {
  const auto k = a.sampling->top_k;
  const auto& row = a.row;
  const group_reader reader(row);
  const auto logit = kth_logit(a, reader, k);
  if (!(logit > -beyond)) return all;
  if (!(scale_logit(logit, row.top.x, a.sampling->temperature) > -beyond)) return all;
  auto first = region_up_to(a, logit, -1);
  auto missing = k;  // equals of the k-th, the lowest ids first
  for (std::int32_t group = 0; group < group_count(row.vocab); ++group)
    if (row.maxima[group] >= first.above)
      missing -= __builtin_popcount(bits_at_least(reader[group], first.above));
  for (std::int32_t group = 0; missing > 0; ++group) {
    if (row.maxima[group] < first.low) continue;
    auto bits =
      bits_at_least(reader[group], first.low) & ~bits_at_least(reader[group], first.above);
    for (; bits != 0 && missing > 0; bits &= bits - 1, --missing)
      first.last = group * group_ids + __builtin_ctz(bits);
  }
  return first;
}

}  // namespace

std::int32_t draw_id_avx2(const draw_id_args& args) {
  const auto& s = *args.sampling;
  const auto& row = args.row;
  region whole{lowest, lowest, row.vocab - 1};
  if (s.top_k > 0 && s.top_k < row.vocab) whole = first_k(args, whole);
  float least = lowest;
  if (s.min_p > 0.0f) {
    const double log_least = std::log(static_cast<double>(s.min_p));
    least = lowest_logit(args, [=](float x) { return static_cast<double>(x) >= log_least; });
  }
  race draw(args);
  for (auto left = whole;;) {
    const auto id = draw.run(left, least);
    if (!(s.top_p < 1.0f) || id == row.top.id) return id;
    left = region_up_to(args, row.x[id], id - 1);
    const auto mass = whole.low > lowest ? sum_masses<false>(args, whole, left)
                                         : sum_masses<true>(args, whole, left);
    const double over = mass.before - static_cast<double>(s.top_p) * mass.whole;
    if (over < -2e-5 * mass.whole) return id;
    if (!(over > 2e-5 * mass.whole)) return draw_id_ref(args);
  }
}

}  // namespace deepinfer::kernels
