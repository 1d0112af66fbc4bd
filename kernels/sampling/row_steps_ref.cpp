#include "kernels/sampling/row_steps.hpp"

#include <cmath>
#include <limits>

#include "kernels/sampling/keep_candidates.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer::kernels {

namespace {

constexpr float no_logit = -std::numeric_limits<float>::infinity();

/// Running argmax of x + noise, where x <= 0. An id that could not win with the largest noise there
/// is draws none: the result is the same.
class gumbel_race {
public:
  gumbel_race(const slot_sampling& sampling, std::int32_t position)
    : seed_(sampling.seed),
      position_(static_cast<std::uint32_t>(position)) {}

  void enter(float x, std::int32_t id) {
    if (static_cast<double>(x) + largest_gumbel < best_score_) return;
    const double score = noisy_score(x, word(static_cast<std::uint32_t>(id)));
    if (score > best_score_ || (score == best_score_ && id < best_id_)) {
      best_score_ = score;
      best_id_ = id;
    }
  }
  std::int32_t winner() const { return best_id_; }

private:
  // The word of gumbel_noise(seed, position, target, id), four ids to a draw.
  std::uint32_t word(std::uint32_t id) {
    if (id / 4 != draw_ || !has_words_) {
      draw_ = id / 4;
      words_ = random_words(seed_, position_, draw_purpose::target, draw_);
      has_words_ = true;
    }
    return words_[id % 4];
  }

  std::uint64_t seed_;
  std::uint32_t position_;
  std::uint32_t draw_ = 0;
  std::array<std::uint32_t, 4> words_{};
  bool has_words_ = false;
  double best_score_ = -std::numeric_limits<double>::infinity();
  std::int32_t best_id_ = std::numeric_limits<std::int32_t>::max();
};

}  // namespace

float scale_logit(float x, float top, float temperature) {
  return static_cast<float>((static_cast<double>(x) - static_cast<double>(top)) /
                            static_cast<double>(temperature));
}

double noisy_score(float x, std::uint32_t word) {
  return static_cast<double>(x) + static_cast<double>(gumbel_of(word));
}

peak find_peak_ref(const float* x, std::int32_t vocab, float*) {
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

// The peak enters the race first, so that hopeless ids are passed over early.
std::int32_t draw_id_ref(const draw_id_args& args) {
  const auto& s = *args.sampling;
  const auto& row = args.row;
  auto* x = args.scaled;
  for (std::int32_t id = 0; id < row.vocab; ++id)
    x[id] = scale_logit(row.x[id], row.top.x, s.temperature);
  gumbel_race race(s, args.position);
  race.enter(0.0f, row.top.id);
  if (has_cuts(s, row.vocab)) {
    auto* keys = args.keys;
    const auto kept = keep_candidates_ref(s, keys, list_candidates(x, row.vocab, keys));
    for (std::int32_t i = 0; i < kept; ++i) race.enter(x_of(keys[i]), id_of(keys[i]));
  } else {
    for (std::int32_t id = 0; id < row.vocab; ++id)
      if (x[id] > no_logit) race.enter(x[id], id);
  }
  return race.winner();
}

double sum_exp_ref(const row_view& row) {
  const double x_max = static_cast<double>(row.top.x);
  double sum = 0;
  for (std::int32_t id = 0; id < row.vocab; ++id)
    sum += std::exp(static_cast<double>(row.x[id]) - x_max);
  return sum;
}

std::int32_t list_best_ref(const row_view& row, std::int32_t, std::int32_t* ids) {
  std::int32_t size = 0;
  for (std::int32_t id = 0; id < row.vocab; ++id)
    if (row.x[id] > no_logit) ids[size++] = id;
  return size;
}

}  // namespace deepinfer::kernels
