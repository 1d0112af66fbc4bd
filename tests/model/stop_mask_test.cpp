// The device's stop mask: rows of sequences that have ended compute nothing, and nobody can tell.
#include <doctest/doctest.h>

#include <algorithm>

#include "mixed_requests.hpp"
#include "runner_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t more = 10;

/// Mixed requests that stop at an id which some of them say early.
struct stopping {
  explicit stopping(const weights_ptr& weights) {
    const auto& outputs = alone(weights, numeric_mode::exact, more);
    requests = mixed_requests(weights->config.vocab_size, more);
    stop = outputs[4].tokens[5];
    for (std::size_t i = 0; i < requests.size(); ++i) {
      auto& params = requests[i].params;
      params.stop_token_ids = {stop};
      params.ignore_eos = true;
      params.min_tokens = 0;
    }
    requests[6].params.min_tokens = 4;
  }
  std::vector<drive_request> requests;
  token_id stop = -1;
};

}  // namespace

TEST_CASE("stop mask on = off, bit for bit, and rows of ended sequences have no token [I37]") {
  const auto weights = tiny_model();
  const stopping setup(weights);
  const auto expected = drive(weights, setup.requests, {}, setup.stop);
  const auto stopped = std::count_if(expected.begin(), expected.end(), [&](const auto& it) {
    return it.tokens.back() == setup.stop;
  });
  REQUIRE(stopped >= 1);
  for (const auto drafter : {drafter_kind::none, drafter_kind::dspark, drafter_kind::ngram})
    for (const auto depth : {1, 2, 3})
      for (const bool masks : {false, true}) {
        if (!masks && drafter == drafter_kind::ngram) continue;
        CAPTURE(static_cast<int>(drafter));
        CAPTURE(depth);
        CAPTURE(masks);
        drive_options options;
        options.drafter = drafter;
        options.num_drafts = drafter == drafter_kind::none ? 0 : 5;
        options.depth = depth;
        options.stop_mask = masks;
        options.slots = 3;
        options.poisons = true;
        options.settled_rows_from_slot = true;
        options.split_seed = depth == 3 ? 5 : 0;
        drive_counts counts;
        CHECK(drive(weights, setup.requests, options, setup.stop, &counts) == expected);
        CHECK((counts.dead_rows > 0) == (masks && depth > 1));
      }
}

TEST_CASE("with the stop mask a row gives nothing behind a stop id or its output limit") {
  const auto weights = tiny_model();
  const stopping setup(weights);
  drive_options options;
  options.depth = 2;
  options.stop_mask = true;
  forced_drafts forced;
  forced.accepts = {5};
  const auto expected = drive(weights, setup.requests, {}, setup.stop);
  for (std::size_t i = 0; i < expected.size(); ++i)
    forced.known.push_back({setup.requests[i].params.seed,
                            static_cast<std::int32_t>(setup.requests[i].prompt.size()),
                            expected[i].tokens});
  options.forced = &forced;
  options.num_drafts = 5;
  drive_counts counts;
  CHECK(drive(weights, setup.requests, options, setup.stop, &counts) == expected);
  // Every token that a row gave was wanted: no over-run reached the host.
  std::int64_t wanted = 0;
  for (const auto& it : expected) wanted += std::ssize(it.tokens) - 1;  // less the prefill's
  CHECK(counts.given == wanted);
}
