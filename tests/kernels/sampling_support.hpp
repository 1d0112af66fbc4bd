/// A batch for sample_rows with everything it points at, and the oracle: a full sort in double,
/// written from the contract without a look at the kernel's shortcuts. A run is one of every twin
/// this machine has; they must agree, and what is left in the batch is the reference's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/isa.hpp"
#include "kernels/sampling/sample_rows.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer::kernels {

/// Runs the parts last to first, as a team may.
class backward_team final : public thread_team {
public:
  explicit backward_team(std::int32_t threads) : threads_(threads) {}
  std::int32_t threads() const override { return threads_; }
  void run(std::int32_t parts, task work, void* context) override {
    for (auto part = parts; part-- > 0;) work(context, part, parts);
  }

private:
  std::int32_t threads_;
};

/// A thread for every part: what parts share, they fight for.
class threaded_team final : public thread_team {
public:
  explicit threaded_team(std::int32_t threads) : threads_(threads) {}
  std::int32_t threads() const override { return threads_; }
  void run(std::int32_t parts, task work, void* context) override {
    std::vector<std::thread> running;
    for (std::int32_t part = 0; part < parts; ++part)
      running.emplace_back([=] { work(context, part, parts); });
    for (auto& one : running) one.join();
  }

private:
  std::int32_t threads_;
};

struct sample_batch {
  static constexpr std::int32_t block_size = 4;
  static constexpr std::int32_t table_stride = 16;
  static constexpr std::int32_t best_max = 20;

  sample_batch(std::int32_t row_count, std::int32_t vocab_size)
    : rows(row_count),
      vocab(vocab_size) {
    const auto n = static_cast<std::size_t>(rows);
    logits.resize(n * static_cast<std::size_t>(vocab));
    sampling.resize(n);
    positions.assign(n, 1);
    histories.resize(n);
    masks.resize(n);
    for (std::int32_t row = 0; row < rows; ++row) slots.push_back(row);
  }

  float* row_logits(std::int32_t row) { return logits.data() + std::int64_t{row} * vocab; }

  /// The tokens of the row's sequence so far; the next one is produced at position tokens.size().
  void set_history(std::int32_t row, std::vector<std::int32_t> tokens) {
    positions[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(tokens.size());
    histories[static_cast<std::size_t>(row)] = std::move(tokens);
  }

  void run(std::int32_t threads = 1) {
    backward_team team(threads);
    run_on(team);
  }

  void run_on(thread_team& team) {
    const auto n = static_cast<std::size_t>(rows);
    // Blocks are handed out backwards, so that a table read in the wrong order shows.
    std::vector<std::int32_t> history(n * table_stride * block_size, -7);
    std::vector<std::int32_t> tables(n * table_stride);
    for (std::size_t i = 0; i < tables.size(); ++i)
      tables[i] = static_cast<std::int32_t>(tables.size() - 1 - i);
    for (std::size_t row = 0; row < n; ++row) {
      const auto slot = slots[row] < 0 ? row : static_cast<std::size_t>(slots[row]);
      for (std::size_t p = 0; p < histories[row].size(); ++p) {
        const auto block = static_cast<std::size_t>(tables[slot * table_stride + p / block_size]);
        history[block * block_size + p % block_size] = histories[row][p];
      }
    }
    std::vector<const std::uint32_t*> mask_rows;
    for (const auto& mask : masks) mask_rows.push_back(mask.empty() ? nullptr : mask.data());
    sample_rows_args args;
    args.logits = logits.data();
    args.logits_stride = vocab;
    args.slots = slots.data();
    args.positions = positions.data();
    args.sampling = sampling.data();
    args.history = history.data();
    args.tables = tables.data();
    args.table_stride = table_stride;
    args.block_size = block_size;
    args.masks = mask_rows.data();
    args.rows = rows;
    args.vocab = vocab;
    const stream_ref stream{&team};
#if defined(__x86_64__)
    if (runs(isa::avx2)) {
      run_twin(sample_rows_avx2, stream, args, twin_scratch);
      const auto twin = *this;
      run_twin(sample_rows_ref, stream, args, scratch);
      check_same(twin);
      return;
    }
#endif
    run_twin(sample_rows_ref, stream, args, scratch);
  }

  using twin_function = void (*)(const stream_ref&, const sample_rows_args&);

  void run_twin(twin_function twin, const stream_ref& stream, sample_rows_args args,
                std::vector<std::uint64_t>& twin_memory) {
    const auto n = static_cast<std::size_t>(rows);
    const auto words = sample_rows_scratch_bytes(vocab, stream.team->threads()) / 8;
    if (twin_memory.size() < words) twin_memory.assign(words, 0);
    ids.assign(n, -5);
    status.assign(n, sample_status::ok);
    best_counts.assign(n, -5);
    chosen_logprobs.assign(n, 0.0f);
    best_ids.assign(n * best_max, -5);
    best_logprobs.assign(n * best_max, 0.0f);
    args.ids = ids.data();
    args.status = status.data();
    args.best_max = best_max;
    args.best_counts = best_counts.data();
    args.chosen_logprobs = chosen_logprobs.data();
    args.best_ids = best_ids.data();
    args.best_logprobs = best_logprobs.data();
    args.scratch = twin_memory.data();
    twin(stream, args);
  }

  /// The same choices, and logprobs that are neighbours, or as near as sums in f64 are.
  void check_same(const sample_batch& twin) const {
    CHECK(twin.ids == ids);
    CHECK(twin.status == status);
    CHECK(twin.best_counts == best_counts);
    CHECK(twin.best_ids == best_ids);
    const auto are_near = [](const std::vector<float>& a, const std::vector<float>& b) {
      for (std::size_t i = 0; i < a.size(); ++i)
        if (!(std::abs(a[i] - b[i]) <= 1e-12f) && std::nextafter(a[i], b[i]) != b[i]) return false;
      return true;
    };
    CHECK(are_near(twin.chosen_logprobs, chosen_logprobs));
    CHECK(are_near(twin.best_logprobs, best_logprobs));
  }

  std::int32_t rows;
  std::int32_t vocab;
  std::vector<float> logits;
  std::vector<std::int32_t> slots, positions;
  std::vector<slot_sampling> sampling;
  std::vector<std::vector<std::int32_t>> histories;
  std::vector<std::vector<std::uint32_t>> masks;
  std::vector<std::uint64_t> scratch, twin_scratch;

  std::vector<std::int32_t> ids, best_counts, best_ids;
  std::vector<sample_status> status;
  std::vector<float> chosen_logprobs, best_logprobs;
};

/// What the contract says about one row.
struct row_oracle {
  std::vector<double> x;           ///< adjusted logits, before the temperature
  std::vector<std::int32_t> kept;  ///< in rank order
  std::vector<double> p;           ///< of the kept ids, renormalised
  std::int32_t id = -1;
};

inline row_oracle expect_row(const sample_batch& batch, std::int32_t row) {
  const auto i = static_cast<std::size_t>(row);
  const auto vocab = static_cast<std::size_t>(batch.vocab);
  const auto& s = batch.sampling[i];
  row_oracle out;
  for (std::size_t id = 0; id < vocab; ++id)
    out.x.push_back(static_cast<double>(batch.logits[i * vocab + id]));
  for (std::int32_t b = 0; b < s.bias_count; ++b)
    out.x[static_cast<std::size_t>(s.bias[b].id)] += static_cast<double>(s.bias[b].bias);
  const auto& history = batch.histories[i];
  for (std::size_t id = 0; id < vocab; ++id) {
    int all = 0;
    int outputs = 0;
    for (std::size_t p = 0; p < history.size(); ++p)
      if (history[p] == static_cast<std::int32_t>(id)) {
        ++all;
        outputs += p >= static_cast<std::size_t>(s.prompt_tokens);
      }
    const auto r = static_cast<double>(s.repetition_penalty);
    if (all > 0) out.x[id] = out.x[id] > 0 ? out.x[id] / r : out.x[id] * r;
    out.x[id] -= static_cast<double>(s.frequency_penalty) * outputs;
    if (outputs > 0) out.x[id] -= static_cast<double>(s.presence_penalty);
  }
  const double none = -std::numeric_limits<double>::infinity();
  if (static_cast<std::int32_t>(history.size()) - s.prompt_tokens < s.min_tokens)
    for (std::int32_t k = 0; k < s.stop_count; ++k)
      out.x[static_cast<std::size_t>(k < 8 ? s.stop_ids[k] : s.more_stop_ids[k - 8])] = none;
  if (!batch.masks[i].empty())
    for (std::size_t id = 0; id < vocab; ++id)
      if ((batch.masks[i][id / 32] >> (id % 32) & 1) == 0) out.x[id] = none;

  for (std::size_t id = 0; id < vocab; ++id)
    if (out.x[id] > none) out.kept.push_back(static_cast<std::int32_t>(id));
  const auto x_of_id = [&](std::int32_t id) { return out.x[static_cast<std::size_t>(id)]; };
  std::stable_sort(out.kept.begin(), out.kept.end(),
                   [&](std::int32_t a, std::int32_t b) { return x_of_id(a) > x_of_id(b); });
  if (out.kept.empty()) return out;
  if (is_greedy(s)) {
    out.id = out.kept.front();
    return out;
  }
  const double top = x_of_id(out.kept.front());
  const auto weight = [&](std::int32_t id) {
    return std::exp((x_of_id(id) - top) / static_cast<double>(s.temperature));
  };
  if (s.top_k > 0 && static_cast<std::size_t>(s.top_k) < out.kept.size())
    out.kept.resize(static_cast<std::size_t>(s.top_k));
  double total = 0;
  for (const auto id : out.kept) total += weight(id);
  double before = 0;
  std::size_t keep = 0;
  for (; keep < out.kept.size(); ++keep) {
    if (before / total > static_cast<double>(s.top_p)) break;
    before += weight(out.kept[keep]);
  }
  if (s.top_p < 1.0f) out.kept.resize(keep);
  while (weight(out.kept.back()) < static_cast<double>(s.min_p)) out.kept.pop_back();
  total = 0;
  for (const auto id : out.kept) total += weight(id);
  double best = none;
  for (const auto id : out.kept) {
    out.p.push_back(weight(id) / total);
    const double noise =
      static_cast<double>(gumbel_noise(s.seed, static_cast<std::uint32_t>(history.size()),
                                       draw_purpose::target, static_cast<std::uint32_t>(id)));
    const double score = std::log(out.p.back()) + noise;
    if (score > best) {
      best = score;
      out.id = id;
    }
  }
  return out;
}

}  // namespace deepinfer::kernels
