#include <doctest/doctest.h>

#include "tests/kernels/sampling_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

float uniform(std::mt19937& random, float low, float high) {
  return low + (high - low) * (static_cast<float>(random() >> 8) * 0x1p-24f);
}

bool chance(std::mt19937& random, unsigned percent) {
  return random() % 100 < percent;
}

struct random_lists {
  std::vector<std::vector<token_bias>> bias;
  std::vector<std::vector<std::int32_t>> stops;
};

// Any mix of parameters, logits spread from flat to peaked.
void fill_row(std::mt19937& random, sample_batch& batch, std::int32_t row, random_lists& lists) {
  const auto vocab = static_cast<std::uint32_t>(batch.vocab);
  const auto spread = uniform(random, 0.1f, 12.0f);
  for (std::int32_t id = 0; id < batch.vocab; ++id)
    batch.row_logits(row)[id] = uniform(random, -spread, spread);
  auto& s = batch.sampling[static_cast<std::size_t>(row)];
  s.temperature = chance(random, 15) ? 0.0f : uniform(random, 0.2f, 2.0f);
  if (chance(random, 40)) s.top_k = static_cast<std::int32_t>(random() % (vocab + 3));
  if (chance(random, 50)) s.top_p = uniform(random, 0.01f, 1.0f);
  if (chance(random, 30)) s.min_p = uniform(random, 0.0f, 1.0f);
  if (chance(random, 40)) s.presence_penalty = uniform(random, -2.0f, 2.0f);
  if (chance(random, 40)) s.frequency_penalty = uniform(random, -2.0f, 2.0f);
  if (chance(random, 40)) s.repetition_penalty = uniform(random, 0.5f, 2.0f);
  s.seed = std::uint64_t{random()} << 32 | random();
  s.prompt_tokens = 1 + static_cast<std::int32_t>(random() % 20);
  std::vector<std::int32_t> history;
  const auto length = static_cast<std::size_t>(s.prompt_tokens) + random() % 30;
  while (history.size() < length) history.push_back(static_cast<std::int32_t>(random() % vocab));
  batch.set_history(row, history);

  auto& stops = lists.stops.emplace_back();
  for (auto k = random() % 12; k > 0 && vocab > 30; --k)
    stops.push_back(static_cast<std::int32_t>(random() % vocab));
  s.stop_count = static_cast<std::int32_t>(stops.size());
  for (std::size_t k = 0; k < stops.size() && k < 8; ++k) s.stop_ids[k] = stops[k];
  s.more_stop_ids = stops.size() > 8 ? stops.data() + 8 : nullptr;
  s.min_tokens = static_cast<std::int32_t>(random() % 20);
  auto& bias = lists.bias.emplace_back();
  for (auto k = random() % 5; k > 0; --k)
    bias.push_back({static_cast<std::int32_t>(random() % vocab), uniform(random, -5.0f, 5.0f)});
  s.bias_count = static_cast<std::int32_t>(bias.size());
  s.bias = bias.data();
  if (vocab > 30 && chance(random, 30)) {
    auto& mask = batch.masks[static_cast<std::size_t>(row)];
    for (std::uint32_t word = 0; word < (vocab + 31) / 32; ++word)
      mask.push_back(static_cast<std::uint32_t>(random()) | 1u);
  }
}

sample_batch random_batch(std::uint32_t seed, std::int32_t rows, std::int32_t vocab,
                          random_lists& lists) {
  std::mt19937 random(seed);
  sample_batch batch(rows, vocab);
  lists.bias.reserve(static_cast<std::size_t>(rows));
  lists.stops.reserve(static_cast<std::size_t>(rows));
  for (std::int32_t row = 0; row < rows; ++row) fill_row(random, batch, row, lists);
  return batch;
}

slot_sampling plain(float temperature, std::uint64_t seed = 1) {
  slot_sampling s;
  s.temperature = temperature;
  s.seed = seed;
  s.prompt_tokens = 1;
  return s;
}

}  // namespace

TEST_CASE("sample_rows equals a full sort in double, for random logits and parameters") {
  int checked = 0;
  for (const std::int32_t vocab : {1, 2, 7, 33, 257, 1000}) {
    random_lists lists;
    const auto rows = 150;
    auto batch = random_batch(static_cast<std::uint32_t>(vocab), rows, vocab, lists);
    batch.run(3);
    for (std::int32_t row = 0; row < rows; ++row) {
      CAPTURE(vocab);
      CAPTURE(row);
      const auto expected = expect_row(batch, row);
      const auto i = static_cast<std::size_t>(row);
      if (expected.kept.empty()) {
        CHECK(batch.status[i] == sample_status::no_candidate);
        continue;
      }
      REQUIRE(batch.status[i] == sample_status::ok);
      CHECK(batch.ids[i] == expected.id);
      ++checked;
    }
  }
  CHECK(checked > 800);
}

TEST_CASE("a row depends on neither its place, its batch, nor the number of threads [I43]") {
  random_lists lists;
  constexpr std::int32_t rows = 24;
  auto batch = random_batch(99, rows, 500, lists);
  for (auto& s : batch.sampling) s.logprobs = 3;
  batch.run(1);
  const auto ids = batch.ids;
  const auto logprobs = batch.best_logprobs;
  for (const std::int32_t threads : {2, 3, 7, 64}) {
    batch.scratch.clear();
    batch.twin_scratch.clear();
    batch.run(threads);
    CHECK(batch.ids == ids);
    CHECK(std::memcmp(batch.best_logprobs.data(), logprobs.data(), logprobs.size() * 4) == 0);
  }
  for (int round = 0; round < 20; ++round) {
    threaded_team team(4);
    batch.scratch.clear();
    batch.twin_scratch.clear();
    batch.run_on(team);
    REQUIRE(batch.ids == ids);
  }
  for (std::int32_t row = 0; row < rows; ++row) {
    const auto i = static_cast<std::size_t>(row);
    // Alone, and as the last of a batch of itself and others in another order.
    sample_batch alone(1, 500);
    sample_batch moved(3, 500);
    for (auto* into : {&alone, &moved}) {
      for (std::int32_t r = 0; r < into->rows; ++r) {
        const auto from = r == into->rows - 1 ? i : static_cast<std::size_t>((row + 5 + r) % rows);
        const auto to = static_cast<std::size_t>(r);
        std::copy_n(batch.row_logits(static_cast<std::int32_t>(from)), 500, into->row_logits(r));
        into->sampling[to] = batch.sampling[from];
        into->set_history(r, batch.histories[from]);
        into->masks[to] = batch.masks[from];
      }
      into->run();
      CHECK(into->ids.back() == ids[i]);
    }
  }
}

TEST_CASE("noise depends on seed and position: the same pair repeats, another one does not") {
  sample_batch batch(4, 4096);
  for (std::int32_t row = 0; row < 4; ++row) {
    batch.sampling[static_cast<std::size_t>(row)] = plain(1.0f, row == 3 ? 6u : 5u);
    batch.set_history(row, std::vector<std::int32_t>(row == 2 ? 9u : 8u, row));
  }
  batch.run();
  CHECK(batch.ids[0] == batch.ids[1]);  // other history, same seed and position
  CHECK(batch.ids[0] != batch.ids[2]);
  CHECK(batch.ids[0] != batch.ids[3]);
}

TEST_CASE("frequencies follow the probabilities within 3 sigma") {
  // 8 ids, two of which top-p removes; 60 bins would need a wider bound, 6 do not.
  const double logits[] = {0.0, 1.0, 2.0, -3.0, 1.5, 0.5, -4.0, 2.5};
  constexpr std::int32_t draws = 20000;
  constexpr std::int32_t per_batch = 2000;
  sample_batch batch(per_batch, 8);
  std::vector<int> counts(8);
  row_oracle expected;
  for (std::int32_t base = 0; base < draws; base += per_batch) {
    for (std::int32_t row = 0; row < per_batch; ++row) {
      const auto i = static_cast<std::size_t>(row);
      for (std::int32_t id = 0; id < 8; ++id)
        batch.row_logits(row)[id] = static_cast<float>(logits[id]);
      batch.sampling[i] = plain(0.8f, static_cast<std::uint64_t>(base + row) * 7919 + 3);
      batch.sampling[i].top_p = 0.98f;
    }
    batch.run();
    for (const auto id : batch.ids) ++counts[static_cast<std::size_t>(id)];
    expected = expect_row(batch, 0);
  }
  REQUIRE(expected.kept.size() == 6);
  int kept = 0;
  for (std::size_t i = 0; i < expected.kept.size(); ++i) {
    const auto id = expected.kept[i];
    CAPTURE(id);
    const double sigma = std::sqrt(draws * expected.p[i] * (1 - expected.p[i]));
    CHECK(std::abs(counts[static_cast<std::size_t>(id)] - draws * expected.p[i]) < 3 * sigma);
    kept += counts[static_cast<std::size_t>(id)];
  }
  CHECK(kept == draws);
}

TEST_CASE("consecutive positions of one seed are as good as independent draws") {
  constexpr std::int32_t draws = 20000;
  sample_batch batch(draws, 4);
  for (std::int32_t row = 0; row < draws; ++row) {
    batch.sampling[static_cast<std::size_t>(row)] = plain(1.0f, 42);
    batch.positions[static_cast<std::size_t>(row)] = row + 1;
  }
  batch.run();
  int counts[4] = {};
  int repeats = 0;
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    ++counts[batch.ids[i]];
    repeats += i > 0 && batch.ids[i] == batch.ids[i - 1];
  }
  const double sigma = std::sqrt(draws * 0.25 * 0.75);
  for (const auto count : counts) CHECK(std::abs(count - draws / 4) < 3 * sigma);
  CHECK(std::abs(repeats - draws / 4) < 3 * sigma);
}

TEST_CASE("ties go to the lowest id, in the argmax, in top-k and at the edge of top-p") {
  sample_batch batch(4, 8);
  std::fill(batch.logits.begin(), batch.logits.end(), 1.0f);
  batch.row_logits(0)[2] = batch.row_logits(0)[5] = 3.0f;
  batch.row_logits(1)[6] = 3.0f;
  batch.sampling[0] = plain(0.0f);
  batch.sampling[1] = plain(0.0f);
  batch.run();
  CHECK(batch.ids[0] == 2);
  CHECK(batch.ids[1] == 6);
  // Whatever the noise, only the three lowest of eight equals survive top_k = 3. Eight equals of
  // mass 1/8 and top_p = 0.25: masses before are 0, 1/8, 1/4, 3/8, so ids 0, 1, 2 survive.
  bool seen_k[8] = {};
  bool seen_p[8] = {};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    batch.sampling[2] = plain(1.0f, seed);
    batch.sampling[2].top_k = 3;
    batch.sampling[3] = plain(1.0f, seed);
    batch.sampling[3].top_p = 0.25f;
    batch.run();
    seen_k[batch.ids[2]] = true;
    seen_p[batch.ids[3]] = true;
  }
  for (int id = 0; id < 8; ++id) {
    CHECK(seen_k[id] == (id < 3));
    CHECK(seen_p[id] == (id < 3));
  }
}

TEST_CASE("the cuts at their edges") {
  struct edge {
    const char* name;
    float temperature, top_p, min_p;
    std::int32_t top_k;
    std::vector<std::int32_t> survivors;
  };
  // Weights 8, 4, 2, 1, 1 at temperature 1: probabilities 1/2, 1/4, 1/8, 1/16, 1/16.
  // clang-format off
  const edge table[] = {
    {"all off",                         1.0f, 1.0f,   0.0f,    0,   {0, 1, 2, 3, 4}},
    {"tiny top_p keeps the first",      1.0f, 1e-30f, 0.0f,    0,   {0}},
    {"mass before an id excludes it",   1.0f, 0.49f,  0.0f,    0,   {0}},
    {"the id that crosses stays",       1.0f, 0.51f,  0.0f,    0,   {0, 1}},
    {"top_p just below 1",              1.0f, 0.99999f, 0.0f,  0,   {0, 1, 2, 3, 4}},
    {"top_k 1 is the argmax",           1.0f, 1.0f,   0.0f,    1,   {0}},
    {"top_k past the vocabulary",       1.0f, 1.0f,   0.0f,    99,  {0, 1, 2, 3, 4}},
    {"top_p counts after top_k",        1.0f, 0.65f,  0.0f,    2,   {0}},
    {"min_p 1 keeps the best",          1.0f, 1.0f,   1.0f,    0,   {0}},
    {"min_p relative to the best",      1.0f, 1.0f,   0.24f,   0,   {0, 1, 2}},
    {"temperature comes before top_p",  0.5f, 0.74f,  0.0f,    0,   {0}},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.name);
    sample_batch batch(600, 5);
    for (std::int32_t r = 0; r < batch.rows; ++r) {
      const float weights[] = {8, 4, 2, 1, 1};
      for (int id = 0; id < 5; ++id) batch.row_logits(r)[id] = std::log(weights[id]);
      auto& s = batch.sampling[static_cast<std::size_t>(r)];
      s = plain(row.temperature, static_cast<std::uint64_t>(r));
      s.top_p = row.top_p;
      s.min_p = row.min_p;
      s.top_k = row.top_k;
    }
    batch.run();
    std::vector<std::int32_t> seen = batch.ids;
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    CHECK(seen == row.survivors);
  }
}

TEST_CASE("min_p keeps ids as good as the best, so equals stay together") {
  sample_batch batch(100, 3);
  for (std::int32_t row = 0; row < batch.rows; ++row) {
    batch.row_logits(row)[1] = batch.row_logits(row)[2] = 2.0f;
    auto& s = batch.sampling[static_cast<std::size_t>(row)];
    s = plain(1.0f, static_cast<std::uint64_t>(row));
    s.min_p = 1.0f;
  }
  batch.run();
  for (const std::int32_t id : {0, 1, 2})
    CHECK((std::count(batch.ids.begin(), batch.ids.end(), id) > 20) == (id > 0));
}

TEST_CASE("a temperature just above greedy picks the best and overflows nowhere") {
  sample_batch batch(1, 3);
  const float logits[] = {3e33f, -3e33f, 2.9e33f};
  std::copy_n(logits, 3, batch.row_logits(0));
  batch.sampling[0] = plain(1.01e-5f);
  batch.run();
  CHECK(batch.status[0] == sample_status::ok);
  CHECK(batch.ids[0] == 0);
}

TEST_CASE("a vocabulary of one, and a row where all ids but one are at -inf, have one answer") {
  sample_batch one(1, 1);
  one.sampling[0] = plain(1.0f);
  one.sampling[0].logprobs = 5;
  one.run();
  CHECK(one.ids[0] == 0);
  CHECK(one.best_counts[0] == 1);
  CHECK(one.chosen_logprobs[0] == 0.0f);

  sample_batch batch(2, 50);
  std::fill(batch.logits.begin(), batch.logits.end(), -infinite);
  batch.row_logits(0)[31] = batch.row_logits(1)[31] = -80.0f;
  batch.sampling[0] = plain(1.0f);
  batch.sampling[0].logprobs = 3;
  batch.sampling[1] = plain(0.0f);
  batch.run();
  CHECK(batch.ids == std::vector<std::int32_t>{31, 31});
  CHECK(batch.best_counts[0] == 1);  // an id at -inf is no alternative
  CHECK(batch.best_ids[0] == 31);
}

TEST_CASE("a row with a NaN, an infinite or no logit fails alone") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float temperature : {0.0f, 1.0f}) {
    sample_batch batch(5, 40);
    for (auto& s : batch.sampling) s = plain(temperature);
    for (auto& s : batch.sampling) s.logprobs = 2;
    for (std::int32_t row = 0; row < 5; ++row) batch.row_logits(row)[row] = 100.0f;
    batch.row_logits(1)[39] = nan;
    batch.row_logits(2)[0] = infinite;
    std::fill_n(batch.row_logits(3), 40, -infinite);
    batch.run(2);
    CHECK(batch.ids == std::vector<std::int32_t>{0, -1, -1, -1, 4});
    CHECK(batch.status == std::vector<sample_status>{
                            sample_status::ok, sample_status::bad_logits, sample_status::bad_logits,
                            sample_status::no_candidate, sample_status::ok});
    CHECK(batch.best_counts == std::vector<std::int32_t>{2, -1, -1, -1, 2});
  }
}

TEST_CASE("a bias that overflows a logit fails the row as well") {
  sample_batch batch(1, 4);
  batch.row_logits(0)[2] = 3e38f;
  const token_bias bias[] = {{2, 3e38f}};
  batch.sampling[0] = plain(1.0f);
  batch.sampling[0].bias = bias;
  batch.sampling[0].bias_count = 1;
  batch.run();
  CHECK(batch.status[0] == sample_status::bad_logits);
  CHECK(batch.ids[0] == -1);
}

TEST_CASE("zero rows is a call without effect, a padding row gets no id") {
  sample_rows_args none;
  none.vocab = 5;
  sample_rows_ref(stream_ref{}, none);

  sample_batch batch(2, 5);
  batch.slots[0] = -1;
  batch.row_logits(0)[2] = std::numeric_limits<float>::quiet_NaN();
  batch.row_logits(1)[4] = 1.0f;
  batch.sampling[1] = plain(0.0f);
  batch.run();
  CHECK(batch.ids == std::vector<std::int32_t>{-1, 4});
  CHECK(batch.status[0] == sample_status::ok);
  CHECK(batch.best_counts == std::vector<std::int32_t>{-1, -1});
}

TEST_CASE("logprobs are of the raw distribution, best first, ties by id, whatever was sampled") {
  // The row under test is the last of three and its slot the first: the others only differ.
  constexpr std::int32_t vocab = 300;
  sample_batch batch(3, vocab);
  batch.slots = {1, 2, 0};
  std::mt19937 random(7);
  for (auto& x : batch.logits) x = uniform(random, -6.0f, 6.0f);
  const auto* logits = batch.row_logits(2);
  batch.row_logits(2)[40] = batch.row_logits(2)[41] = 6.5f;
  const token_bias bias[] = {{40, -50.0f}, {41, -50.0f}, {123, 90.0f}};
  auto& s = batch.sampling[0];
  s = plain(0.3f);
  s.top_k = 1;
  s.bias = bias;
  s.bias_count = 3;
  s.logprobs = 4;
  batch.run();
  CHECK(batch.ids[2] == 123);
  double sum = 0;
  for (std::int32_t id = 0; id < vocab; ++id) sum += std::exp(static_cast<double>(logits[id]));
  std::vector<std::int32_t> order(vocab);
  for (std::int32_t id = 0; id < vocab; ++id) order[static_cast<std::size_t>(id)] = id;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  REQUIRE(batch.best_counts == std::vector<std::int32_t>{-1, -1, 4});
  for (std::size_t k = 0; k < 4; ++k) {
    const auto at = 2 * static_cast<std::size_t>(sample_batch::best_max) + k;
    CHECK(batch.best_ids[at] == order[k]);
    const auto x = static_cast<double>(logits[order[k]]);
    CHECK(static_cast<double>(batch.best_logprobs[at]) == doctest::Approx(x - std::log(sum)));
  }
  CHECK(order[0] == 40);
  CHECK(static_cast<double>(batch.chosen_logprobs[2]) ==
        doctest::Approx(static_cast<double>(logits[123]) - std::log(sum)));
}

TEST_CASE("logprobs asked for: none, only the chosen one, more than the caller has room for") {
  sample_batch batch(3, 64);
  for (std::int32_t row = 0; row < 3; ++row) {
    batch.sampling[static_cast<std::size_t>(row)] = plain(0.0f);
    batch.row_logits(row)[row] = 1.0f;
  }
  batch.sampling[1].logprobs = 0;
  batch.sampling[2].logprobs = 50;
  batch.run();
  CHECK(batch.best_counts == std::vector<std::int32_t>{-1, 0, sample_batch::best_max});
  CHECK(batch.chosen_logprobs[1] < 0.0f);
}
