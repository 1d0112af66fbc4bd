// Invariants of model-v41.md 25 on the two generated models, bit for bit in every numeric mode.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "kernels/step/store_tokens.hpp"
#include "model_fixture.hpp"
#include "runtime/base/random.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

std::vector<weights_ptr> both_models(numeric_mode mode = numeric_mode::exact) {
  return {generated_t1({}, packing_of(mode)), generated_t2(packing_of(mode))};
}

session_config config_of(numeric_mode mode, std::int32_t slots = 1) {
  return {.numeric = mode,
          .slots = slots,
          .max_positions = 96,
          .num_drafts = 5,
          .draft_overhang = 12,
          .with_draft = true};
}

/// Everything a sequence of `length` positions has in memory that a later step may read.
std::vector<float> state_of(const model_config& config, const kv_state& state, std::int32_t slot,
                            std::int64_t length) {
  std::vector<float> all;
  const auto add = [&all](const std::vector<float>& part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  const auto window = std::min<std::int64_t>(length, config.window);
  for (std::int32_t layer = 0; layer < std::ssize(config.layers); ++layer) {
    const auto& facts = config.layers[static_cast<std::size_t>(layer)];
    add(window_rows(state, layer, slot, length - window, window));
    if (!facts.owns_rows) continue;
    add(compressed_rows(state, layer, slot, length / facts.ratio));
    add(index_keys(state, layer, slot, length / facts.ratio));
    const auto open = length % facts.ratio;
    if (facts.ratio > 1) add(pooling_rows(state, layer, slot, length - open, open));
  }
  return all;
}

void feed(model_session& session, std::int32_t slot, std::int32_t position,
          std::span<const token_id> ids, std::vector<float>& logits, model_observer* observer) {
  const session_row row{slot, position, ids};
  REQUIRE(session.run(inline_stream(), {&row, 1}, observer));
  const auto part = session.logits(inline_stream());
  logits.insert(logits.end(), part.begin(), part.end());
}

}  // namespace

TEST_CASE(
  "prefill of all = token by token = every split in two = random chunks: logits, state, taps") {
  constexpr std::int32_t length = 33;
  for (const auto mode : all_modes)
    for (const auto& weights : both_models(mode)) {
      const auto ids = spec_ids(length);
      std::vector<std::vector<std::int32_t>> splits;
      splits.emplace_back(length, 1);
      for (std::int32_t first = 1; first < length; ++first)
        splits.push_back({first, length - first});
      splits.push_back({1, 3, 7, 1, 13, 8});
      auto whole = make_session(weights, config_of(mode));
      recorder expected_seen;
      const auto expected = *whole->run_all(inline_stream(), ids, 0, &expected_seen);
      const auto expected_state = state_of(weights->config, whole->state(), 0, length);
      const recorder::key taps{model_point::main_hidden, -1};
      for (const auto& split : splits) {
        CAPTURE(split.front());
        auto session = make_session(weights, config_of(mode));
        recorder seen;
        std::vector<float> logits;
        std::int32_t position = 0;
        for (const auto part : split) {
          feed(*session, 0, position,
               std::span(ids).subspan(static_cast<std::size_t>(position),
                                      static_cast<std::size_t>(part)),
               logits, &seen);
          position += part;
        }
        CHECK(logits == expected);
        CHECK(seen.floats[taps] == expected_seen.floats[taps]);
        CHECK(state_of(weights->config, session->state(), 0, length) == expected_state);
      }
    }
}

TEST_CASE("a ragged batch = each sequence alone, in any order and at any slot") {
  constexpr std::int32_t lengths[] = {1, 2, 5, 8, 9, 16, 33};
  constexpr auto count = static_cast<std::int32_t>(std::size(lengths));
  for (const auto mode : all_modes)
    for (const auto& weights : both_models(mode)) {
      std::vector<ids> prompts;
      for (std::int32_t i = 0; i < count; ++i)
        prompts.push_back(random_ids(static_cast<std::uint64_t>(i) + 40, lengths[i], 128));
      for (const bool is_reversed : {false, true}) {
        auto together = make_session(weights, config_of(mode, count));
        std::vector<std::int32_t> order(count);
        std::iota(order.begin(), order.end(), 0);
        if (is_reversed) std::reverse(order.begin(), order.end());
        std::vector<session_row> rows;
        for (const auto i : order)
          rows.push_back({count - 1 - i, 0, prompts[static_cast<std::size_t>(i)]});
        REQUIRE(together->run(inline_stream(), rows));
        const auto all = together->logits(inline_stream());
        std::int64_t at = 0;
        for (const auto i : order) {
          CAPTURE(i);
          const auto length = lengths[i];
          auto alone = make_session(weights, config_of(mode));
          const auto expected =
            *alone->run_all(inline_stream(), prompts[static_cast<std::size_t>(i)]);
          const auto found = row_of(all, 0, std::ssize(all))
                               .subspan(static_cast<std::size_t>(at * 128), expected.size());
          CHECK(std::equal(found.begin(), found.end(), expected.begin()));
          CHECK(state_of(weights->config, together->state(), count - 1 - i, length) ==
                state_of(weights->config, alone->state(), 0, length));
          at += length;
        }
      }
    }
}

TEST_CASE("padding tokens change nothing and leave nothing") {
  for (const auto& weights : both_models()) {
    const auto ids = spec_ids(20);
    auto alone = make_session(weights, config_of(numeric_mode::exact));
    const auto expected = *alone->run_all(inline_stream(), ids);

    auto padded = make_session(weights, config_of(numeric_mode::exact, 2));
    auto& state = padded->state();
    deepseek_v41 model(weights, {.tokens = 32, .slots = 2, .positions = 96}, numeric_mode::exact,
                       kernels_under_test(), true);
    // Three padding tokens before, between (as rows of their own) and after two chunks.
    std::vector<std::int32_t> id, slot, position, row_token, row_first, real;
    const auto pad = [&](std::int32_t s, std::int32_t p) {
      row_token.push_back(static_cast<std::int32_t>(id.size()));
      id.push_back(0), slot.push_back(s), position.push_back(p), row_first.push_back(p);
    };
    pad(-1, 4);
    const auto first = static_cast<std::int32_t>(id.size());
    for (std::int32_t i = 0; i < 20; ++i) {
      real.push_back(static_cast<std::int32_t>(id.size()));
      row_token.push_back(first);
      row_first.push_back(0);
      id.push_back(ids[static_cast<std::size_t>(i)]);
      slot.push_back(1), position.push_back(i);
    }
    pad(0, -1);
    pad(-1, -1);
    step_tokens step;
    step.token_id = id.data();
    step.position_limit = 20;
    step.batch = {static_cast<std::int32_t>(id.size()),
                  slot.data(),
                  position.data(),
                  row_token.data(),
                  row_first.data(),
                  state.tables.data(),
                  state.layout.table_stride,
                  state.layout.block_size};
    kernels::store_tokens_ref(inline_stream(),
                              {id.data(), slot.data(), position.data(), step.batch.tokens,
                               state.tables.data(), state.layout.table_stride,
                               state.layout.block_size, state.tokens.data()});
    model.forward(inline_stream(), step, state);
    std::vector<float> logits(expected.size());
    model.logits(inline_stream(), real.data(), 20, state, logits.data());
    CHECK(logits == expected);
    CHECK(state_of(weights->config, state, 1, 20) ==
          state_of(weights->config, alone->state(), 0, 20));
    const auto untouched = window_rows(state, 0, 0, 0, state.layout.window_ring);
    CHECK(std::all_of(untouched.begin(), untouched.end(), [](float x) { return x == 0; }));
  }
}

TEST_CASE("rewind: after rejected drafts and a draft pass everything is as if never drafted") {
  constexpr std::int32_t length = 32, continued = 3;
  for (const auto mode : all_modes)
    for (const auto& weights : both_models(mode)) {
      const auto ids = spec_ids(length);
      const std::int64_t vocab = weights->config.vocab_size;
      const auto reference = *make_session(weights, config_of(mode))->run_all(inline_stream(), ids);
      for (std::int32_t n = 1; n <= 20; ++n) {
        auto session = make_session(weights, config_of(mode));
        REQUIRE(
          session->run_all(inline_stream(), std::span(ids).first(static_cast<std::size_t>(n))));
        for (std::int32_t drafts = 1; drafts <= 5; ++drafts)
          for (std::int32_t accepted = 0; accepted <= drafts; ++accepted) {
            CAPTURE(n);
            CAPTURE(drafts);
            CAPTURE(accepted);
            const std::int32_t slot = 0, last = n - 1;
            const token_id anchor = ids[static_cast<std::size_t>(n)];
            REQUIRE(session->draft(inline_stream(), {&slot, 1}, {&last, 1}, {&anchor, 1}, drafts));
            // Row 0 is the sampled token, then `accepted` right drafts, then wrong ones.
            deepinfer::test::ids verify;
            for (std::int32_t i = 0; i <= drafts; ++i) {
              const auto right = ids[static_cast<std::size_t>(n + i)];
              verify.push_back(i <= accepted ? right : (right + 17 * i) % 128);
            }
            std::vector<float> logits;
            feed(*session, 0, n, verify, logits, nullptr);
            logits.resize(static_cast<std::size_t>((accepted + 1) * vocab));
            auto position = n + accepted + 1;
            for (std::int32_t i = 0; i < continued; ++i, ++position)
              feed(*session, 0, position,
                   std::span(ids).subspan(static_cast<std::size_t>(position), 1), logits, nullptr);
            const auto expected =
              std::span(reference).subspan(static_cast<std::size_t>(n * vocab), logits.size());
            CHECK(std::equal(logits.begin(), logits.end(), expected.begin(), expected.end()));
          }
      }
    }
}

TEST_CASE("a draft pass leaves no trace, and its context may come from prefill or from decode") {
  for (const auto mode : all_modes)
    for (const auto& weights : both_models(mode))
      for (const auto length : {1, 5, 8, 9, 24}) {
        CAPTURE(length);
        const auto ids = spec_ids(length + 1);
        const auto prompt = std::span(ids).first(static_cast<std::size_t>(length));
        auto whole = make_session(weights, config_of(mode));
        auto stepped = make_session(weights, config_of(mode));
        REQUIRE(whole->run_all(inline_stream(), prompt));
        REQUIRE(stepped->run_all(inline_stream(), prompt, 1));
        const std::int32_t slot = 0, last = length - 1;
        const auto pass = [&](model_session& session, std::int32_t drafts) {
          return *session.draft(inline_stream(), {&slot, 1}, {&last, 1}, {&ids.back(), 1}, drafts);
        };
        const auto before = state_of(weights->config, whole->state(), 0, length);
        const auto first = pass(*whole, 5), again = pass(*whole, 5), other = pass(*stepped, 5);
        CHECK(first.ids == again.ids);
        CHECK(first.confidence == again.confidence);
        CHECK(first.ids == other.ids);
        CHECK(first.confidence == other.confidence);
        CHECK(state_of(weights->config, whole->state(), 0, length) == before);
        for (const auto drafts : {1, 2, 9}) {  // any K, not only the config's
          const auto made = pass(*whole, drafts);
          CHECK(std::ssize(made.ids) == drafts);
          CHECK(std::all_of(made.ids.begin(), made.ids.end(),
                            [](token_id id) { return id >= 0 && id < 128; }));
        }
      }
}

TEST_CASE("draft passes of several sequences = each alone, also when they do not fit together") {
  for (const auto& weights : both_models()) {
    constexpr std::int32_t count = 5, drafts = 5;
    auto config = config_of(numeric_mode::exact, count);
    config.max_tokens = 24;  // four sequences of five tokens at a time
    auto session = make_session(weights, config);
    std::vector<std::int32_t> slots, positions;
    ids anchors;
    std::vector<session_drafts> alone;
    for (std::int32_t i = 0; i < count; ++i) {
      const auto length = 3 + 4 * i;
      const auto prompt = random_ids(static_cast<std::uint64_t>(i) + 7, length, 128);
      const session_row row{i, 0, prompt};
      REQUIRE(session->run(inline_stream(), {&row, 1}));
      slots.push_back(i);
      positions.push_back(length - 1);
      anchors.push_back(11 * i + 3);
      alone.push_back(*session->draft(inline_stream(), {&slots.back(), 1}, {&positions.back(), 1},
                                      {&anchors.back(), 1}, drafts));
    }
    const reversed_team team_base(3);
    auto team = team_base;
    const stream_ref stream{&team, nullptr};
    const auto together = *session->draft(stream, slots, positions, anchors, drafts);
    for (std::int32_t i = 0; i < count; ++i) {
      CAPTURE(i);
      const auto found = row_of(together.ids, i, drafts);
      CHECK(ids(found.begin(), found.end()) == alone[static_cast<std::size_t>(i)].ids);
      const auto confidence = row_of(together.confidence, i, drafts);
      CHECK(std::vector(confidence.begin(), confidence.end()) ==
            alone[static_cast<std::size_t>(i)].confidence);
    }
  }
}

TEST_CASE("top-k beyond what is visible = dense; candidate blocks beyond all blocks = unmasked") {
  const auto ids = spec_ids(40);
  const auto logits_of = [&ids](const weights_ptr& weights, recorder* seen = nullptr) {
    auto session = make_session(weights, {.max_positions = 64});
    return *session->run_all(inline_stream(), ids, 0, seen);
  };
  const auto sized = [](std::int64_t topk, std::int64_t blocks) {
    return generated_t1([topk, blocks](json::object& text) {
      text["index_topk"] = topk;
      text["candidate_topk_blocks"] = blocks;
      if (blocks == 0) text["candidate_source_layer_id"] = nullptr;
    });
  };
  // Dense: every visible row is listed.
  recorder seen;
  const auto dense = logits_of(sized(64, 0), &seen);
  const auto& list = seen.ints[{model_point::index_list, 5}];
  for (std::int32_t t = 0; t < 40; ++t) {
    const auto row = row_of(list, t, 64);
    for (std::int32_t j = 0; j < 64; ++j)
      CHECK(row[static_cast<std::size_t>(j)] == (j <= t ? j : -1));
  }
  CHECK(logits_of(sized(40, 0)) == dense);
  CHECK(logits_of(sized(64, 17)) == dense);
  // Selecting: masks that hold every block mask nothing, smaller ones do.
  const auto unmasked = logits_of(sized(3, 0));
  CHECK(logits_of(sized(3, 10)) == unmasked);
  CHECK(logits_of(sized(3, 2)) != unmasked);
  CHECK(unmasked != dense);
}

TEST_CASE("the score buffer's size does not matter: tokens are scored in as many parts as needed") {
  const auto weights = generated_t1();
  const auto ids = spec_ids(40);
  auto session = make_session(weights, {.max_positions = 64});
  const auto expected = *session->run_all(inline_stream(), ids);
  deepseek_v41 model(weights, {.tokens = 40, .slots = 1, .positions = 64, .scores = 1},
                     numeric_mode::exact, kernels_under_test(), false);
  std::vector<std::int32_t> slot(40, 0), position(40), first(40, 0);
  std::iota(position.begin(), position.end(), 0);
  auto& state = session->state();
  step_tokens step;
  step.token_id = ids.data();
  step.position_limit = 40;
  step.batch = {
    40,           slot.data(),         position.data(),           first.data(),
    first.data(), state.tables.data(), state.layout.table_stride, state.layout.block_size};
  model.forward(inline_stream(), step, state);
  std::vector<float> logits(expected.size());
  model.logits(inline_stream(), position.data(), 40, state, logits.data());
  CHECK(logits == expected);
}
