// The check values of model-v41.md 24: two models whose weights are a function of their names.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "model_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

struct logits_case {
  std::int32_t length;
  float first[4];
  token_id best;
  double largest, sum_of_magnitudes;  ///< < 0: not given
  float tap[2];
};

struct draft_case {
  std::int32_t position;  ///< of the decode step before
  float first[4];
  token_id best;
  ids drafts;
  std::vector<float> confidence;
};

void check_first(std::span<const float> logits, const float (&first)[4]) {
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(logits[i] - first[i]) < 1e-4f);
}

void check_prefill(const weights_ptr& weights, std::int32_t first_tap,
                   std::span<const logits_case> table) {
  for (const auto& row : table) {
    CAPTURE(row.length);
    auto session = make_session(weights, {.max_positions = 64, .with_draft = true});
    recorder seen;
    const auto logits = *session->run_all(inline_stream(), spec_ids(row.length), 0, &seen);
    const auto last = row_of(logits, row.length - 1, weights->config.vocab_size);
    check_first(last, row.first);
    CHECK(arg_max(last) == row.best);
    double sum = 0;
    for (const auto value : last) sum += std::abs(value);
    CHECK(std::abs(last[static_cast<std::size_t>(row.best)] - row.largest) < 1e-4);
    CHECK(std::abs(sum - row.sum_of_magnitudes) < 2e-3);
    const auto& taps = seen.floats[{model_point::main_hidden, -1}];
    const auto width = static_cast<std::int64_t>(taps.size()) / row.length;
    const auto tap = row_of(taps, row.length - 1, width);
    CHECK(std::abs(tap[0] - row.tap[0]) < 1e-4f);
    CHECK(std::abs(tap[1] - row.tap[1]) < 1e-4f);
    CHECK(first_tap >= 0);
  }
}

void check_drafts(const weights_ptr& weights, std::span<const draft_case> table) {
  for (const auto& row : table) {
    CAPTURE(row.position);
    auto session = make_session(weights, {.max_positions = 64, .with_draft = true});
    const auto all = spec_ids(row.position + 1);
    const auto prompt = std::span(all).first(static_cast<std::size_t>(row.position));
    REQUIRE(session->run_all(inline_stream(), prompt));
    const session_row next{0, row.position, std::span(all).last(1)};
    REQUIRE(session->run(inline_stream(), {&next, 1}));
    const auto logits = session->logits(inline_stream());
    check_first(logits, row.first);
    CHECK(arg_max(logits) == row.best);
    const std::int32_t slot = 0, position = row.position;
    const token_id anchor = arg_max(logits);
    const auto drafts = session->draft(inline_stream(), {&slot, 1}, {&position, 1}, {&anchor, 1},
                                       weights->config.draft.block_size);
    REQUIRE(drafts);
    CHECK(drafts->ids == row.drafts);
    float scale = 1.0f;
    for (const auto value : row.confidence) scale = std::max(scale, std::abs(value));
    for (std::size_t i = 0; i < row.confidence.size(); ++i)
      CHECK(std::abs(drafts->confidence[i] - row.confidence[i]) < 1e-4f * scale);
  }
}

}  // namespace

TEST_CASE("T1: prefill gives the specification's logits, arg-max and taps") {
  const logits_case table[] = {
    {1,
     {1.901939f, .186364f, .516492f, -.275384f},
     87,
     3.898415,
     151.4173,
     {-1.451838f, -.842401f}},
    {7, {1.090232f, .371508f, 1.064348f, .254142f}, 63, 4.151552, 136.7885, {-2.564524f, .786126f}},
    {40, {-.20488f, 1.53552f, .60361f, 1.049346f}, 84, 4.226785, 155.5213, {.319676f, 2.389368f}},
  };
  check_prefill(generated_t1(), 5, table);
}

TEST_CASE("T2: prefill gives the specification's logits, arg-max and taps") {
  const logits_case table[] = {
    {1,
     {-2.803036f, -2.308182f, -1.336641f, -.802541f},
     72,
     4.383329,
     168.783,
     {-.024308f, -1.578516f}},
    {7,
     {-.99707f, 1.276922f, 1.752806f, -1.319363f},
     77,
     3.800244,
     142.3568,
     {-.525296f, 2.74295f}},
    {40,
     {-.378342f, -.250397f, 1.768089f, .164642f},
     13,
     5.205982,
     168.1074,
     {-1.08467f, -.304135f}},
  };
  check_prefill(generated_t2(), 0, table);
}

TEST_CASE("T1: a decode step and the drafts after it give the specification's values") {
  const draft_case table[] = {
    {7,
     {-.347784f, 1.891051f, 1.030688f, 1.020159f},
     19,
     {20, 58, 35, 83, 45},
     {-3.015332f, -.696943f, -.74664f, .787832f, -.000742f}},
    {40,
     {.216139f, -.356172f, -2.02236f, -1.467634f},
     120,
     {46, 124, 45, 19, 20},
     {-3.249877f, -2.453134f, -3.444418f, -3.020909f, -3.935793f}},
  };
  check_drafts(generated_t1(), table);
}

TEST_CASE("T2: a decode step and the drafts after it give the specification's values") {
  const draft_case table[] = {
    {7,
     {-1.930293f, -.478478f, -1.624926f, -.36503f},
     19,
     {113, 106, 7, 38},
     {-6.671715f, 6.424798f, -.585597f, 2.500846f}},
    {40,
     {.399141f, -.130419f, .749157f, -3.17898f},
     19,
     {7, 38, 122, 51},
     {34.716053f, 20.219163f, 16.581291f, 30.766334f}},
  };
  check_drafts(generated_t2(), table);
}

TEST_CASE("T1 and T2: n-grams hash to the specification's rows") {
  struct rows_case {
    weights_ptr weights;
    std::int32_t layer, position;
    std::vector<std::int64_t> rows;
  };
  const rows_case table[] = {
    {generated_t1(), 1, 5, {47, 128, 156, 247, 307, 374}},
    {generated_t1(), 4, 1, {42, 194, 232, 314, 515, 592}},
    {generated_t2(), 0, 5, {37, 90, 124, 239, 279, 375}},
  };
  for (const auto& row : table) {
    CAPTURE(row.layer);
    auto session = make_session(row.weights, {.max_positions = 16});
    recorder seen;
    REQUIRE(session->run_all(inline_stream(), spec_ids(8), 0, &seen));
    const auto& found = seen.wide_ints[{model_point::engram_ids, row.layer}];
    const auto part = row_of(found, row.position, row.weights->config.engram.columns());
    CHECK(std::vector(part.begin(), part.end()) == row.rows);
  }
}

TEST_CASE("the generated weights are the specification's") {
  const auto weights = generated_t1();
  const auto* embed = reinterpret_cast<const float*>(weights->embed.data);
  CHECK(embed[0] == doctest::Approx(.0595679358).epsilon(1e-7));
  CHECK(embed[1] == doctest::Approx(-1.62362802).epsilon(1e-7));
  CHECK(embed[2] == doctest::Approx(-1.46991158).epsilon(1e-7));
}
