#include "kernels/step/ngram_drafts.hpp"

#include <algorithm>

namespace deepinfer::kernels {

namespace {

constexpr std::int32_t longest = 3;

/// The ids of one row's sequence, the anchor last.
struct sequence_ids {
  sequence_ids(const ngram_drafts_args& args, std::int64_t row)
    : a(args),
      table(args.tables + std::int64_t{args.slot[row]} * args.table_stride),
      last(args.position[row] + 1),
      anchor(args.anchor[row]) {}

  std::int32_t operator[](std::int32_t position) const {
    if (position == last) return anchor;
    const std::int64_t block = table[position / a.block_size];
    return a.history[block * a.block_size + position % a.block_size];
  }

  /// How many ids up to `end` equal the last ones of the sequence.
  std::int32_t match(std::int32_t end) const {
    std::int32_t n = 0;
    while (n < longest && n <= end && (*this)[end - n] == (*this)[last - n]) ++n;
    return n;
  }

  const ngram_drafts_args& a;
  const std::int32_t* table;
  std::int32_t last;
  std::int32_t anchor;
};

/// Where the latest of the longest matches ends; the sequence's own end if there is none.
std::int32_t find_match(const sequence_ids& ids) {
  std::int32_t best = 0, best_end = ids.last;
  for (auto end = ids.last - 1; end >= 0 && best < longest; --end) {
    const auto n = ids.match(end);
    if (n <= best) continue;
    best = n;
    best_end = end;
  }
  return best_end;
}

}  // namespace

void ngram_drafts_ref(const stream_ref& stream, const ngram_drafts_args& args) {
  stream.for_ranges(args.rows, [&args](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      auto* out = args.id + row * args.drafts;
      if (args.slot[row] < 0 || args.position[row] < 0) {
        std::fill_n(out, args.drafts, -1);
        continue;
      }
      const sequence_ids ids(args, row);
      const auto found = find_match(ids);
      for (std::int32_t j = 0; j < args.drafts; ++j)
        out[j] = ids[std::min(found + 1 + j, ids.last)];
    }
  });
}

}  // namespace deepinfer::kernels
