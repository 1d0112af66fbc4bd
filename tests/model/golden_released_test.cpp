// The recorded answers of tests/golden/model in the released numerics (v41-a-fp8,
// goldens_released).
//
// Rounding to bf16 hides most last bits of f32; where a value lies on the border between two bf16
// numbers one of them decides, and every later value of that position moves with it. With sums in
// the recorded order (fused_product, sum_in_eights) every position agrees, up to three exceptions:
// - ties: from a position or step with equal index scores on, the choice is free;
// - positions whose record says that their logits move with the order inside products;
// - prompts of two and three tokens, after their first. The matrix library of the recording run
//   sums the hyper-connection product of up to three rows in another order than that of four and
//   more. Here a row's bits don't depend on the number of rows; with the order of the short calls
//   throughout, positions of the longer prompts would depart instead.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "golden_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr double logits_tolerance = 2e-2, weight_tolerance = 1e-6, confidence_tolerance = 1e-3;
/// What the summation order moved when the set was made; above it nothing is promised.
constexpr double moved_when_recorded = 1e-3;

const golden_set& released() {
  static const golden_set set("v41-a-fp8", "goldens_released", numeric_mode::released);
  return set;
}

/// The first of the listed positions or steps, or `none`.
std::int32_t first_tie(const prompt& it, const char* key, std::int32_t none) {
  const auto ties = ids_of(it.facts.at(key));
  return ties.empty() ? none : *std::min_element(ties.begin(), ties.end());
}

bool is_moved(const prompt& it, const char* key, std::int32_t index) {
  return it.facts.at(key).as_array()[static_cast<std::size_t>(index)].to_number<double>() >=
         moved_when_recorded;
}

bool was_short_call(const prompt& it) {
  return it.length() == 2 || it.length() == 3;
}

/// One prompt's prefill with everything it showed.
struct prefill {
  const prompt& it;
  std::unique_ptr<model_session> session;
  recorder seen;
  std::vector<float> logits;
  std::int32_t end;  ///< positions before the first tie

  explicit prefill(const prompt& asked) : it(asked), session(released().session()) {
    logits = *session->run_all(inline_stream(), it.tokens, 0, &seen);
    end = first_tie(it, "prefill_tie_positions", it.length());
  }

  /// The record promises this position's values.
  bool is_promised(std::int32_t position) const {
    return position < end && !(was_short_call(it) && position > 0) &&
           !is_moved(it, "variant_max_abs_diff_per_prefill_position", position);
  }
};

/// One token's experts by id, with their weights.
std::vector<std::pair<std::int32_t, float>> by_id(std::span<const std::int32_t> id,
                                                  std::span<const float> weight) {
  std::vector<std::pair<std::int32_t, float>> made;
  for (std::size_t i = 0; i < id.size(); ++i) made.emplace_back(id[i], weight[i]);
  std::sort(made.begin(), made.end());
  return made;
}

/// Largest difference of one token's router weights; infinite if other experts were chosen.
double router_difference(const prefill& run, std::int32_t layer, std::int32_t token) {
  const std::int64_t chosen = released().weights->config.experts_per_token;
  const auto row = std::int64_t{layer} * run.it.length() + token;
  const auto golden = by_id(row_of(released().ints(run.it, "router_ids"), row, chosen),
                            row_of(released().floats(run.it, "router_weights"), row, chosen));
  const auto found =
    by_id(row_of(run.seen.ints.at({model_point::router_ids, layer}), token, chosen),
          row_of(run.seen.floats.at({model_point::router_weights, layer}), token, chosen));
  double most = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    if (found[i].first != golden[i].first) return 1e9;
    most = std::max(most, std::abs(double{found[i].second} - double{golden[i].second}));
  }
  return most;
}

}  // namespace

TEST_CASE("released goldens: experts and their weights, every layer of every promised position") {
  int compared = 0;
  for (const auto& it : released().prompts) {
    CAPTURE(it.name);
    const prefill run(it);
    for (std::int32_t position = 0; position < run.end; ++position) {
      if (!run.is_promised(position)) continue;
      CAPTURE(position);
      for (std::int32_t layer = 0; layer < released().weights->config.layer_count; ++layer) {
        CAPTURE(layer);
        CHECK(router_difference(run, layer, position) < weight_tolerance);
      }
      ++compared;
    }
  }
  CHECK(compared == 115);
}

TEST_CASE("released goldens: logits and arg-max of every promised position") {
  const std::int64_t vocab = released().weights->config.vocab_size;
  int compared = 0;
  for (const auto& it : released().prompts) {
    CAPTURE(it.name);
    const prefill run(it);
    const auto golden = released().floats(it, "logits");
    for (std::size_t i = 0; i < it.logits_rows.size(); ++i) {
      const auto row = it.logits_rows[i];
      if (!run.is_promised(row)) continue;
      CAPTURE(row);
      const auto found = row_of(run.logits, row, vocab);
      const auto wanted = row_of(golden, static_cast<std::int64_t>(i), vocab);
      CHECK(max_difference(found, wanted) < logits_tolerance);
      CHECK(arg_max(found) == arg_max(wanted));
      ++compared;
    }
  }
  CHECK(compared == 47);
}

TEST_CASE("released goldens: index lists and candidate blocks of every promised position") {
  const auto& config = released().weights->config;
  int compared = 0;
  for (const auto& it : released().prompts) {
    CAPTURE(it.name);
    prefill run(it);
    const auto compare = [&](model_point point, const char* name, std::int32_t layer) {
      const auto what = at_layer(name, layer);
      if (!released().has(it, what)) return;
      CAPTURE(what);
      const auto golden = released().ints(it, what);
      const auto& found = run.seen.ints[{point, layer}];
      REQUIRE(found.size() == golden.size());
      const auto width = static_cast<std::int64_t>(golden.size()) / it.length();
      for (std::int32_t row = 0; row < run.end; ++row) {
        if (!run.is_promised(row)) continue;
        CAPTURE(row);
        const auto a = row_of(found, row, width), b = row_of(golden, row, width);
        CHECK(std::equal(a.begin(), a.end(), b.begin()));
        ++compared;
      }
    };
    for (std::int32_t layer = 0; layer < config.layer_count; ++layer) {
      compare(model_point::index_list, "index_topk", layer);
      compare(model_point::candidate_blocks, "candidate_blocks", layer);
    }
  }
  CHECK(compared > 500);
}

TEST_CASE("released goldens: streams, sublayer outputs and caches of a prompt, bit for bit") {
  const auto& set = released();
  const auto& config = set.weights->config;
  constexpr std::pair<const char*, model_point> points[] = {
    {"stream", model_point::stream},
    {"engram_out", model_point::engram_out},
    {"attn_out", model_point::attention_out},
    {"ffn_out", model_point::ffn_out},
  };
  const auto found = std::find_if(set.prompts.begin(), set.prompts.end(),
                                  [](const prompt& it) { return it.name == "len16"; });
  REQUIRE(found != set.prompts.end());
  const auto& it = *found;
  prefill run(it);
  const auto& state = run.session->state();
  const std::int64_t length = it.length(), window = config.window;
  for (std::int32_t layer = 0; layer < config.layer_count; ++layer) {
    CAPTURE(layer);
    for (const auto& [name, point] : points) {
      const auto what = at_layer(name, layer);
      CAPTURE(what);
      if (set.has(it, what)) CHECK(run.seen.floats[{point, layer}] == set.floats(it, what));
    }
    // The one f32 value of a layer's end.
    CHECK(max_difference(run.seen.floats[{model_point::premix, layer}],
                         set.floats(it, at_layer("premix", layer))) < weight_tolerance);
    const auto ratio = config.layers[static_cast<std::size_t>(layer)].ratio;
    CHECK(window_rows(state, layer, 0, length - window, window) ==
          set.floats(it, at_layer("window_kv", layer)));
    if (!set.has(it, at_layer("compressed_kv", layer))) continue;
    CHECK(compressed_rows(state, layer, 0, length / ratio) ==
          set.floats(it, at_layer("compressed_kv", layer)));
    CHECK(index_keys(state, layer, 0, length / ratio) ==
          set.floats(it, at_layer("index_keys", layer)));
  }
}

TEST_CASE("released goldens: logits, drafts and confidences of every promised decode step") {
  const auto& set = released();
  const std::int64_t vocab = set.weights->config.vocab_size;
  const auto block = set.weights->config.draft.block_size;
  int compared = 0, drafted = 0;
  for (const auto& it : set.prompts) {
    CAPTURE(it.name);
    prefill run(it);
    if (was_short_call(it) || run.end < it.length()) continue;
    const auto golden = set.floats(it, "decode_logits");
    const auto steps = static_cast<std::int32_t>(golden.size()) / static_cast<std::int32_t>(vocab);
    const auto draft_steps = ids_of(it.facts.at("draft_steps"));
    const auto drafts = set.ints(it, "draft_tokens");
    const auto confidence = set.floats(it, "draft_confidence");
    for (std::int32_t k = 0; k < first_tie(it, "decode_tie_steps", steps) && k < steps; ++k) {
      CAPTURE(k);
      const auto* token = &it.greedy[static_cast<std::size_t>(k)];
      const auto at = std::find(draft_steps.begin(), draft_steps.end(), k);
      if (at != draft_steps.end()) {
        const std::int32_t slot = 0, position = it.length() - 1 + k;
        const auto made =
          run.session->draft(inline_stream(), {&slot, 1}, {&position, 1}, {token, 1}, block);
        REQUIRE(made);
        const auto row = at - draft_steps.begin();
        const auto wanted = row_of(drafts, row, block);
        CHECK(made->ids == ids(wanted.begin(), wanted.end()));
        ++drafted;
        CHECK(max_difference(made->confidence, row_of(confidence, row, block)) <
              confidence_tolerance);
      }
      const session_row next{0, it.length() + k, {token, 1}};
      REQUIRE(run.session->run(inline_stream(), {&next, 1}));
      if (is_moved(it, "variant_max_abs_diff_per_decode_step", k)) continue;
      const auto logits = run.session->logits(inline_stream());
      CHECK(max_difference(logits, row_of(golden, k, vocab)) < logits_tolerance);
      CHECK(arg_max(logits) == it.greedy[static_cast<std::size_t>(k) + 1]);
      ++compared;
    }
  }
  CHECK(compared == 58);
  CHECK(drafted == 57);  // a one-token prompt has no draft before its first step
}
