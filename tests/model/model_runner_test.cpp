// The model behind plans: the tiny model's recorded answers, and the equalities of a step runner,
// bit for bit (ids and the bits of every logprob).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "mixed_requests.hpp"
#include "runner_fixture.hpp"
#include "runtime/device/cpu_device.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

TEST_CASE("the tiny model gives its recorded ids exactly, chats and raw prompts") {
  const auto golden = golden_json(DI_SOURCE_DIR "/examples/models/tiny-v41/goldens.json");
  std::vector<drive_request> requests;
  std::vector<ids> expected;
  for (const auto* kind : {"chat", "raw"})
    for (const auto& it : golden.as_object().at(kind).as_array()) {
      const auto& facts = it.as_object();
      drive_request request;
      request.prompt = ids_of(facts.at("prompt_ids"));
      expected.push_back(ids_of(facts.at("expected_ids")));
      request.max_tokens = static_cast<std::int32_t>(expected.back().size());
      request.params = greedy();
      requests.push_back(std::move(request));
    }
  REQUIRE(requests.size() == 30);
  for (const auto depth : {1, 2}) {
    CAPTURE(depth);
    drive_options options;
    options.depth = depth;
    const auto outputs = drive(tiny_model(), requests, options);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      CAPTURE(i);
      CHECK(outputs[i].tokens == expected[i]);
    }
  }
}

TEST_CASE("alone = in a batch of mixed lengths, bit for bit") {
  check_all_equal_to_alone({});
}

TEST_CASE("row order does not matter, bit for bit") {
  drive_options options;
  options.reverses_rows = true;
  check_all_equal_to_alone(options);
}

TEST_CASE("whole prefill = chunks of any size, bit for bit") {
  for (const auto chunk : {1, 3, 8, 17}) {
    CAPTURE(chunk);
    drive_options options;
    options.chunk = chunk;
    check_all_equal_to_alone(options);
  }
  drive_options options;
  options.chunk = 24;
  options.chunk_seed = 5;
  check_all_equal_to_alone(options);
}

TEST_CASE("depth 1 = 2 = 3, rows carried from rows and from slots, bit for bit") {
  for (const auto depth : {1, 2, 3})
    for (const auto skip_seed : {std::uint64_t{0}, std::uint64_t{9}}) {
      CAPTURE(depth);
      CAPTURE(skip_seed);
      drive_options options;
      options.depth = depth;
      options.skip_seed = skip_seed;
      options.settled_rows_from_slot = true;
      check_all_equal_to_alone(options);
    }
}

TEST_CASE("1 thread = 2 = 5 threads, bit for bit") {
  for (const auto threads : {2, 5}) {
    CAPTURE(threads);
    drive_options options;
    options.threads = threads;
    options.chunk = 13;
    check_all_equal_to_alone(options);
  }
}

TEST_CASE(
  "on the cpu device, copies and compute of launched steps overlapping: as alone, bit for bit") {
  for (const auto threads : {1, 2}) {
    CAPTURE(threads);
    cpu_device device({.threads = threads});
    drive_options options;
    options.depth = 2;
    options.on = &device;
    options.chunk = 20;
    options.poisons = true;
    check_all_equal_to_alone(options);
  }
}

TEST_CASE("freed slots and blocks filled with NaN change nothing, bit for bit") {
  drive_options options;
  options.depth = 2;
  options.poisons = true;
  options.slots = 3;  // every slot and block serves several sequences
  options.blocks = 12;
  check_all_equal_to_alone(options);
}

TEST_CASE("resume points beside the blocks change nothing, poison or not, bit for bit") {
  drive_options options;
  options.depth = 2;
  options.prefix_cache = true;
  options.block_size = 4;
  options.blocks = 48;
  options.slots = 3;
  options.chunk = 24;
  options.poisons = true;
  check_all_equal_to_alone(options);
}

TEST_CASE("rings sized for drafts and the drafter's context rows change nothing, bit for bit") {
  drive_options options;
  options.depth = 2;
  options.num_drafts = 5;
  check_all_equal_to_alone(options);  // rows are planned six wide, but there are no drafts
  options.drafter = drafter_kind::dspark;
  options.width_seed = 1;
  check_all_equal_to_alone(options);
}

TEST_CASE("after other requests = first, also after a reset that forgot running sequences") {
  const auto weights = tiny_model();
  const auto requests = mixed_requests(weights->config.vocab_size);
  drive_options options;
  options.depth = 2;
  const auto runner = make_runner(weights, options);
  const auto first = drive(*runner, requests, options);
  CHECK(drive(*runner, requests, options) == first);
  runner->reset();
  CHECK(drive(*runner, requests, options) == first);
}

TEST_CASE(
  "rows past a stop over-run without a trace: the next user of slot and blocks is as alone") {
  const auto weights = tiny_model();
  auto requests = mixed_requests(weights->config.vocab_size);
  for (auto& it : requests) it.params = greedy(2);
  drive_options options;
  const auto expected = drive(weights, requests, options);
  const auto stop = expected[3].tokens[2];
  options.depth = 2;
  options.slots = 2;
  options.blocks = 12;
  options.poisons = true;
  const auto outputs = drive(weights, requests, options, stop);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    auto cut = expected[i];
    const auto found = std::find(cut.tokens.begin(), cut.tokens.end(), stop);
    if (found != cut.tokens.end()) {
      cut.tokens.erase(found + 1, cut.tokens.end());
      cut.logprobs.resize(cut.tokens.size());
    }
    CHECK(outputs[i] == cut);
  }
}

TEST_CASE("a greedy id is the arg-max of the session's logits, its logprob their log-softmax") {
  const auto weights = tiny_model();
  const auto prompt = random_ids(77, 50, weights->config.vocab_size);
  drive_request request{prompt, 1, greedy(2), 0};
  const auto output = drive(weights, {request}, {}).front();
  auto session = make_session(weights, {.max_positions = 64});
  const auto logits = *session->run_all(inline_stream(), prompt);
  const auto last = row_of(logits, 49, weights->config.vocab_size);
  CHECK(output.tokens.front() == arg_max(last));
  double sum = 0;
  for (const auto x : last) sum += std::exp(double{x});
  const auto best = double{last[static_cast<std::size_t>(output.tokens.front())]};
  REQUIRE(output.logprobs.front().ids.size() == 3);
  CHECK(output.logprobs.front().ids[1] == output.tokens.front());
  CHECK(output.logprobs.front().logprobs[0] == doctest::Approx(best - std::log(sum)).epsilon(1e-5));
}

TEST_CASE("every sampling parameter of a sequence reaches the sampler") {
  const auto weights = tiny_model();
  const auto prompt = random_ids(5, 20, weights->config.vocab_size);
  const auto eos = weights->config.eos_tokens.front();
  const auto run = [&](const sampling_params& params) {
    return drive(weights, {{prompt, 12, params, 0}}, {}).front().tokens;
  };
  const auto with = [](auto&& edit, float temperature) {
    sampling_params params;
    params.temperature = temperature;
    edit(params);
    return params;
  };
  const auto plain = run(greedy());
  const auto hot = [&](auto&& edit) { return run(with(edit, 5.0f)); };
  const auto cold = [&](auto&& edit) { return run(with(edit, 0.0f)); };

  CHECK(hot([](auto&) {}) != plain);
  CHECK(hot([](auto& it) { it.seed = 1; }) != hot([](auto& it) { it.seed = 2; }));
  CHECK(hot([](auto& it) { it.top_k = 1; }) == plain);
  CHECK(hot([](auto& it) { it.top_p = 1e-6f; }) == plain);
  CHECK(hot([](auto& it) { it.min_p = 1.0f; }) == plain);

  const std::vector<std::pair<token_id, float>> all_9{{9, 1000.0f}};
  CHECK(cold([&](auto& it) { it.logit_bias = all_9; }) == ids(12, 9));
  // Of two favourites the second is chosen once the first has been penalised.
  for (const auto penalty :
       {&sampling_params::presence_penalty, &sampling_params::frequency_penalty,
        &sampling_params::repetition_penalty}) {
    const auto chosen = cold([&](auto& it) {
      it.logit_bias = {{9, 10000.0f}, {10, 9900.0f}};
      it.*penalty = 200.0f;
    });
    CHECK(chosen[0] == 9);
    CHECK(chosen[1] == 10);
  }

  // Stop ids, eos among them unless ignored, are masked before min_tokens outputs.
  const auto stops_early = [&](std::int32_t min_tokens, token_id stop, bool ignore_eos) {
    return cold([&](auto& it) {
      it.logit_bias = {{stop, 1000.0f}, {9, 500.0f}};
      it.min_tokens = min_tokens;
      it.ignore_eos = ignore_eos;
      it.stop_token_ids = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29};  // more than lie inline
    });
  };
  ids masked(12, 9);
  std::fill(masked.begin() + 3, masked.end(), eos);
  CHECK(stops_early(3, eos, false) == masked);
  CHECK(stops_early(3, eos, true) == ids(12, eos));
  std::fill(masked.begin() + 3, masked.end(), 29);
  CHECK(stops_early(3, 29, true) == masked);
  CHECK(drive(weights, {{prompt, 2, greedy(7), 0}}, {}).front().logprobs[1].ids.size() == 8);
}

TEST_CASE(
  "a row whose logits are NaN fails alone and says so; the row beside it is as ever [I76]") {
  const auto weights = tiny_model();
  const auto runner = make_runner(weights, {});
  step_plan plan;
  plan.clear();
  plan.step = step_id{1};
  plan.kind = step_kind::prefill;
  plan.sequences = {seq_id{1}, seq_id{2}};
  plan.epochs = {0, 0};
  plan.slots = {slot_id{0}, slot_id{1}};
  plan.kinds = {row_kind::prefill, row_kind::prefill};
  plan.sources = {from_fresh, from_fresh};
  plan.widths = {2, 2};
  plan.positions = {4, 0};  // rows before the first one's were never written: poison stands there
  plan.yields_max = plan.yields_min = {1, 1};
  plan.token_begin = {0, 2, 4};
  plan.tokens = {5, 6, 5, 6};
  plan.table_begin = {0, 0};
  plan.block_begin = {0, 1, 2};
  plan.blocks = {block_id{0}, block_id{1}};
  plan.total_width = 4;
  for (std::int32_t i = 0; i < 2; ++i) {
    auto& start = plan.starts.emplace_back();
    start.slot = slot_id{i};
    start.sequence = seq_id{static_cast<std::uint64_t>(i) + 1};
    start.prompt_tokens = i == 0 ? 6 : 2;
    start.params = std::make_shared<const sampling_params>(greedy());
  }
  const slot_id slot{0};
  runner->poison({}, {&slot, 1});
  const auto work = runner->stage(std::make_shared<const step_plan>(plan));
  for (const auto phase :
       {step_phase::copy_in, step_phase::forward, step_phase::sample, step_phase::copy_out})
    CHECK(work->run(phase, inline_stream()).code == errc::ok);
  step_result result;
  runner->collect(*work, result);
  CHECK(result.code == errc::ok);
  CHECK(result.sequences == plan.sequences);
  CHECK(result.row_errors == std::vector<row_error>{row_error::bad_logits, row_error::none});
  CHECK(result.token_begin == ids{0, 0, 1});
  CHECK(result.tokens == drive(weights, {{{5, 6}, 1, greedy(), 0}}, {}).front().tokens);
}

TEST_CASE("ring slots are reused, but not one whose work somebody still holds") {
  drive_options options;
  options.depth = 2;  // three slots
  const auto runner = make_runner(tiny_model(), options);
  const auto stage = [&runner](std::uint64_t step) {
    step_plan plan;
    plan.clear();
    plan.step = step_id{step};
    return runner->stage(std::make_shared<const step_plan>(plan));
  };
  const auto first = stage(1);  // held: given up, and may yet run
  const auto* second = stage(2).get();
  stage(3);
  const auto fourth = stage(4);
  CHECK(fourth.get() != first.get());
  CHECK(first->step() == step_id{1});
  CHECK(stage(5).get() == second);
}

TEST_CASE("an empty step runs and gives nothing") {
  const auto runner = make_runner(tiny_model(), {});
  step_plan plan;
  plan.clear();
  plan.step = step_id{1};
  const auto work = runner->stage(std::make_shared<const step_plan>(plan));
  for (const auto phase :
       {step_phase::copy_in, step_phase::forward, step_phase::sample, step_phase::copy_out})
    CHECK(work->run(phase, inline_stream()).code == errc::ok);
  step_result result;
  runner->collect(*work, result);
  CHECK(result.step == step_id{1});
  CHECK(result.tokens.empty());
}

TEST_CASE("sizes that do not fit the model are refused with what was found and expected") {
  struct sizes_case {
    void (*edit)(runner_config&);
    const char* message;
  };
  const sizes_case table[] = {
    {[](runner_config& it) { it.block_size = 15; },
     "block_size: found 15, expected a multiple of the compression ratio 2"},
    {[](runner_config& it) { it.depth = 0; }, "depth: found 0, expected at least 1"},
    {[](runner_config& it) { it.num_kv_blocks = 0; },
     "num_kv_blocks: found 0, expected at least 1"},
    {[](runner_config& it) { it.num_drafts = -1; },
     "num_drafts -1 and draft_overhang 0: expected at least 0"},
    {[](runner_config& it) { it.drafter = drafter_kind::ngram; },
     "num_drafts: found 0, expected at least 1 for a drafter"},
  };
  for (const auto& row : table) {
    CAPTURE(row.message);
    runner_config config;
    config.max_num_seqs = config.state_slots = config.num_kv_blocks = 4;
    config.max_num_batched_tokens = config.max_model_len = 64;
    row.edit(config);
    const auto made = model_runner::make(tiny_model(), config);
    REQUIRE_FALSE(made.has_value());
    CHECK(made.error().code == errc::invalid_argument);
    CHECK(made.error().message == row.message);
  }
}
