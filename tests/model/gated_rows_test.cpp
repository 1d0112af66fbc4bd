// Rows whose sampling waits for the host: their logits outlive later steps, and masks hold.
#include <doctest/doctest.h>

#include "mixed_requests.hpp"
#include "runner_fixture.hpp"
#include "runtime/device/cpu_device.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t more = 10;

const named_model& tiny() {
  return all_models(kernels::packing::exact).front();
}

std::vector<drive_request> half_gated(std::int32_t vocab) {
  auto requests = mixed_requests(vocab, more);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].is_gated = i % 4 < 2;
  return requests;
}

/// Output k of sequence s may be every third id, another third with each k.
bool is_allowed(std::size_t sequence, std::int32_t output, token_id id) {
  return (id + output + static_cast<std::int32_t>(sequence)) % 3 == 0;
}

std::vector<std::uint32_t> thirds(std::int32_t vocab, std::size_t sequence, std::int32_t output) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>((vocab + 31) / 32));
  for (token_id id = 0; id < vocab; ++id)
    if (is_allowed(sequence, output, id))
      mask[static_cast<std::size_t>(id / 32)] |= std::uint32_t{1} << (id % 32);
  return mask;
}

/// Ways of running half_gated: depths, drafters, masks at once or late, splits, a device.
template <class Check>
void for_each_way(Check check) {
  for (const auto depth : {1, 2, 3})
    for (const auto drafter : {drafter_kind::none, drafter_kind::dspark, drafter_kind::ngram})
      for (const bool delays : {false, true}) {
        if (depth == 1 && delays) continue;  // no step is ever behind
        if (depth == 2 && drafter == drafter_kind::ngram) continue;
        CAPTURE(depth);
        CAPTURE(static_cast<int>(drafter));
        CAPTURE(delays);
        drive_options options;
        options.depth = depth;
        options.drafter = drafter;
        options.num_drafts = drafter == drafter_kind::none ? 0 : 3;
        options.delays_masks = delays;
        options.chunk = 17;
        options.poisons = true;
        if (depth == 3) options.split_seed = 8, options.skip_seed = 2;
        drive_counts counts;
        check(options, counts);
        if (delays && depth > 1) CHECK(counts.gated_behind > 3);
      }
}

}  // namespace

TEST_CASE("gated rows under masks that allow everything = rows that are not gated, bit for bit") {
  const auto vocab = tiny().weights->config.vocab_size;
  for_each_way([&](const drive_options& options, drive_counts& counts) {
    CHECK(drive(tiny().weights, half_gated(vocab), options, -1, &counts) ==
          alone(tiny().weights, numeric_mode::exact, more));
  });
}

TEST_CASE(
  "masks hold for every token, drafts or not, and rows beside them get what they always do") {
  const auto vocab = tiny().weights->config.vocab_size;
  const auto requests = half_gated(vocab);
  const auto mask = [vocab](std::size_t sequence, std::int32_t output) {
    return thirds(vocab, sequence, output);
  };
  drive_options plain;
  plain.mask = mask;
  const auto expected = drive(tiny().weights, requests, plain);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    if (!requests[i].is_gated) {
      CHECK(expected[i] == alone(tiny().weights, numeric_mode::exact, more)[i]);
      continue;
    }
    for (std::size_t k = 0; k < expected[i].tokens.size(); ++k)
      CHECK(is_allowed(i, static_cast<std::int32_t>(k), expected[i].tokens[k]));
  }
  for_each_way([&](drive_options options, drive_counts& counts) {
    options.mask = mask;
    CHECK(drive(tiny().weights, requests, options, -1, &counts) == expected);
  });
}

TEST_CASE("gated rows on the cpu device: later steps launched before the masks come") {
  const auto vocab = tiny().weights->config.vocab_size;
  for (const auto drafts : {0, 3}) {
    cpu_device device({.threads = 2});
    drive_options options;
    options.on = &device;
    options.depth = 3;
    options.num_drafts = drafts;
    options.drafter = drafts > 0 ? drafter_kind::dspark : drafter_kind::none;
    options.delays_masks = true;
    drive_counts counts;
    CHECK(drive(tiny().weights, half_gated(vocab), options, -1, &counts) ==
          alone(tiny().weights, numeric_mode::exact, more));
    CHECK(counts.gated_behind > 3);
  }
}
