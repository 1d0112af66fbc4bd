#include "kernels/sampling/sample_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/sampling/keep_candidates.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer::kernels {

namespace {

constexpr float no_logit = -std::numeric_limits<float>::infinity();
constexpr std::size_t line_bytes = 64;

struct row_scratch {
  float* x;               ///< [vocab] adjusted logits
  std::uint64_t* keys;    ///< [vocab] candidates
  std::uint32_t* counts;  ///< [vocab] zero between rows
  std::int32_t* touched;  ///< [vocab]
};

std::size_t padded(std::size_t bytes) {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

std::size_t part_bytes(std::int32_t vocab) {
  const auto ids = static_cast<std::size_t>(vocab);
  return padded(ids * sizeof(std::uint64_t)) + 3 * padded(ids * sizeof(float));
}

row_scratch scratch_of(const sample_rows_args& a, std::int64_t part) {
  const auto ids = static_cast<std::size_t>(a.vocab);
  auto* base =
    static_cast<std::byte*>(a.scratch) + static_cast<std::size_t>(part) * part_bytes(a.vocab);
  auto* after_keys = base + padded(ids * sizeof(std::uint64_t));
  const auto column = padded(ids * sizeof(float));
  return {reinterpret_cast<float*>(after_keys), reinterpret_cast<std::uint64_t*>(base),
          reinterpret_cast<std::uint32_t*>(after_keys + column),
          reinterpret_cast<std::int32_t*>(after_keys + 2 * column)};
}

/// The lowest id with the largest x, or -1 if there is none above -inf. `is_bad`: a NaN or +inf.
struct peak {
  std::int32_t id = -1;
  float x = no_logit;
  bool is_bad = false;
};

peak find_peak(const float* x, std::int32_t vocab) {
  peak best;
  for (std::int32_t id = 0; id < vocab; ++id) {
    if (!(x[id] <= std::numeric_limits<float>::max())) best.is_bad = true;
    if (x[id] > best.x) {
      best.x = x[id];
      best.id = id;
    }
  }
  return best;
}

/// Running argmax of x + noise, where x <= 0. An id that could not win with the largest noise there
/// is draws none: the result is the same.
class gumbel_race {
public:
  gumbel_race(const slot_sampling& sampling, std::int32_t position)
    : seed_(sampling.seed),
      position_(static_cast<std::uint32_t>(position)) {}

  void enter(float x, std::int32_t id) {
    if (static_cast<double>(x) + largest_gumbel < best_score_) return;
    const double score =
      static_cast<double>(x) + static_cast<double>(noise(static_cast<std::uint32_t>(id)));
    if (score > best_score_ || (score == best_score_ && id < best_id_)) {
      best_score_ = score;
      best_id_ = id;
    }
  }
  std::int32_t winner() const { return best_id_; }

private:
  // gumbel_noise(seed, position, target, id), four ids to a draw.
  float noise(std::uint32_t id) {
    if (id / 4 != draw_ || !has_words_) {
      draw_ = id / 4;
      words_ = random_words(seed_, position_, draw_purpose::target, draw_);
      has_words_ = true;
    }
    return gumbel_of(words_[id % 4]);
  }

  std::uint64_t seed_;
  std::uint32_t position_;
  std::uint32_t draw_ = 0;
  std::array<std::uint32_t, 4> words_{};
  bool has_words_ = false;
  double best_score_ = -std::numeric_limits<double>::infinity();
  std::int32_t best_id_ = std::numeric_limits<std::int32_t>::max();
};

// `top` is the peak of x. It enters the race first, so that hopeless ids are passed over early.
std::int32_t draw_id(const slot_sampling& s, std::int32_t position, std::int32_t vocab, peak top,
                     const row_scratch& scratch) {
  auto* x = scratch.x;
  for (std::int32_t id = 0; id < vocab; ++id)
    x[id] = static_cast<float>((static_cast<double>(x[id]) - static_cast<double>(top.x)) /
                               static_cast<double>(s.temperature));
  gumbel_race race(s, position);
  race.enter(0.0f, top.id);
  if (has_cuts(s, vocab)) {
    auto* keys = scratch.keys;
    const auto kept = keep_candidates_ref(s, keys, list_candidates(x, vocab, keys));
    for (std::int32_t i = 0; i < kept; ++i) race.enter(x_of(keys[i]), id_of(keys[i]));
  } else {
    for (std::int32_t id = 0; id < vocab; ++id)
      if (x[id] > no_logit) race.enter(x[id], id);
  }
  return race.winner();
}

void write_logprobs(const sample_rows_args& a, std::int32_t row, std::int32_t asked, peak top,
                    std::uint64_t* keys) {
  const auto* logits = a.logits + row * a.logits_stride;
  const double x_max = static_cast<double>(top.x);
  double sum = 0;
  for (std::int32_t id = 0; id < a.vocab; ++id)
    sum += std::exp(static_cast<double>(logits[id]) - x_max);
  const double log_sum = x_max + std::log(sum);
  const auto logprob = [&](float x) {
    return static_cast<float>(static_cast<double>(x) - log_sum);
  };

  a.chosen_logprobs[row] = logprob(logits[a.ids[row]]);
  auto count = std::min(asked, a.best_max);
  if (count > 0) {
    const auto size = list_candidates(logits, a.vocab, keys);
    count = std::min(count, size);
    rank_first(keys, size, count);
    const auto at = static_cast<std::int64_t>(row) * a.best_max;
    for (std::int32_t i = 0; i < count; ++i) {
      a.best_ids[at + i] = id_of(keys[i]);
      a.best_logprobs[at + i] = logprob(x_of(keys[i]));
    }
  }
  a.best_counts[row] = count;
}

sample_status choose_id(const sample_rows_args& a, std::int32_t row, peak raw,
                        const row_scratch& scratch) {
  const auto slot = a.slots[row];
  const auto& s = a.sampling[slot];
  const auto* logits = a.logits + row * a.logits_stride;
  const auto* mask = a.masks ? a.masks[row] : nullptr;
  const bool adjusts = adjusts_logits(s, a.positions[row], mask != nullptr);
  auto top = raw;
  if (adjusts || !is_greedy(s))
    std::memcpy(scratch.x, logits, static_cast<std::size_t>(a.vocab) * sizeof(float));
  if (adjusts) {
    const auto* table =
      a.tables ? a.tables + static_cast<std::int64_t>(slot) * a.table_stride : nullptr;
    const auto status =
      adjust_logits_ref({scratch.x, a.vocab, a.positions[row], &s, a.history, table, a.block_size,
                         mask, scratch.counts, scratch.touched});
    if (status != sample_status::ok) return status;
    top = find_peak(scratch.x, a.vocab);
    if (top.is_bad) return sample_status::bad_logits;
  }
  if (top.id < 0) return sample_status::no_candidate;
  a.ids[row] = is_greedy(s) ? top.id : draw_id(s, a.positions[row], a.vocab, top, scratch);
  return sample_status::ok;
}

void sample_row(const sample_rows_args& a, std::int32_t row, const row_scratch& scratch) {
  a.ids[row] = -1;
  a.status[row] = sample_status::ok;
  if (a.best_counts) a.best_counts[row] = -1;
  if (a.slots[row] < 0) return;
  const auto raw = find_peak(a.logits + row * a.logits_stride, a.vocab);
  a.status[row] = raw.is_bad ? sample_status::bad_logits : choose_id(a, row, raw, scratch);
  if (a.status[row] != sample_status::ok) {
    a.ids[row] = -1;
    return;
  }
  const auto asked = a.sampling[a.slots[row]].logprobs;
  if (asked >= 0 && a.best_counts) write_logprobs(a, row, asked, raw, scratch.keys);
}

}  // namespace

std::size_t sample_rows_scratch_bytes(std::int32_t vocab, std::int32_t threads) {
  return part_bytes(vocab) * static_cast<std::size_t>(threads);
}

void sample_rows_ref(const stream_ref& stream, const sample_rows_args& args) {
  // Each part owns one scratch area; rows are cut evenly.
  const std::int64_t rows = args.rows;
  const std::int64_t threads = stream.team ? stream.team->threads() : 1;
  const auto parts = std::min(rows, threads);
  stream.for_ranges(parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto part = begin; part < end; ++part) {
      const auto scratch = scratch_of(args, part);
      for (auto row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
        sample_row(args, static_cast<std::int32_t>(row), scratch);
    }
  });
}

}  // namespace deepinfer::kernels
