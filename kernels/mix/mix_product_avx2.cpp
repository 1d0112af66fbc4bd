#include <algorithm>
#include <cmath>

#include "kernels/common/vector_avx2.hpp"
#include "kernels/mix/mix_parts.hpp"

namespace deepinfer::kernels {
namespace {

constexpr std::int64_t rows_together = 16;  ///< rows that pass over a group of runs in cache
constexpr std::int64_t group_runs = 4;
constexpr std::int64_t most_vectors = 3;  ///< of eight outputs, summed at once

/// Up to three vectors of outputs of the mix matrix.
struct output_slice {
  const float* weight[most_vectors];  ///< at input 0
  std::int64_t in;

  output_slice(const packed_matrix& m, std::int64_t first, std::int64_t vectors) : in(m.in) {
    const auto* data = reinterpret_cast<const float*>(m.data);
    for (std::int64_t v = 0; v < vectors; ++v) {
      const auto at = first + v;  // two vectors a panel
      weight[v] = data + at / 2 * m.in * panel_width + at % 2 * vector_width;
    }
  }
};

template <std::size_t Rows, std::size_t Vectors>
struct run_sums {
  __m256 of[Rows][Vectors];
};

/// Sums of `Runs` runs of `count` inputs from input `at`, for `Rows` rows: several sums at a time
/// hide the latency of the multiply-adds, and read the matrix in several places.
template <std::size_t Rows, std::size_t Runs, std::size_t Vectors>
void sum_runs(const output_slice& m, const float* x, std::int64_t at, std::int64_t count,
              run_sums<Rows, Vectors>* sums) {
  __m256 sum[Runs][Rows][Vectors];
  for (auto& run : sum)
    for (auto& row : run)
      for (auto& it : row) it = _mm256_setzero_ps();
  const float* rows[Rows];
  for (auto& row : rows) {
    row = x;
    x += m.in;
  }
  for (std::int64_t i = at; i < at + count; ++i) {
    auto input = i;
#pragma GCC unroll 4
    for (auto& run : sum) {
      __m256 w[Vectors];
#pragma GCC unroll 3
      for (std::size_t v = 0; v < Vectors; ++v)
        w[v] = _mm256_loadu_ps(m.weight[v] + input * panel_width);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        const __m256 value = _mm256_broadcast_ss(rows[r] + input);
#pragma GCC unroll 3
        for (std::size_t v = 0; v < Vectors; ++v)
          run[r][v] = _mm256_fmadd_ps(value, w[v], run[r][v]);
      }
      input += mix_run;
    }
  }
  for (std::size_t q = 0; q < Runs; ++q)
    for (std::size_t r = 0; r < Rows; ++r)
      for (std::size_t v = 0; v < Vectors; ++v) sums[q].of[r][v] = sum[q][r][v];
}

/// sink(run, row, sums) for runs [run, end) and `Rows` rows from `row`, runs ascending.
template <std::size_t Rows, std::size_t Runs, std::size_t Vectors, class Sink>
void rows_of_runs(const output_slice& m, const float* x, std::int64_t row, std::int64_t run,
                  std::int64_t end, Sink&& sink) {
  constexpr auto together = static_cast<std::int64_t>(Runs);
  run_sums<Rows, Vectors> sums[Runs];
  const auto pass_on = [&](const run_sums<Rows, Vectors>& it) {
    auto to = row;
    for (const auto& vectors : it.of) {
      float values[Vectors * 8];
      for (std::size_t v = 0; v < Vectors; ++v) _mm256_storeu_ps(values + 8 * v, vectors[v]);
      sink(run, to++, values);
    }
    ++run;
  };
  const float* first = x + row * m.in;
  while (run + together <= end && (run + together) * mix_run <= m.in) {
    sum_runs<Rows, Runs, Vectors>(m, first, run * mix_run, mix_run, sums);
    for (const auto& it : sums) pass_on(it);
  }
  while (run < end) {
    const auto at = run * mix_run;
    sum_runs<Rows, 1, Vectors>(m, first, at, std::min(mix_run, m.in - at), sums);
    pass_on(sums[0]);
  }
}

/// sink(run, row, sums) for runs [begin, end) and all rows; the runs of a row come ascending.
template <std::size_t Vectors, class Sink>
void sums_of_runs(const output_slice& m, const float* x, std::int64_t rows, std::int64_t begin,
                  std::int64_t end, Sink&& sink) {
  for (auto run = begin; run < end; run += group_runs) {
    const auto last = std::min(run + group_runs, end);
    std::int64_t row = 0;
    for (; row + 4 <= rows; row += 4) rows_of_runs<4, 1, Vectors>(m, x, row, run, last, sink);
    switch (rows - row) {
    case 3: rows_of_runs<3, 1, Vectors>(m, x, row, run, last, sink); break;
    case 2: rows_of_runs<2, 2, Vectors>(m, x, row, run, last, sink); break;
    case 1: rows_of_runs<1, 4, Vectors>(m, x, row, run, last, sink); break;
    default: break;
    }
  }
}

/// sink(first output, how many, run, row, sums) over all outputs.
template <class Sink>
void mix_sums(const hyper_mix_args& a, const float* x, std::int64_t rows, std::int64_t begin,
              std::int64_t end, Sink&& sink) {
  const auto vectors = (a.fn->out + vector_width - 1) / vector_width;
  for (std::int64_t first = 0; first < vectors; first += most_vectors) {
    const auto count = std::min(most_vectors, vectors - first);
    const output_slice m(*a.fn, first, count);
    const auto to = [&](std::int64_t run, std::int64_t row, const float* sums) {
      sink(first * vector_width, count * vector_width, run, row, sums);
    };
    if (count == 3)
      sums_of_runs<3>(m, x, rows, begin, end, to);
    else if (count == 2)
      sums_of_runs<2>(m, x, rows, begin, end, to);
    else
      sums_of_runs<1>(m, x, rows, begin, end, to);
  }
}

std::int64_t runs_of(const hyper_mix_args& a) {
  return (a.fn->in + mix_run - 1) / mix_run;
}

constexpr std::int64_t most_outputs = (2 + max_streams) * max_streams;

/// z = total / root mean square of the token's streams.
void scale_totals(const hyper_mix_args& a, std::int64_t token, const float* total) {
  const auto flat = a.fn->in, width = a.fn->out;
  const float mean = vector_sum_of_squares(a.x + token * flat, flat) / static_cast<float>(flat);
  const float factor = 1.0F / std::sqrt(mean + a.rms_eps);
  float* z = a.z + token * width;
  for (std::int64_t i = 0; i < width; ++i) z[i] = total[i] * factor;
}

void split_tokens(const hyper_mix_args& a, std::int64_t begin, std::int64_t end) {
  const auto n = a.split.streams;
  auto split = a.split;
  split.z = a.z + begin * a.fn->out;
  split.pre += begin * n;
  split.post += begin * n;
  split.comb += begin * n * n;
  split.tokens = end - begin;
  hyper_split_avx2({}, split);
}

}  // namespace

void mix_tokens_avx2(const hyper_mix_args& a, std::int64_t begin, std::int64_t end) {
  for (auto first = begin; first < end; first += rows_together) {
    const auto count = std::min(rows_together, end - first);
    float total[rows_together][most_outputs] = {};
    mix_sums(a, a.x + first * a.fn->in, count, 0, runs_of(a),
             [&](std::int64_t output, std::int64_t width, std::int64_t, std::int64_t row,
                 const float* sums) {
               for (std::int64_t i = 0; i < width; ++i) total[row][output + i] += sums[i];
             });
    for (std::int64_t row = 0; row < count; ++row) scale_totals(a, first + row, total[row]);
  }
  split_tokens(a, begin, end);
}

void mix_partial_avx2(const hyper_mix_args& a, std::int64_t begin, std::int64_t end) {
  const auto runs = runs_of(a), padded = mix_partial_floats(a.split.streams, a.dim) / runs;
  mix_sums(a, a.x, a.split.tokens, begin, end,
           [&](std::int64_t output, std::int64_t width, std::int64_t run, std::int64_t row,
               const float* sums) {
             std::copy(sums, sums + width, a.partial + (row * runs + run) * padded + output);
           });
}

void mix_from_partial_avx2(const hyper_mix_args& a) {
  const auto runs = runs_of(a), padded = mix_partial_floats(a.split.streams, a.dim) / runs;
  for (std::int64_t token = 0; token < a.split.tokens; ++token) {
    float total[most_outputs] = {};
    for (std::int64_t run = 0; run < runs; ++run) {
      const float* sums = a.partial + (token * runs + run) * padded;
      for (std::int64_t i = 0; i < padded; ++i) total[i] += sums[i];
    }
    scale_totals(a, token, total);
  }
  split_tokens(a, 0, a.split.tokens);
}

void hyper_mix_avx2(const stream_ref& stream, const hyper_mix_args& a) {
  const auto tokens = a.split.tokens;
  if (tokens == 0) return;
  check_hyper_mix(a);
  if (a.partial && stream.team && tokens < stream.team->threads()) {
    stream.for_ranges(
      runs_of(a), [&](std::int64_t begin, std::int64_t end) { mix_partial_avx2(a, begin, end); });
    mix_from_partial_avx2(a);
    return;
  }
  stream.for_ranges(tokens,
                    [&](std::int64_t begin, std::int64_t end) { mix_tokens_avx2(a, begin, end); });
}

}  // namespace deepinfer::kernels
