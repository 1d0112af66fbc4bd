// Drafts change when tokens come, never which: with them every request gets what it gets alone and
// without, bit for bit, logprobs included.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "kernels/sampling/sample_rows.hpp"
#include "mixed_requests.hpp"
#include "runner_fixture.hpp"
#include "runtime/device/cpu_device.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr std::int32_t more = 10;  // so that several drafts in a row can be right

drive_options drafting(drafter_kind drafter, std::int32_t drafts, std::int32_t depth) {
  drive_options options;
  options.drafter = drafter;
  options.num_drafts = drafts;
  options.depth = depth;
  return options;
}

const named_model& tiny() {
  return all_models(kernels::packing::exact).front();
}

/// What the mixed requests will say, some tokens further than they will be asked for.
forced_drafts known_drafts(const named_model& model, std::vector<std::int32_t> accepts) {
  forced_drafts made;
  made.accepts = std::move(accepts);
  const auto& outputs = alone(model.weights, numeric_mode::exact, more + 8);
  const auto requests = mixed_requests(model.weights->config.vocab_size);
  for (std::size_t i = 0; i < requests.size(); ++i)
    made.known.push_back({requests[i].params.seed,
                          static_cast<std::int32_t>(requests[i].prompt.size()), outputs[i].tokens});
  return made;
}

/// One prefill of `prompt` with a drafter, settled.
step_result prefill(model_runner& runner, const ids& prompt, const sampling_params& params) {
  step_plan plan;
  plan.clear();
  plan.step = step_id{1};
  plan.kind = step_kind::prefill;
  plan.sequences = {seq_id{1}};
  plan.epochs = {0};
  plan.slots = {slot_id{0}};
  plan.kinds = {row_kind::prefill};
  plan.sources = {from_fresh};
  plan.total_width = static_cast<std::int32_t>(prompt.size());
  plan.widths = {plan.total_width};
  plan.positions = {0};
  plan.yields_max = plan.yields_min = {1};
  plan.token_begin = {0, plan.total_width};
  plan.tokens = prompt;
  plan.table_begin = {0};
  const auto block_size = runner.config().block_size;
  for (std::int32_t i = 0; i * block_size < plan.total_width; ++i) plan.blocks.push_back({i});
  plan.block_begin = {0, static_cast<std::int32_t>(plan.blocks.size())};
  auto& start = plan.starts.emplace_back();
  start.slot = slot_id{0};
  start.prompt_tokens = plan.total_width;
  start.params = std::make_shared<const sampling_params>(params);
  const auto work = runner.stage(std::make_shared<const step_plan>(plan));
  for (const auto phase :
       {step_phase::copy_in, step_phase::forward, step_phase::sample, step_phase::copy_out})
    CHECK(work->run(phase, inline_stream()).code == errc::ok);
  step_result result;
  runner.collect(*work, result);
  return result;
}

}  // namespace

TEST_CASE(
  "with drafts = without, token for token: both drafters, 1, 3 and 5 drafts, depth 1 to 3") {
  for (const auto drafter : {drafter_kind::dspark, drafter_kind::ngram})
    for (const auto drafts : {1, 3, 5})
      for (const auto depth : {1, 2, 3}) {
        if (drafter == drafter_kind::ngram && drafts != 3 && depth != 2) continue;
        CAPTURE(static_cast<int>(drafter));
        CAPTURE(drafts);
        CAPTURE(depth);
        drive_counts counts;
        check_equal_to_alone(tiny(), drafting(drafter, drafts, depth), more, &counts);
        CHECK(counts.given > counts.decode_rows);  // some drafts are right
        CHECK(counts.given < counts.queries);      // some are not
      }
}

TEST_CASE("with drafts = without, in every numeric mode and model") {
  auto options = drafting(drafter_kind::dspark, 3, 2);
  options.chunk = 13;
  options.settled_rows_from_slot = true;
  check_all_equal_to_alone(options);
}

TEST_CASE(
  "any pattern of right and wrong drafts gives the tokens of none; all right: 1 + d a row") {
  struct pattern_case {
    std::vector<std::int32_t> accepts;
    double given_per_row;  ///< 0: in between
  };
  const pattern_case table[] = {
    {{5}, 6}, {{0}, 1}, {{0, 5, 2, 1, 4, 3}, 0}, {{5, 0, 0, 0, 0}, 0}, {{1, 0, 0, 5, 0, 3, 4}, 0}};
  for (const auto& row : table)
    for (const auto depth : {1, 3}) {
      CAPTURE(row.accepts.front());
      CAPTURE(depth);
      const auto forced = known_drafts(tiny(), row.accepts);
      auto options = drafting(drafter_kind::none, 5, depth);
      options.forced = &forced;
      drive_counts counts;
      check_equal_to_alone(tiny(), options, more, &counts);
      const auto per_row =
        static_cast<double>(counts.given) / static_cast<double>(counts.decode_rows);
      // Over-run has no known ids to draft from: at depth 1 there is hardly any.
      if (row.given_per_row == 1) CHECK(per_row == 1);
      if (row.given_per_row == 6 && depth == 1) CHECK(per_row > 5);
      if (row.given_per_row == 0) CHECK((per_row > 1.2 && per_row < 5));
    }
}

TEST_CASE(
  "rows that sit out, change places, are narrow, or share fewer tokens than they asked for") {
  const auto forced = known_drafts(tiny(), {0, 5, 2, 1, 4, 3, 5});
  struct way {
    std::int32_t depth;
    std::uint64_t skip_seed, width_seed, split_seed;
    bool reverses_rows, from_slot;
  };
  const way table[] = {{1, 0, 1, 1, false, true},  {1, 5, 0, 0, true, false},
                       {2, 2, 0, 2, false, false}, {2, 0, 3, 3, true, true},
                       {3, 6, 4, 4, true, true},   {3, 0, 0, 7, false, true}};
  for (const auto& row : table) {
    CAPTURE(row.depth);
    CAPTURE(row.split_seed);
    auto options = drafting(drafter_kind::none, 5, row.depth);
    options.forced = &forced;
    options.skip_seed = row.skip_seed;
    options.width_seed = row.width_seed;
    options.split_seed = row.split_seed;
    options.reverses_rows = row.reverses_rows;
    options.settled_rows_from_slot = row.from_slot;
    options.chunk = 9;
    options.poisons = true;
    options.slots = 4;
    options.blocks = 24;
    drive_counts counts;
    check_equal_to_alone(tiny(), options, more, &counts);
    CHECK(counts.given > counts.decode_rows);
    options.forced = nullptr;
    options.drafter = row.reverses_rows ? drafter_kind::dspark : drafter_kind::ngram;
    check_equal_to_alone(tiny(), options, more);
  }
}

TEST_CASE("drafts on 2 and 5 threads, and on the cpu device, are those of one thread in place") {
  for (const auto drafter : {drafter_kind::dspark, drafter_kind::ngram}) {
    auto options = drafting(drafter, 3, 2);
    options.split_seed = 4;
    options.threads = 5;
    check_equal_to_alone(tiny(), options, more);
    for (const auto threads : {1, 2}) {
      cpu_device device({.threads = threads});
      options.on = &device;
      options.poisons = true;
      options.chunk = 20;
      check_equal_to_alone(tiny(), options, more);
    }
  }
}

TEST_CASE("the drafts of a step are those of a session's draft pass, confidences their sigmoid") {
  for (const auto& model : all_models(kernels::packing::exact)) {
    CAPTURE(model.name);
    const auto prompt = random_ids(21, 37, model.weights->config.vocab_size);
    const auto runner = make_runner(model.weights, drafting(drafter_kind::dspark, 4, 1));
    const auto result = prefill(*runner, prompt, greedy());
    auto session =
      make_session(model.weights, {.max_positions = 64, .num_drafts = 4, .with_draft = true});
    REQUIRE(session->run_all(inline_stream(), prompt).has_value());
    const std::int32_t slot = 0, position = 36;
    const auto anchor = result.tokens.front();
    const auto expected =
      session->draft(inline_stream(), {&slot, 1}, {&position, 1}, {&anchor, 1}, 4);
    REQUIRE(expected.has_value());
    CHECK(result.drafts_per_row == 4);
    CHECK(result.drafts == expected->ids);
    REQUIRE(result.confidences.size() == 4);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(result.confidences[i] ==
            doctest::Approx(1 / (1 + std::exp(-double{expected->confidence[i]}))));
  }
}

TEST_CASE("a sampled request's draft is drawn with the target's noise of the drafted position") {
  const auto& weights = tiny().weights;
  const auto vocab = weights->config.vocab_size;
  const auto prompt = random_ids(22, 30, vocab);
  ids seen;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    auto params = greedy();
    params.temperature = 3;  // so that the noise decides
    params.top_k = 50;
    params.seed = seed;
    const auto runner = make_runner(weights, drafting(drafter_kind::dspark, 1, 1));
    const auto result = prefill(*runner, prompt, params);
    auto session =
      make_session(weights, {.max_positions = 64, .num_drafts = 1, .with_draft = true});
    REQUIRE(session->run_all(inline_stream(), prompt).has_value());
    const std::int32_t slot = 0, position = 29;
    recorder shown;
    REQUIRE(
      session
        ->draft(inline_stream(), {&slot, 1}, {&position, 1}, {result.tokens.data(), 1}, 1, &shown)
        .has_value());
    const auto& logits = shown.floats.at({model_point::draft_logits, -1});
    // The anchor is the token of position 30; its draft is for 31.
    const std::int32_t place = 0, drafted = 31;
    std::int32_t expected = -1;
    kernels::slot_sampling sampling;
    sampling.temperature = 3;
    sampling.top_k = 50;
    sampling.seed = seed;
    kernels::sample_status status{};
    lazy_array<std::byte> scratch(
      static_cast<std::int64_t>(kernels::sample_rows_scratch_bytes(vocab, 1)));
    kernels::sample_rows_args args;
    args.logits = logits.data();
    args.logits_stride = vocab;
    args.slots = &place;
    args.positions = &drafted;
    args.sampling = &sampling;
    args.rows = 1;
    args.vocab = vocab;
    args.ids = &expected;
    args.status = &status;
    args.scratch = scratch.data();
    kernels::sample_rows_ref(inline_stream(), args);
    CHECK(result.drafts == ids{expected});
    seen.push_back(expected);
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::unique(seen.begin(), seen.end()) - seen.begin() > 6);
}

TEST_CASE("n-gram drafts continue what the sequence has said before, and have no confidences") {
  const auto runner = make_runner(tiny().weights, drafting(drafter_kind::ngram, 3, 1));
  sampling_params params = greedy();
  params.logit_bias = {{9, 10000.0f}};  // the anchor is 9, and 9 was followed by 20, 21, 22
  const auto result = prefill(*runner, {9, 20, 21, 22, 7, 8}, params);
  CHECK(result.tokens == ids{9});
  CHECK(result.drafts == ids{20, 21, 22});
  CHECK(result.confidences.empty());
  CHECK(result.widths == std::vector<std::int32_t>{6});
}
