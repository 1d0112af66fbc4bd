// Rows for which no id can be chosen, beside rows of every kind: the others get what they get
// alone, bit for bit, and the failed ones what they said before.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "mixed_requests.hpp"
#include "runner_fixture.hpp"
#include "runtime/device/cpu_device.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t more = 10;

const weights_ptr& tiny() {
  return all_models(kernels::packing::exact).front().weights;
}

/// Its first output is 5, as often as it must; the penalty makes the second one's logits infinite.
drive_request overflowing(std::int32_t vocab, std::uint64_t seed) {
  drive_request it;
  it.prompt = random_ids(seed, 21, vocab);
  std::replace(it.prompt.begin(), it.prompt.end(), 5, 6);
  it.max_tokens = 12;
  it.params.logit_bias = {{5, 3.4e38f}};
  it.params.repetition_penalty = 1e-6f;
  it.params.seed = seed;
  return it;
}

/// Every id is a stop id, and none may come before the fourth output.
drive_request masked(std::int32_t vocab, std::uint64_t seed) {
  drive_request it;
  it.prompt = random_ids(seed, 9, vocab);
  it.max_tokens = 12;
  it.params.stop_token_ids.resize(static_cast<std::size_t>(vocab));
  std::iota(it.params.stop_token_ids.begin(), it.params.stop_token_ids.end(), 0);
  it.params.min_tokens = 4;
  it.params.seed = seed;
  return it;
}

/// Two rows that fail, in front of, between and behind the mixed ones.
struct company {
  explicit company(std::int32_t vocab) {
    requests = mixed_requests(vocab, more);
    for (auto& it : requests) {
      it.params.ignore_eos = true;  // so that the stop mask ends none of them early
      auto lonely = it;
      lonely.arrival = 0;
      expected.push_back(drive(tiny(), {lonely}, {}).front());
    }
    requests.insert(requests.begin(), overflowing(vocab, 301));
    requests.insert(requests.begin() + 4, masked(vocab, 302));
    requests.insert(requests.begin() + 6, overflowing(vocab, 303));
    requests.push_back(masked(vocab, 304));
    expected.insert(expected.begin(), {{5}, {}, row_error::bad_logits});
    expected.insert(expected.begin() + 4, {{}, {}, row_error::no_candidate});
    expected.insert(expected.begin() + 6, {{5}, {}, row_error::bad_logits});
    expected.push_back({{}, {}, row_error::no_candidate});
  }

  void check(const drive_options& options, drive_counts* counts = nullptr) const {
    auto outputs = drive(tiny(), requests, options, -1, counts);
    for (const auto i : {0, 6}) outputs[static_cast<std::size_t>(i)].logprobs.clear();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      CAPTURE(i);
      CHECK(outputs[i] == expected[i]);
    }
  }

  std::vector<drive_request> requests;
  std::vector<driven_output> expected;
};

}  // namespace

TEST_CASE("rows that give no id fail alone, at every depth, with drafts, the stop mask and late "
          "masks: the others are as they are alone [I38][I47][I76]") {
  company all(tiny()->config.vocab_size);
  for (const auto depth : {1, 2, 3})
    for (const auto drafter : {drafter_kind::none, drafter_kind::dspark, drafter_kind::ngram})
      for (const bool more_ways : {false, true}) {
        CAPTURE(depth);
        CAPTURE(static_cast<int>(drafter));
        CAPTURE(more_ways);
        for (std::size_t i = 0; i < all.requests.size(); ++i)
          all.requests[i].is_gated = more_ways && i % 4 < 2;  // of the failing ones: 0 and 4
        drive_options options;
        options.depth = depth;
        options.drafter = drafter;
        options.num_drafts = drafter == drafter_kind::none ? 0 : 3;
        options.chunk = 17;
        options.poisons = true;
        options.stop_mask = more_ways;
        options.delays_masks = more_ways && depth > 1;
        options.settled_rows_from_slot = more_ways;
        if (depth == 3) options.split_seed = 8, options.skip_seed = 2;
        drive_counts counts;
        all.check(options, &counts);
        // With the stop mask, what was launched behind a failure computes nothing.
        if (depth > 1 && !more_ways) CHECK(counts.dead_rows == 0);
        if (depth > 1 && more_ways) CHECK(counts.dead_rows > 0);
      }
}

TEST_CASE("rows that give no id fail alone under the rejection rule, and on the cpu device [I76]") {
  const company all(tiny()->config.vocab_size);
  cpu_device device({.threads = 2});
  drive_options options;
  options.on = &device;
  options.depth = 3;
  options.drafter = drafter_kind::dspark;
  options.num_drafts = 3;
  options.stop_mask = true;
  all.check(options);
  // That rule gives other tokens than plain decoding does: compared with the same rule, but without
  // the rows that fail.
  options.acceptance = acceptance_rule::rejection;
  const auto outputs = drive(tiny(), all.requests, options);
  auto good = all.requests;
  const auto fails = [](const drive_request& it) {
    return it.params.repetition_penalty < 0.1f || it.params.stop_token_ids.size() > 10;
  };
  std::erase_if(good, fails);
  const auto without = drive(tiny(), good, options);
  std::size_t k = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    CAPTURE(i);
    if (fails(all.requests[i]))
      CHECK(outputs[i].error == all.expected[i].error);
    else
      CHECK(outputs[i] == without[k++]);
  }
}

TEST_CASE("blocks and slots of rows that failed serve others afterwards, with the prefix cache's "
          "resume points [I76]") {
  const company all(tiny()->config.vocab_size);
  drive_options options;
  options.depth = 2;
  options.slots = 3;
  options.blocks = 40;
  options.prefix_cache = true;
  options.poisons = true;
  all.check(options);
}
