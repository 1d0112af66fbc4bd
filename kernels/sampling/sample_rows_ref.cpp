#include "kernels/sampling/sample_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/sampling/keep_candidates.hpp"
#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

namespace {

constexpr std::size_t line_bytes = 64;

struct row_scratch {
  float* x;               ///< [vocab] adjusted logits
  std::uint64_t* keys;    ///< [vocab] candidates
  std::uint32_t* counts;  ///< [vocab] zero between rows
  std::int32_t* touched;  ///< [vocab]
  float* raw_maxima;      ///< [groups] of the row's logits
  float* maxima;          ///< [groups] of x
};

std::size_t padded(std::size_t bytes) {
  return (bytes + line_bytes - 1) / line_bytes * line_bytes;
}

std::size_t group_bytes(std::int32_t vocab) {
  return padded(static_cast<std::size_t>(group_count(vocab)) * sizeof(float));
}

std::size_t part_bytes(std::int32_t vocab) {
  const auto ids = static_cast<std::size_t>(vocab);
  return padded(ids * sizeof(std::uint64_t)) + 3 * padded(ids * sizeof(float)) +
         2 * group_bytes(vocab);
}

row_scratch scratch_of(const sample_rows_args& a, std::int64_t part) {
  const auto ids = static_cast<std::size_t>(a.vocab);
  auto* next =
    static_cast<std::byte*>(a.scratch) + static_cast<std::size_t>(part) * part_bytes(a.vocab);
  const auto take = [&next](std::size_t bytes) { return std::exchange(next, next + bytes); };
  row_scratch scratch;
  scratch.keys = reinterpret_cast<std::uint64_t*>(take(padded(ids * sizeof(std::uint64_t))));
  scratch.x = reinterpret_cast<float*>(take(padded(ids * sizeof(float))));
  scratch.counts = reinterpret_cast<std::uint32_t*>(take(padded(ids * sizeof(float))));
  scratch.touched = reinterpret_cast<std::int32_t*>(take(padded(ids * sizeof(float))));
  scratch.raw_maxima = reinterpret_cast<float*>(take(group_bytes(a.vocab)));
  scratch.maxima = reinterpret_cast<float*>(take(group_bytes(a.vocab)));
  return scratch;
}

void write_logprobs(const row_steps& steps, const sample_rows_args& a, std::int32_t row,
                    const row_view& raw, const row_scratch& scratch) {
  const double log_sum = static_cast<double>(raw.top.x) + std::log(steps.sum_exp(raw));
  const auto logprob = [&](float x) {
    return static_cast<float>(static_cast<double>(x) - log_sum);
  };
  a.chosen_logprobs[row] = logprob(raw.x[a.ids[row]]);
  auto count = std::min(a.sampling[a.slots[row]].logprobs, a.best_max);
  if (count > 0) {
    auto* keys = scratch.keys;
    const auto size = steps.list_best(raw, count, scratch.touched);
    for (std::int32_t i = 0; i < size; ++i)
      keys[i] = rank_key(raw.x[scratch.touched[i]], scratch.touched[i]);
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

sample_status choose_id(const row_steps& steps, const sample_rows_args& a, std::int32_t row,
                        row_view view, const row_scratch& scratch) {
  const auto slot = a.slots[row];
  const auto& s = a.sampling[slot];
  const auto* mask = a.masks ? a.masks[row] : nullptr;
  if (adjusts_logits(s, a.positions[row], mask != nullptr)) {
    std::memcpy(scratch.x, view.x, static_cast<std::size_t>(a.vocab) * sizeof(float));
    const auto* table =
      a.tables ? a.tables + static_cast<std::int64_t>(slot) * a.table_stride : nullptr;
    const auto status =
      adjust_logits_ref({scratch.x, a.vocab, a.positions[row], &s, a.history, table, a.block_size,
                         mask, scratch.counts, scratch.touched});
    if (status != sample_status::ok) return status;
    view = {scratch.x, scratch.maxima, a.vocab,
            steps.find_peak(scratch.x, a.vocab, scratch.maxima)};
    if (view.top.is_bad) return sample_status::bad_logits;
  }
  if (view.top.id < 0) return sample_status::no_candidate;
  a.ids[row] = is_greedy(s) ? view.top.id
                            : steps.draw_id({view, &s, a.positions[row], scratch.x, scratch.keys});
  return sample_status::ok;
}

void sample_row(const row_steps& steps, const sample_rows_args& a, std::int32_t row,
                const row_scratch& scratch) {
  a.ids[row] = -1;
  a.status[row] = sample_status::ok;
  if (a.best_counts) a.best_counts[row] = -1;
  if (a.slots[row] < 0) return;
  const auto* logits = a.logits + row * a.logits_stride;
  const row_view raw{logits, scratch.raw_maxima, a.vocab,
                     steps.find_peak(logits, a.vocab, scratch.raw_maxima)};
  a.status[row] =
    raw.top.is_bad ? sample_status::bad_logits : choose_id(steps, a, row, raw, scratch);
  if (a.status[row] != sample_status::ok) {
    a.ids[row] = -1;
    return;
  }
  if (a.sampling[a.slots[row]].logprobs >= 0 && a.best_counts)
    write_logprobs(steps, a, row, raw, scratch);
}

}  // namespace

std::size_t sample_rows_scratch_bytes(std::int32_t vocab, std::int32_t threads) {
  return part_bytes(vocab) * static_cast<std::size_t>(threads);
}

void sample_rows_by(const row_steps& steps, const stream_ref& stream,
                    const sample_rows_args& args) {
  // Each part owns one scratch area; rows are cut evenly.
  const std::int64_t rows = args.rows;
  const std::int64_t threads = stream.team ? stream.team->threads() : 1;
  const auto parts = std::min(rows, threads);
  stream.for_ranges(parts, [&](std::int64_t begin, std::int64_t end) {
    for (auto part = begin; part < end; ++part) {
      const auto scratch = scratch_of(args, part);
      for (auto row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
        sample_row(steps, args, static_cast<std::int32_t>(row), scratch);
    }
  });
}

void sample_rows_ref(const stream_ref& stream, const sample_rows_args& args) {
  sample_rows_by({find_peak_ref, draw_id_ref, sum_exp_ref, list_best_ref}, stream, args);
}

}  // namespace deepinfer::kernels
