// The classical acceptance rule on recorded logits with p != q: what stands is distributed as the
// target says, by chi-square over many seeds.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/sampling/draw_drafts.hpp"
#include "kernels/sampling/filter_row.hpp"
#include "kernels/sampling/reject_drafts.hpp"
#include "kernels/sampling/sample_rows.hpp"
#include "kernels/sampling/verify_rows.hpp"
#include "sampling_support.hpp"
#include "step_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr std::int32_t vocab = 10, drafts = 2, queries_per_row = drafts + 1;
using chances = std::array<double, vocab>;
using logits_row = std::array<float, vocab>;

// Target of the three positions, and the drafter's of the first two.
constexpr logits_row target[queries_per_row] = {
  {1.2f, -0.3f, 0.4f, 2.0f, -1.0f, 0.1f, 0.9f, -2.0f, 1.5f, 0.0f},
  {0.3f, 1.9f, -0.6f, 0.2f, 1.1f, -1.4f, 0.8f, 0.5f, -0.2f, 2.2f},
  {-0.5f, 0.6f, 2.1f, 1.3f, 0.0f, 0.7f, -0.9f, 1.8f, 0.2f, -0.1f}};
constexpr logits_row drafter[drafts] = {
  {0.2f, 1.4f, 0.3f, 1.1f, -0.4f, 2.0f, -1.0f, 0.6f, 0.0f, 0.9f},
  {1.6f, 0.1f, 0.9f, -0.8f, 1.2f, 0.4f, 1.9f, -0.3f, 0.7f, 0.5f}};

/// Softmax over the temperature after top-p, by a sort.
chances softmax(const logits_row& x, const slot_sampling& s) {
  std::array<std::size_t, vocab> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t left, std::size_t right) { return x[left] > x[right]; });
  chances p{};
  double total = 0;
  for (std::size_t id = 0; id < vocab; ++id)
    total += p[id] = std::exp(double{x[id]} / double{s.temperature});
  double before = 0, kept = 0;
  for (const auto id : order) {
    const auto mass = p[id] / total;
    if (before > double{s.top_p}) p[id] = 0;
    before += mass;
    kept += p[id];
  }
  for (auto& it : p) it /= kept;
  return p;
}

/// How often each id came; expected are the chances. The 1 in 10^5 quantile of chi-square with 9
/// degrees of freedom is 39.3; the seeds are fixed.
void check_distribution(const chances& expected, const std::array<std::int64_t, vocab>& seen) {
  const auto total = static_cast<double>(std::accumulate(seen.begin(), seen.end(), 0LL));
  CHECK(total > 1000);
  double chi_square = 0;
  for (std::size_t id = 0; id < vocab; ++id) {
    const auto want = expected[id] * total;
    if (want == 0) {
      CHECK(seen[id] == 0);
      continue;
    }
    const auto off = static_cast<double>(seen[id]) - want;
    chi_square += off * off / want;
  }
  CHECK(chi_square < 39.3);
}

/// One row per seed: drafts drawn (or given), ids chosen, drafts rejected, rows verified.
struct trial_batch {
  trial_batch(std::int32_t count, std::uint64_t first_seed, const slot_sampling& like)
    : rows(count),
      sampling(static_cast<std::size_t>(count), like),
      probs(static_cast<std::size_t>(count * drafts * vocab), -1.0f),
      scratch(3 * filter_scratch_bytes(vocab) + sample_rows_scratch_bytes(vocab, 3) + 64) {
    for (std::int32_t row = 0; row < rows; ++row) {
      sampling[static_cast<std::size_t>(row)].seed = first_seed + static_cast<std::uint64_t>(row);
      row_slot.push_back(row);
      query_begin.push_back(row * queries_per_row);
      for (std::int32_t j = 0; j < queries_per_row; ++j) {
        slot.push_back(row);
        position.push_back(5 + j);
        draft.push_back(-1);
        logits.insert(logits.end(), target[j].begin(), target[j].end());
      }
    }
    query_begin.push_back(rows * queries_per_row);
  }

  void* aligned_scratch() {
    std::fill(scratch.begin(), scratch.end(), std::byte{0});
    const auto at = reinterpret_cast<std::uintptr_t>(scratch.data());
    return scratch.data() + (64 - at % 64) % 64;
  }

  void draw(const stream_ref& stream) {
    for (std::int32_t j = 0; j < drafts; ++j) {
      std::vector<float> x;
      ints at(static_cast<std::size_t>(rows), 5 + j), ids(at);
      for (std::int32_t row = 0; row < rows; ++row)
        x.insert(x.end(), drafter[j].begin(), drafter[j].end());
      draw_drafts_ref(stream, {x.data(), vocab, row_slot.data(), at.data(), sampling.data(), rows,
                               vocab, j, drafts, probs.data(), ids.data(), 1, aligned_scratch()});
      for (std::int32_t row = 0; row < rows; ++row)
        draft[static_cast<std::size_t>(row * queries_per_row + j)] =
          ids[static_cast<std::size_t>(row)];
    }
  }

  void verify(const stream_ref& stream, bool one_hot) {
    const auto queries = draft.size();
    id.assign(queries, -7);
    status.assign(queries, sample_status::ok);
    best_counts.assign(queries, -7);
    logprobs.assign(queries, 0);
    sample_rows_args sample;
    sample.logits = logits.data();
    sample.logits_stride = vocab;
    sample.slots = slot.data();
    sample.positions = position.data();
    sample.sampling = sampling.data();
    sample.rows = static_cast<std::int32_t>(queries);
    sample.vocab = vocab;
    sample.ids = id.data();
    sample.status = status.data();
    sample.best_counts = best_counts.data();
    sample.chosen_logprobs = logprobs.data();
    sample.scratch = aligned_scratch();
    sample_rows_ref(stream, sample);
    chosen = id;
    reject_drafts_args reject;
    reject.logits = logits.data();
    reject.logits_stride = vocab;
    reject.query_begin = query_begin.data();
    reject.slot = slot.data();
    reject.position = position.data();
    reject.draft = draft.data();
    reject.sampling = sampling.data();
    reject.draft_probs = one_hot ? nullptr : probs.data();
    reject.drafts_max = drafts;
    reject.rows = rows;
    reject.vocab = vocab;
    reject.status = status.data();
    reject.id = id.data();
    reject.best_counts = best_counts.data();
    reject.chosen_logprobs = logprobs.data();
    reject.scratch = aligned_scratch();
    reject_drafts_ref(stream, reject);
    given.assign(static_cast<std::size_t>(rows), -7);
    ints is_alive(given);
    verify_rows_ref(stream,
                    {query_begin.data(), slot.data(), position.data(), draft.data(), id.data(),
                     sampling.data(), rows, false, given.data(), is_alive.data()});
  }

  std::int32_t rows;
  std::vector<slot_sampling> sampling;
  std::vector<float> probs, logits, logprobs;
  std::vector<std::byte> scratch;
  ints row_slot, query_begin, slot, position, draft, id, chosen, given, best_counts;
  std::vector<sample_status> status;
};

/// What came of many rows.
struct tally {
  std::array<std::int64_t, vocab> drawn[drafts] = {};         ///< drafts, as drawn
  std::array<std::int64_t, vocab> ids[queries_per_row] = {};  ///< token j, where it stands
  std::array<std::int64_t, vocab> residual[drafts] = {};  ///< token j where draft j was rejected
  std::int64_t accepted[drafts] = {};

  void add(const trial_batch& batch) {
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      const auto first = static_cast<std::size_t>(row * queries_per_row);
      const auto given = batch.given[static_cast<std::size_t>(row)];
      for (std::int32_t j = 0; j < drafts; ++j)
        ++drawn[j][static_cast<std::size_t>(batch.draft[first + static_cast<std::size_t>(j)])];
      for (std::int32_t j = 0; j < given; ++j) {
        const auto id = static_cast<std::size_t>(batch.id[first + static_cast<std::size_t>(j)]);
        ++ids[j][id];
        if (j < drafts && given == j + 1) ++residual[j][id];
        if (j < drafts && given > j + 1) ++accepted[j];
      }
    }
  }
};

slot_sampling hot(float top_p) {
  slot_sampling s;
  s.temperature = 0.8f;
  s.top_p = top_p;
  return s;
}

tally many(const slot_sampling& s, bool one_hot) {
  backward_team team(3);
  tally counts;
  constexpr std::int32_t rows = 2000, batches = 60;
  for (std::int32_t batch = 0; batch < batches; ++batch) {
    trial_batch trial(rows, 1 + static_cast<std::uint64_t>(batch) * rows, s);
    const stream_ref stream{&team};
    if (one_hot)
      for (std::size_t q = 0; q < trial.draft.size(); ++q)
        trial.draft[q] = q % queries_per_row == 0 ? 3 : q % queries_per_row == 1 ? 6 : -1;
    else
      trial.draw(stream);
    trial.verify(stream, one_hot);
    counts.add(trial);
  }
  return counts;
}

}  // namespace

TEST_CASE("rejection: first tokens, residuals and bonus tokens are the target's, by chi-square") {
  for (const auto top_p : {1.0f, 0.85f}) {
    CAPTURE(top_p);
    const auto s = hot(top_p);
    const auto counts = many(s, false);
    for (std::size_t j = 0; j < drafts; ++j) {
      CAPTURE(j);
      const auto p = softmax(target[j], s), q = softmax(drafter[j], s);
      check_distribution(q, counts.drawn[j]);
      check_distribution(p, counts.ids[j]);
      chances residual{};
      double overlap = 0;
      for (std::size_t id = 0; id < vocab; ++id) overlap += std::min(p[id], q[id]);
      for (std::size_t id = 0; id < vocab; ++id)
        residual[id] = std::max(p[id] - q[id], 0.0) / (1 - overlap);
      check_distribution(residual, counts.residual[j]);
      const auto judged =
        static_cast<double>(std::accumulate(counts.ids[j].begin(), counts.ids[j].end(), 0LL));
      const auto rate = static_cast<double>(counts.accepted[j]) / judged;
      CHECK(std::abs(rate - overlap) < 4 * std::sqrt(overlap * (1 - overlap) / judged));
    }
    check_distribution(softmax(target[drafts], s), counts.ids[drafts]);
  }
}

TEST_CASE("rejection: a draft that was not drawn has all of q, and the target still decides") {
  const auto s = hot(0.95f);
  const auto counts = many(s, true);
  const std::size_t draft[drafts] = {3, 6};
  for (std::size_t j = 0; j < drafts; ++j) {
    const auto p = softmax(target[j], s);
    check_distribution(p, counts.ids[j]);
    auto residual = p;
    residual[draft[j]] = 0;
    for (auto& it : residual) it /= 1 - p[draft[j]];
    check_distribution(residual, counts.residual[j]);
  }
  check_distribution(softmax(target[drafts], s), counts.ids[drafts]);
}

TEST_CASE("rejection: greedy slots keep the arg-max, its drafts are the drafter's arg-max") {
  inline_team team;
  const stream_ref stream{&team};
  trial_batch trial(3, 1, {});
  trial.draw(stream);
  CHECK(trial.draft[0] == 5);
  CHECK(trial.draft[1] == 6);
  CHECK(trial.probs[0] == -1.0f);
  trial.draft[3] = 3;  // right
  trial.draft[6] = 3;
  trial.draft[7] = 9;  // right as well
  trial.verify(stream, false);
  CHECK(trial.id == trial.chosen);
  CHECK(trial.given == ints{1, 2, 3});
}

TEST_CASE("rejection: logprobs are those of the ids that stand") {
  inline_team team;
  const stream_ref stream{&team};
  auto like = hot(1.0f);
  like.logprobs = 0;
  trial_batch trial(50, 1, like);
  trial.draw(stream);
  trial.verify(stream, false);
  const auto raw = [](std::size_t j) {
    slot_sampling s;
    s.temperature = 1;
    return softmax(target[j], s);
  };
  std::int32_t changed = 0;
  for (std::size_t row = 0; row < 50; ++row)
    for (std::size_t j = 0; j < static_cast<std::size_t>(trial.given[row]); ++j) {
      const auto q = row * queries_per_row + j;
      changed += trial.id[q] != trial.chosen[q] ? 1 : 0;
      CHECK(trial.logprobs[q] ==
            doctest::Approx(std::log(raw(j)[static_cast<std::size_t>(trial.id[q])])));
    }
  CHECK(changed > 10);
}

TEST_CASE("rejection: a draft of a drafter gone wrong is id 0 with all of q; failed rows stay") {
  inline_team team;
  const stream_ref stream{&team};
  trial_batch trial(1, 1, hot(1.0f));
  logits_row bad = drafter[0];
  bad[4] = std::numeric_limits<float>::quiet_NaN();
  const std::int32_t at = 5;
  std::int32_t id = -7;
  const auto draw = [&] {
    draw_drafts_ref(stream,
                    {bad.data(), vocab, trial.row_slot.data(), &at, trial.sampling.data(), 1, vocab,
                     1, drafts, trial.probs.data(), &id, 1, trial.aligned_scratch()});
  };
  draw();
  CHECK(id == 0);
  CHECK(trial.probs[vocab] == 1.0f);
  CHECK(trial.probs[vocab + 4] == 0.0f);
  trial.sampling[0].temperature = 0;
  id = -7;
  draw();
  CHECK(id == 0);
  trial.row_slot[0] = -1;
  draw();
  CHECK(id == -1);

  trial.sampling[0].temperature = 1;
  trial.draft = {3, 4, -1};
  trial.logits[2] = std::numeric_limits<float>::infinity();
  trial.verify(stream, true);
  CHECK(trial.status[0] == sample_status::bad_logits);
  CHECK(trial.id[0] == -1);
  CHECK(trial.given == ints{1});
}

TEST_CASE("rejection: zero rows is a legal call") {
  inline_team team;
  reject_drafts_ref({&team}, {});
  draw_drafts_ref({&team}, {});
}
