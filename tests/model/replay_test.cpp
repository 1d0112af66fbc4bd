// Bounded replay: what is kept has the same bits whether the rest is computed or left out; how far
// it is from the exact model.
#include "runtime/model/replay.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "one_sequence.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t length = 60;

std::unique_ptr<model_session> session_of(const weights_ptr& weights, replay_mode replay,
                                          numeric_mode mode = numeric_mode::exact,
                                          std::int32_t positions = 128) {
  return make_session(weights, {.numeric = mode,
                                .slots = 2,
                                .max_positions = positions,
                                .max_tokens = positions,
                                .num_drafts = 3,
                                .draft_overhang = 3,
                                .with_draft = weights->config.has_draft(),
                                .replay = replay});
}

void bound(model_session& session, std::int32_t slot, std::int32_t begin) {
  auto& begins = session.state().late_begin;
  if (begins.size() > 0) begins[slot] = begin;
}

/// Logits of positions [from, to) of slot 0, fed in chunks.
std::vector<float> feed(model_session& session, const ids& all, std::int32_t from, std::int32_t to,
                        std::int32_t chunk) {
  std::vector<float> made;
  for (; from < to; from += chunk) {
    const auto count = static_cast<std::size_t>(std::min(chunk, to - from));
    const session_row row{0, from, std::span(all).subspan(static_cast<std::size_t>(from), count)};
    REQUIRE(session.run(inline_stream(), {&row, 1}));
    const auto logits = session.logits(inline_stream());
    made.insert(made.end(), logits.begin(), logits.end());
  }
  return made;
}

/// Logits of all positions: [0, `prompt`) in chunks, the rest one by one; and drafts at the end.
struct outcome {
  std::vector<float> logits;
  std::vector<token_id> drafts;
  std::vector<float> confidence;
};

outcome run(const weights_ptr& weights, replay_mode replay, numeric_mode mode, const ids& all,
            std::int32_t prompt, std::int32_t keep, std::int32_t chunk) {
  auto session = session_of(weights, replay, mode);
  const slot_id slot{0};
  const auto tables =
    std::vector(session->state().tables.span().begin(), session->state().tables.span().end());
  session->state().poison({}, {&slot, 1});  // rows that are never written may not be read
  std::copy(tables.begin(), tables.end(), session->state().tables.data());
  bound(*session, 0, std::max(0, prompt - keep));
  outcome made;
  made.logits = feed(*session, all, 0, prompt, chunk);
  const auto later = feed(*session, all, prompt, static_cast<std::int32_t>(all.size()), 1);
  made.logits.insert(made.logits.end(), later.begin(), later.end());
  if (!weights->config.has_draft()) return made;
  const std::int32_t place = 0, position = static_cast<std::int32_t>(all.size()) - 1;
  const token_id anchor = 9;
  auto drafts = *session->draft(inline_stream(), {&place, 1}, {&position, 1}, {&anchor, 1}, 3);
  made.drafts = std::move(drafts.ids);
  made.confidence = std::move(drafts.confidence);
  return made;
}

/// Of the logits of one position: largest difference over largest magnitude.
double error_at(const std::vector<float>& found, const std::vector<float>& wanted,
                std::int64_t position, std::int64_t vocab) {
  double most = 0, scale = 0;
  for (auto i = static_cast<std::size_t>(position * vocab);
       i < static_cast<std::size_t>((position + 1) * vocab); ++i) {
    most = std::max(most, std::fabs(double{found[i]} - double{wanted[i]}));
    scale = std::max(scale, std::fabs(double{wanted[i]}));
  }
  return most / scale;
}

}  // namespace

TEST_CASE("compact = mask on every kept row, drafts and what is decoded behind, bit for bit") {
  constexpr std::int32_t prompt = 50;
  for (const auto mode : all_modes)
    for (const auto& weights : {generated_t1({}, packing_of(mode)), tiny_model(packing_of(mode))}) {
      const auto vocab = weights->config.vocab_size;
      const auto all = random_ids(31, length, vocab);
      for (const std::int32_t keep : {8, 13, 22, 49, 50, 64})
        for (const std::int32_t chunk : {prompt, 1, 7, 16}) {
          CAPTURE(static_cast<int>(mode));
          CAPTURE(keep);
          CAPTURE(chunk);
          const auto mask = run(weights, replay_mode::mask, mode, all, prompt, keep, prompt);
          const auto compact = run(weights, replay_mode::compact, mode, all, prompt, keep, chunk);
          const auto kept = std::ptrdiff_t{std::max(0, prompt - keep)} * vocab;
          REQUIRE(mask.logits.size() == compact.logits.size());
          CHECK(std::equal(mask.logits.begin() + kept, mask.logits.end(),
                           compact.logits.begin() + kept));
          CHECK(mask.drafts == compact.drafts);
          CHECK(mask.confidence == compact.confidence);
        }
    }
}

TEST_CASE("a bound that cuts nothing changes nothing, bit for bit") {
  const auto weights = generated_t1();
  const auto all = random_ids(32, length, weights->config.vocab_size);
  const auto off = run(weights, replay_mode::off, numeric_mode::exact, all, 50, 0, 50);
  for (const auto replay : {replay_mode::mask, replay_mode::compact})
    CHECK(run(weights, replay, numeric_mode::exact, all, 50, 50, 9).logits == off.logits);
}

TEST_CASE("late rows in a batch with other sequences: as alone, bit for bit") {
  const auto weights = generated_t1();
  const auto vocab = std::size_t{128};
  const auto one = random_ids(33, 40, 128), two = random_ids(34, 30, 128);
  for (const auto replay : {replay_mode::mask, replay_mode::compact}) {
    auto together = session_of(weights, replay), alone = session_of(weights, replay);
    bound(*alone, 0, 28);
    const auto expected = feed(*alone, one, 0, 40, 40);
    bound(*together, 0, 21);
    bound(*together, 1, 28);
    const session_row rows[] = {{0, 0, two}, {1, 0, one}};
    REQUIRE(together->run(inline_stream(), rows));
    const auto all = together->logits(inline_stream());
    CHECK(std::equal(expected.begin() + 28 * 128, expected.end(),
                     all.begin() + static_cast<std::ptrdiff_t>((30 + 28) * vocab)));
  }
}

TEST_CASE("the last token is exact where every late layer's window fits behind the cut") {
  const auto weights = generated_t1();  // window 8, three late layers: 3 * 7 + 1
  REQUIRE(*late_layer_of(weights->config) == 5);
  const auto vocab = weights->config.vocab_size;
  const auto all = random_ids(35, length, vocab);
  const auto exact = run(weights, replay_mode::off, numeric_mode::exact, all, length, 0, length);
  const auto error = [&](std::int32_t keep) {
    return error_at(
      run(weights, replay_mode::compact, numeric_mode::exact, all, length, keep, length).logits,
      exact.logits, length - 1, vocab);
  };
  CHECK(error(22) == 0);
  CHECK(error(40) == 0);
  CHECK(error(21) > 0);
  CHECK(error(8) > error(20));
  CHECK(error(8) < 0.2);
}

TEST_CASE("on the embedded model the error falls with keep_tokens, as replay.hpp says") {
  const auto weights = tiny_model();
  const auto vocab = weights->config.vocab_size;
  constexpr std::int32_t prompt = 200;
  struct error_case {
    std::int32_t keep;
    double most;
  };
  std::vector<ids> prompts;
  std::vector<std::vector<float>> exact;
  for (std::uint64_t i = 0; i < 16; ++i) {
    prompts.push_back(random_ids(300 + i, prompt, vocab));
    auto session = session_of(weights, replay_mode::off, numeric_mode::exact, prompt);
    exact.push_back(feed(*session, prompts.back(), 0, prompt, prompt));
  }
  // What this machine's kernels gave; others may round differently.
  for (const auto& row :
       {error_case{32, 2.4e-3}, {48, 9.4e-4}, {64, 2.9e-5}, {80, 3.6e-7}, {94, 0}}) {
    double most = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      auto session = session_of(weights, replay_mode::compact, numeric_mode::exact, prompt);
      bound(*session, 0, prompt - row.keep);
      most = std::max(
        most, error_at(feed(*session, prompts[i], 0, prompt, prompt), exact[i], prompt - 1, vocab));
    }
    CAPTURE(row.keep);
    CAPTURE(most);
    CHECK(most <= 2 * row.most);
    if (row.most > 1e-6) CHECK(most > row.most / 2);
  }
}

TEST_CASE("through plans: compact = mask, in chunks, with drafts, after preemption") {
  for (const auto& weights : {tiny_model(), generated_t1()}) {
    const auto prompt = random_ids(41, 90, weights->config.vocab_size);
    const auto answers_of = [&](replay_mode replay, std::int32_t chunk, std::int32_t outputs,
                                std::int32_t keep) {
      runner_config config;
      config.depth = 2;
      config.num_drafts = 3;
      config.drafter = drafter_kind::dspark;
      config.max_num_seqs = config.state_slots = 2;
      config.max_num_batched_tokens = config.max_model_len = 192;
      config.num_kv_blocks = 12;
      config.block_size = 16;
      config.kernels = kernels_under_test();
      config.replay = replay;
      config.keep_tokens = keep;
      const auto runner = *model_runner::make(weights, config);
      std::vector<block_id> blocks;
      for (std::int32_t i = 0; i < 12; ++i) blocks.push_back(block_id{i});
      const slot_id slot{1};
      runner->poison(blocks, {&slot, 1});
      one_sequence sequence(*runner, prompt, 1, blocks);
      sequence.outputs = outputs;
      return sequence.run(0, chunk, 10);
    };
    const auto mask = answers_of(replay_mode::mask, 90, 0, 33);
    for (const std::int32_t chunk : {90, 1, 17, 64}) {
      CAPTURE(chunk);
      CHECK(answers_of(replay_mode::compact, chunk, 0, 33) == mask);
      // What was known before a preemption counts as the prompt does.
      CHECK(answers_of(replay_mode::compact, chunk, 20, 33) == mask);
    }
    const auto off = answers_of(replay_mode::off, 90, 0, 0);
    CHECK(answers_of(replay_mode::compact, 17, 0, 90) == off);
    CHECK(answers_of(replay_mode::compact, 90, 0, 33).tokens.size() == off.tokens.size());
  }
}

TEST_CASE("replay is refused where settings or layers do not allow it") {
  const auto refusal = [](const model_config& model, auto&& edit) {
    runner_config runner;
    runner.max_num_seqs = runner.state_slots = runner.num_kv_blocks = 4;
    runner.max_num_batched_tokens = runner.max_model_len = 64;
    runner.replay = replay_mode::compact;
    runner.keep_tokens = 16;
    edit(runner);
    const auto made = make_kv_layout(model, runner, false);
    if (made) return std::string("allowed");
    CHECK(made.error().code == errc::invalid_argument);
    return made.error().message;
  };
  const auto model = generated_t1()->config;
  const auto nothing = [](runner_config&) {};
  CHECK(refusal(model, nothing) == "allowed");
  CHECK(refusal(model, [](auto& it) { it.prefix_cache = true; }) ==
        "replay: found together with prefix_cache, whose resume points need the windows of all "
        "layers; expected one of the two");
  CHECK(refusal(model, [](auto& it) { it.keep_tokens = 7; }) ==
        "replay_keep_tokens: found 7, expected at least the window, 8");
  CHECK(refusal(model, [](auto& it) { it.replay = replay_mode::off; }) ==
        "replay_keep_tokens: found 16, expected 0 without replay");
  const auto with = [&](std::size_t layer, auto&& edit) {
    auto changed = model;
    edit(changed.layers[layer]);
    return refusal(changed, nothing);
  };
  CHECK(with(6, [](auto& it) { it.engram = 0; }) ==
        "replay from layer 5: layer 6 has an Engram table");
  CHECK(with(4, [](auto& it) { it.tap = 0; }) ==
        "replay from layer 5: layer 4 is tapped by the drafter");
  CHECK(with(5, [](auto& it) { it.runs_indexer = false; }) ==
        "replay from layer 5: layer 5 does not choose its rows itself");
  CHECK(with(6, [](auto& it) { it.owns_index_keys = true; }) ==
        "replay from layer 5: layer 6 makes index keys");
  auto early = model;
  early.candidate_source = 3;
  early.layers[6].candidates = candidate_role::masked;
  CHECK(refusal(early, nothing) ==
        "replay from layer 5: layer 6 searches the candidates of an earlier layer");
  auto none = model;
  for (auto& it : none.layers) it.owns_rows = false;
  CHECK(refusal(none, nothing) ==
        "replay from layer -1: layer -1 is none: no layer has a memory of its own");
}
