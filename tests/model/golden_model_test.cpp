// The recorded answers of tests/golden/model in exact arithmetic: v41-a-plain and the weight-only
// goldens of v41-a-fp8.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "golden_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr double logits_tolerance = 1e-4, state_tolerance = 5e-5;

const golden_set& plain() {
  static const golden_set set("v41-a-plain", "goldens");
  return set;
}

const golden_set& weight_only() {
  static const golden_set set("v41-a-fp8", "goldens_weight_only");
  return set;
}

void check_logits(const golden_set& set, const prompt& it, const std::vector<float>& logits) {
  const auto golden = set.floats(it, "logits");
  const std::int64_t vocab = set.weights->config.vocab_size;
  REQUIRE(golden.size() == it.logits_rows.size() * static_cast<std::size_t>(vocab));
  for (std::size_t i = 0; i < it.logits_rows.size(); ++i) {
    CAPTURE(it.logits_rows[i]);
    CHECK(max_difference(row_of(logits, it.logits_rows[i], vocab),
                         row_of(golden, static_cast<std::int64_t>(i), vocab)) < logits_tolerance);
  }
}

/// Router choices as sets, each with its weight.
void check_router(const golden_set& set, const prompt& it, recorder& seen) {
  if (!set.has(it, "router_ids")) return;
  const auto& config = set.weights->config;
  const auto chosen = static_cast<std::size_t>(config.experts_per_token);
  const auto golden_ids = set.ints(it, "router_ids");
  const auto golden_weights = set.floats(it, "router_weights");
  std::size_t at = 0;
  for (std::int32_t layer = 0; layer < config.layer_count; ++layer) {
    const auto& ids = seen.ints[{model_point::router_ids, layer}];
    const auto& weights = seen.floats[{model_point::router_weights, layer}];
    REQUIRE(ids.size() == it.tokens.size() * chosen);
    for (std::size_t token = 0; token < it.tokens.size(); ++token, at += chosen) {
      std::vector<std::pair<std::int32_t, float>> golden;
      for (std::size_t i = 0; i < chosen; ++i)
        golden.emplace_back(golden_ids[at + i], golden_weights[at + i]);
      std::sort(golden.begin(), golden.end());
      for (std::size_t i = 0; i < chosen; ++i) {
        CAPTURE(layer);
        CAPTURE(token);
        CHECK(ids[token * chosen + i] == golden[i].first);
        CHECK(std::abs(weights[token * chosen + i] - golden[i].second) < state_tolerance);
      }
    }
  }
}

void check_lists(const golden_set& set, const prompt& it, recorder& seen) {
  const auto& config = set.weights->config;
  for (std::int32_t layer = 0; layer < config.layer_count; ++layer) {
    CAPTURE(layer);
    if (set.has(it, at_layer("index_topk", layer)))
      CHECK(seen.ints[{model_point::index_list, layer}] ==
            set.ints(it, at_layer("index_topk", layer)));
    if (set.has(it, at_layer("candidate_blocks", layer)))
      CHECK(seen.ints[{model_point::candidate_blocks, layer}] ==
            set.ints(it, at_layer("candidate_blocks", layer)));
  }
  if (!set.has(it, "engram_hash_ids")) return;
  const auto golden = set.ints(it, "engram_hash_ids");
  const auto columns = static_cast<std::size_t>(config.engram.columns());
  const auto layers = config.engram_layers.size();
  for (std::size_t i = 0; i < layers; ++i) {
    const auto& found = seen.wide_ints[{model_point::engram_ids, config.engram_layers[i].layer}];
    REQUIRE(found.size() == it.tokens.size() * columns);
    for (std::size_t t = 0; t < it.tokens.size(); ++t)
      for (std::size_t q = 0; q < columns; ++q)
        CHECK(found[t * columns + q] == golden[(t * layers + i) * columns + q]);
  }
}

void check_streams(const golden_set& set, const prompt& it, recorder& seen) {
  constexpr std::pair<const char*, model_point> points[] = {
    {"stream", model_point::stream},         {"premix", model_point::premix},
    {"engram_out", model_point::engram_out}, {"attn_out", model_point::attention_out},
    {"ffn_out", model_point::ffn_out},
  };
  for (std::int32_t layer = 0; layer < set.weights->config.layer_count; ++layer)
    for (const auto& [name, point] : points) {
      const auto what = at_layer(name, layer);
      if (!set.has(it, what)) continue;
      CAPTURE(what);
      CHECK(max_difference(seen.floats[{point, layer}], set.floats(it, what)) < state_tolerance);
    }
  if (set.has(it, "main_hidden"))
    CHECK(max_difference(seen.floats[{model_point::main_hidden, -1}],
                         set.floats(it, "main_hidden")) < state_tolerance);
}

/// What the prefill left in memory.
void check_caches(const golden_set& set, const prompt& it, model_session& session) {
  const auto& config = set.weights->config;
  const auto& state = session.state();
  const std::int64_t length = it.length();
  const auto window = std::min<std::int64_t>(length, config.window);
  for (std::int32_t layer = 0; layer < config.layer_count; ++layer) {
    CAPTURE(layer);
    const auto ratio = config.layers[static_cast<std::size_t>(layer)].ratio;
    if (set.has(it, at_layer("window_kv", layer)))
      CHECK(max_difference(window_rows(state, layer, 0, length - window, window),
                           set.floats(it, at_layer("window_kv", layer))) < state_tolerance);
    if (set.has(it, at_layer("compressed_kv", layer)))
      CHECK(max_difference(compressed_rows(state, layer, 0, length / ratio),
                           set.floats(it, at_layer("compressed_kv", layer))) < state_tolerance);
    if (set.has(it, at_layer("index_keys", layer)))
      CHECK(max_difference(index_keys(state, layer, 0, length / ratio),
                           set.floats(it, at_layer("index_keys", layer))) < state_tolerance);
  }
  for (std::int32_t stage = 0; stage < config.draft.stage_count; ++stage) {
    const auto what = "draft_context_kv.stage" + std::to_string(stage);
    if (!set.has(it, what)) continue;
    CAPTURE(what);
    CHECK(max_difference(window_rows(state, config.layer_count + stage, 0, length - window, window),
                         set.floats(it, what)) < state_tolerance);
  }
}

/// Greedy steps, each followed by a draft pass: draft k stands at the last known position
/// length - 1 + k, its anchor is greedy[k].
void check_decode(const golden_set& set, const prompt& it, model_session& session, token_id first) {
  const std::int64_t vocab = set.weights->config.vocab_size;
  const auto block = set.weights->config.draft.block_size;
  const auto golden_logits = set.floats(it, "decode_logits");
  const bool has_drafts = set.has(it, "draft_tokens");
  const auto golden_drafts = has_drafts ? set.ints(it, "draft_tokens") : ids{};
  const auto golden_confidence =
    has_drafts ? set.floats(it, "draft_confidence") : std::vector<float>{};
  CHECK(first == it.greedy[0]);
  std::int64_t draft_logits_seen = 0;
  for (std::size_t k = 0; k < it.greedy.size(); ++k) {
    CAPTURE(k);
    const auto step = static_cast<std::int32_t>(k);
    if (has_drafts) {
      const std::int32_t slot = 0, position = it.length() - 1 + step;
      recorder seen;
      const auto drafts = session.draft(inline_stream(), {&slot, 1}, {&position, 1},
                                        {&it.greedy[k], 1}, block, &seen);
      REQUIRE(drafts);
      const auto golden = row_of(golden_drafts, step, block);
      CHECK(drafts->ids == ids(golden.begin(), golden.end()));
      CHECK(max_difference(drafts->confidence, row_of(golden_confidence, step, block)) <
            logits_tolerance);
      if (set.has(it, "draft_logits") &&
          std::count(it.draft_logits_steps.begin(), it.draft_logits_steps.end(), step))
        CHECK(max_difference(seen.floats[{model_point::draft_logits, -1}],
                             row_of(set.floats(it, "draft_logits"), draft_logits_seen++,
                                    block * vocab)) < logits_tolerance);
    }
    if (k + 1 == it.greedy.size()) break;
    const session_row next{0, it.length() + step, {&it.greedy[k], 1}};
    REQUIRE(session.run(inline_stream(), {&next, 1}));
    const auto logits = session.logits(inline_stream());
    CHECK(arg_max(logits) == it.greedy[k + 1]);
    if (static_cast<std::int64_t>(golden_logits.size()) >= (step + 1) * vocab)
      CHECK(max_difference(logits, row_of(golden_logits, step, vocab)) < logits_tolerance);
  }
}

/// Greedy speculation: what rejected drafts wrote must not be seen by the steps after.
void check_speculation(const golden_set& set, const prompt& it, model_session& session) {
  REQUIRE(session.run_all(inline_stream(), it.tokens));
  const auto block = set.weights->config.draft.block_size;
  const std::int64_t vocab = set.weights->config.vocab_size;
  ids found{it.greedy[0]};
  auto position = it.length() - 1;  // the last one whose taps are known
  for (const auto& round : it.facts.at("spec_rounds").as_array()) {
    CAPTURE(position);
    const std::int32_t slot = 0;
    const token_id anchor = found.back();
    const auto drafts =
      session.draft(inline_stream(), {&slot, 1}, {&position, 1}, {&anchor, 1}, block);
    REQUIRE(drafts);
    CHECK(drafts->ids == ids_of(round.as_object().at("drafted")));
    ids fed{anchor};
    fed.insert(fed.end(), drafts->ids.begin(), drafts->ids.end());
    const session_row verify{0, position + 1, fed};
    REQUIRE(session.run(inline_stream(), {&verify, 1}));
    const auto logits = session.logits(inline_stream());
    std::int32_t accepted = 0;
    for (; accepted < block; ++accepted) {
      const auto target = arg_max(row_of(logits, accepted, vocab));
      if (target != drafts->ids[static_cast<std::size_t>(accepted)]) break;
      found.push_back(target);
    }
    found.push_back(arg_max(row_of(logits, accepted, vocab)));
    CHECK(accepted == round.as_object().at("accepted").to_number<std::int32_t>());
    position += 1 + accepted;
  }
  const auto common = std::min(found.size(), it.greedy.size());
  CHECK(common == it.greedy.size());
  CHECK(std::equal(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(common),
                   it.greedy.begin()));
}

}  // namespace

TEST_CASE("golden prefill: logits, router, lists, hashes, streams and caches, all prompts") {
  for (const auto* set : {&plain(), &weight_only()})
    for (const auto& it : set->prompts) {
      CAPTURE(it.name);
      auto session = set->session();
      recorder seen;
      const auto logits = session->run_all(inline_stream(), it.tokens, 0, &seen);
      REQUIRE(logits);
      check_logits(*set, it, *logits);
      check_router(*set, it, seen);
      check_lists(*set, it, seen);
      check_streams(*set, it, seen);
      check_caches(*set, it, *session);
    }
}

TEST_CASE("golden decode: 41 greedy ids, logits, drafts, confidences and draft logits") {
  for (const auto* set : {&plain(), &weight_only()})
    for (const auto& it : set->prompts) {
      CAPTURE(it.name);
      auto session = set->session();
      const auto logits = session->run_all(inline_stream(), it.tokens);
      REQUIRE(logits);
      const auto last = row_of(*logits, it.length() - 1, set->weights->config.vocab_size);
      check_decode(*set, it, *session, arg_max(last));
    }
}

TEST_CASE("golden speculation: drafts, accepted counts and ids of every round, exactly") {
  for (const auto* set : {&plain(), &weight_only()})
    for (const auto& it : set->prompts) {
      if (!it.facts.contains("spec_rounds")) continue;
      CAPTURE(it.name);
      auto session = set->session();
      check_speculation(*set, it, *session);
    }
}

TEST_CASE("golden Engram constants: primes, offsets and multipliers") {
  const auto& weights = plain().weights;
  const auto text = golden_json(DI_SOURCE_DIR "/tests/golden/model/v41-a-plain/goldens.json");
  const auto& golden = text.as_object().at("engram").as_object();
  for (std::size_t i = 0; i < weights->engrams.size(); ++i) {
    const auto& found = weights->engrams[i].constants;
    std::vector<std::int64_t> primes, offsets, multipliers;
    for (const auto& size : golden.at("primes").as_array().at(i).as_array())
      for (const auto& prime : size.as_array()) primes.push_back(prime.to_number<std::int64_t>());
    for (const auto& it : golden.at("offsets").as_array().at(i).as_array())
      offsets.push_back(it.to_number<std::int64_t>());
    for (const auto& it : golden.at("multipliers").as_array().at(i).as_array())
      multipliers.push_back(it.to_number<std::int64_t>());
    CHECK(found.primes == primes);
    CHECK(found.offsets == offsets);
    CHECK(found.multipliers == multipliers);
  }
}
