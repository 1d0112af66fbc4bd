#include <algorithm>

#include "kernels/sampling/draw_drafts.hpp"
#include "kernels/sampling/filter_row.hpp"
#include "kernels/sampling/keep_candidates.hpp"
#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

namespace {

std::int32_t draw_draft(const draw_drafts_args& a, std::int64_t row,
                        const filter_scratch& scratch) {
  if (a.slot[row] < 0) return -1;
  const auto& s = a.sampling[row];
  const auto* logits = a.logits + row * a.logits_stride;
  if (is_greedy(s)) {
    const auto top = find_peak_ref(logits, a.vocab, nullptr);
    return top.is_bad || top.id < 0 ? 0 : top.id;
  }
  filter_row_args args;
  args.logits = logits;
  args.vocab = a.vocab;
  args.position = a.position[row];
  args.sampling = &s;
  args.scratch = scratch;
  const auto q = filter_row(args);
  const auto place = std::int64_t{a.slot[row]} * a.drafts_max + a.draft;
  auto* probs = a.probs + place * a.vocab;
  std::fill_n(probs, a.vocab, 0.0f);
  if (q.status != sample_status::ok) {
    probs[0] = 1.0f;
    return 0;
  }
  weight_race race(s.seed, a.position[row], draw_purpose::draft);
  for (std::int32_t i = 0; i < q.size; ++i) {
    const auto p = static_cast<float>(q.probability(q.keys[i]));
    probs[id_of(q.keys[i])] = p;
    race.enter(id_of(q.keys[i]), static_cast<double>(p));
  }
  return race.winner();
}

}  // namespace

void draw_drafts_ref(const stream_ref& stream, const draw_drafts_args& args) {
  const std::int64_t rows = args.rows;
  const std::int64_t threads = stream.team ? stream.team->threads() : 1;
  const auto parts = std::min(rows, threads);
  stream.for_ranges(parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto part = begin; part < end; ++part) {
      const auto scratch = filter_scratch_of(args.scratch, args.vocab, part);
      for (auto row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
        args.id[row * args.id_stride] = draw_draft(args, row, scratch);
    }
  });
}

}  // namespace deepinfer::kernels
