// The classical acceptance rule behind plans: what must hold token for token. Its distribution is
// proved on the kernels (kernels/reject_drafts_test.cpp).
#include <doctest/doctest.h>

#include "mixed_requests.hpp"
#include "runner_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t more = 10;

drive_options rejecting(drafter_kind drafter) {
  drive_options options;
  options.drafter = drafter;
  options.num_drafts = 3;
  options.acceptance = acceptance_rule::rejection;
  return options;
}

}  // namespace

TEST_CASE("rejection: greedy requests get what they get alone, the first token is everybody's") {
  for (const auto drafter : {drafter_kind::dspark, drafter_kind::ngram})
    for (const auto& model : all_models(kernels::packing::exact)) {
      if (drafter == drafter_kind::ngram && model.weights != tiny_model()) continue;
      CAPTURE(static_cast<int>(drafter));
      CAPTURE(model.name);
      const auto requests = mixed_requests(model.weights->config.vocab_size, more);
      drive_counts counts;
      const auto outputs = drive(model.weights, requests, rejecting(drafter), -1, &counts);
      const auto& expected = alone(model.weights, numeric_mode::exact, more);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        if (requests[i].params.temperature == 0) CHECK(outputs[i] == expected[i]);
        CHECK(outputs[i].tokens.front() == expected[i].tokens.front());
        CHECK(std::ssize(outputs[i].tokens) == requests[i].max_tokens);
        CHECK(outputs[i].logprobs.size() == outputs[i].tokens.size());
      }
      CHECK(outputs != expected);  // another rule draws other tokens
      CHECK(counts.given > counts.decode_rows);
    }
}

TEST_CASE("rejection: depth 1 = 2 = 3, whatever the schedule, on any number of threads") {
  const auto weights = tiny_model();
  const auto requests = mixed_requests(weights->config.vocab_size, more);
  for (const auto drafter : {drafter_kind::dspark, drafter_kind::ngram}) {
    const auto expected = drive(weights, requests, rejecting(drafter));
    for (const auto depth : {1, 2, 3}) {
      CAPTURE(static_cast<int>(drafter));
      CAPTURE(depth);
      auto options = rejecting(drafter);
      options.depth = depth;
      options.skip_seed = 3;
      options.chunk = 11;
      options.reverses_rows = true;
      options.settled_rows_from_slot = depth != 2;
      options.slots = 4;
      options.poisons = true;
      options.threads = depth;
      CHECK(drive(weights, requests, options) == expected);
    }
  }
}

TEST_CASE("rejection: masks hold for accepted drafts, residual tokens and bonus tokens") {
  const auto weights = tiny_model();
  const auto vocab = weights->config.vocab_size;
  auto requests = mixed_requests(vocab, more);
  for (auto& it : requests) it.is_gated = true;
  const auto is_allowed = [](std::int32_t output, token_id id) { return (id + output) % 2 == 0; };
  for (const auto drafter : {drafter_kind::dspark, drafter_kind::ngram}) {
    auto options = rejecting(drafter);
    options.depth = 2;
    options.mask = [&](std::size_t, std::int32_t output) {
      std::vector<std::uint32_t> mask(static_cast<std::size_t>((vocab + 31) / 32));
      for (token_id id = 0; id < vocab; ++id)
        if (is_allowed(output, id))
          mask[static_cast<std::size_t>(id / 32)] |= std::uint32_t{1} << (id % 32);
      return mask;
    };
    drive_counts counts;
    for (const auto& it : drive(weights, requests, options, -1, &counts))
      for (std::size_t k = 0; k < it.tokens.size(); ++k)
        CHECK(is_allowed(static_cast<std::int32_t>(k), it.tokens[k]));
    CHECK(counts.given > counts.decode_rows);
  }
}
