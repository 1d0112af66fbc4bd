#include "kernels/sampling/reject_drafts.hpp"

#include <algorithm>

#include "kernels/sampling/filter_row.hpp"
#include "kernels/sampling/keep_candidates.hpp"

namespace deepinfer::kernels {

namespace {

/// q of one draft.
struct draft_distribution {
  const float* probs;  ///< [vocab] or null: all of it on `draft`
  std::int32_t draft;

  double operator()(std::int32_t id) const {
    if (probs) return static_cast<double>(probs[id]);
    return id == draft ? 1.0 : 0.0;
  }
};

filtered_row target_of(const reject_drafts_args& a, std::int32_t q, const filter_scratch& scratch) {
  const auto slot = a.slot[q];
  filter_row_args args;
  args.logits = a.logits + q * a.logits_stride;
  args.vocab = a.vocab;
  args.position = a.position[q];
  args.sampling = a.sampling + slot;
  args.history = a.history;
  args.table = a.tables ? a.tables + std::int64_t{slot} * a.table_stride : nullptr;
  args.block_size = a.block_size;
  args.mask = a.masks ? a.masks[q] : nullptr;
  args.scratch = scratch;
  return filter_row(args);
}

void set_id(const reject_drafts_args& a, std::int32_t q, std::int32_t id) {
  if (a.best_counts && a.best_counts[q] >= 0) {
    const auto* x = a.logits + q * a.logits_stride;
    a.chosen_logprobs[q] =
      static_cast<float>(static_cast<double>(a.chosen_logprobs[q]) + static_cast<double>(x[id]) -
                         static_cast<double>(x[a.id[q]]));
  }
  a.id[q] = id;
}

/// Whether the row goes on behind query q, its query `j`.
bool judge(const reject_drafts_args& a, std::int32_t q, std::int32_t j,
           const filter_scratch& scratch) {
  const auto& s = a.sampling[a.slot[q]];
  const auto p = target_of(a, q, scratch);
  if (p.status != sample_status::ok) return false;
  const auto draft = a.draft[q];
  const auto* probs = a.draft_probs ? a.draft_probs + (std::int64_t{a.slot[q]} * a.drafts_max + j) *
                                                        std::int64_t{a.vocab}
                                    : nullptr;
  const draft_distribution q_of{probs, draft};
  const auto word =
    random_words(s.seed, static_cast<std::uint32_t>(a.position[q]), draw_purpose::accept, 0)[0];
  if (p.probability_of(draft) > unit_real(word) * q_of(draft)) {
    set_id(a, q, draft);
    return true;
  }
  weight_race race(s.seed, a.position[q], draw_purpose::residual);
  for (std::int32_t i = 0; i < p.size; ++i) {
    const auto id = id_of(p.keys[i]);
    race.enter(id, p.probability(p.keys[i]) - q_of(id));
  }
  if (race.winner() >= 0) set_id(a, q, race.winner());
  return false;
}

void judge_row(const reject_drafts_args& a, std::int64_t row, const filter_scratch& scratch) {
  const auto begin = a.query_begin[row], end = a.query_begin[row + 1];
  for (auto q = begin; q < end; ++q) {
    if (a.draft[q] < 0 || a.status[q] != sample_status::ok || is_greedy(a.sampling[a.slot[q]]))
      return;
    if (!judge(a, q, q - begin, scratch)) return;
  }
}

}  // namespace

void reject_drafts_ref(const stream_ref& stream, const reject_drafts_args& args) {
  const std::int64_t rows = args.rows;
  const std::int64_t threads = stream.team ? stream.team->threads() : 1;
  const auto parts = std::min(rows, threads);
  stream.for_ranges(parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto part = begin; part < end; ++part) {
      const auto scratch = filter_scratch_of(args.scratch, args.vocab, part);
      for (auto row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
        judge_row(args, row, scratch);
    }
  });
}

}  // namespace deepinfer::kernels
