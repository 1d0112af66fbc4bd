// The simulator: small workloads whose times can be added up by hand, and what they must be.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "actors/simulate/simulation.hpp"
#include "actors/simulate/simulation_report.hpp"

using namespace deepinfer;

namespace {

constexpr std::int64_t us = 1000, ms = 1'000'000;

/// base 1 ms, a token 10 us, a row 100 us, nothing else.
simulation_settings plain() {
  simulation_settings out;
  out.depth = 1;
  out.plan_ns = out.settle_ns = 0;
  out.prefix_cache = false;
  out.steps = {.base_ns = 1e6,
               .token_ns = 10e3,
               .row_ns = 100e3,
               .context_ns = 0,
               .sample_ns = 0,
               .copy_ns = 0};
  return out;
}

workload_request request_of(std::int64_t arrival_ns, std::int32_t prompt, std::int32_t output) {
  workload_request out;
  out.arrival_ns = arrival_ns;
  out.prompt_tokens = prompt;
  out.output_tokens = output;
  return out;
}

simulation_outcome run(const simulation_settings& settings,
                       const std::vector<workload_request>& workload) {
  auto out = simulate(settings, workload);
  REQUIRE_MESSAGE(out.has_value(), (out ? "" : out.error().message));
  CHECK(out->canary_errors == 0);
  for (std::size_t i = 0; i < workload.size(); ++i) {
    CAPTURE(i);
    CHECK(out->requests[i].has_finished);
    if (!out->requests[i].has_failed) CHECK(out->requests[i].tokens == workload[i].output_tokens);
  }
  return *out;
}

std::int64_t ttft(const simulation_outcome& outcome, std::size_t request) {
  return outcome.requests[request].first_token_ns - outcome.requests[request].arrival_ns;
}

std::int64_t idle(const simulation_outcome& outcome, idle_cause cause) {
  return outcome.device.idle_ns[static_cast<std::size_t>(cause)];
}

}  // namespace

TEST_CASE("simulate: the first token of one request comes when its prompt is computed") {
  const auto out = run(plain(), {request_of(5 * ms, 100, 4)});
  const auto prefill = 1 * ms + 100 * 10 * us + 100 * us;
  const auto decode = 1 * ms + 10 * us + 100 * us;
  CHECK(ttft(out, 0) == prefill);
  CHECK(out.requests[0].last_token_ns == 5 * ms + prefill + 3 * decode);
  CHECK(out.begin_ns == 5 * ms);
  CHECK(out.end_ns == out.requests[0].last_token_ns);
  CHECK(out.device.steps == 4);
  CHECK(out.device.busy_ns == prefill + 3 * decode);
  CHECK(out.device.idle_ns_total() == 0);
}

TEST_CASE("simulate: sampling, copies, context and the host add to the first token") {
  auto settings = plain();
  settings.steps.context_ns = 100;
  settings.steps.sample_ns = 50e3;
  settings.steps.copy_ns = 7e3;
  settings.plan_ns = 30 * us;
  settings.settle_ns = 20 * us;
  const auto out = run(settings, {request_of(0, 100, 1)});
  const auto forward = 1 * ms + 100 * 10 * us + 100 * us + 100 * 100;
  CHECK(ttft(out, 0) == 30 * us + 7 * us + forward + 50 * us + 7 * us + 20 * us);
}

TEST_CASE("simulate: depth 2 hides the host's time under the device's, depth 1 pays it each step") {
  auto settings = plain();
  settings.plan_ns = 200 * us;
  settings.settle_ns = 100 * us;
  const std::vector<workload_request> workload{request_of(0, 100, 11)};
  const auto decode = 1 * ms + 10 * us + 100 * us;
  const auto plain_run = run(settings, workload);
  settings.depth = 2;
  const auto overlapped = run(settings, workload);
  const auto tpot = [](const simulation_outcome& it) {
    return (it.requests[0].last_token_ns - it.requests[0].first_token_ns) / 10;
  };
  CHECK(tpot(plain_run) == decode + 300 * us);
  CHECK(tpot(overlapped) == decode);
  CHECK(idle(plain_run, idle_cause::plan) == 10 * 200 * us);
  CHECK(idle(plain_run, idle_cause::settle) == 10 * 100 * us);
  CHECK(overlapped.device.idle_ns_total() == 0);
  CHECK(overlapped.device.exposed_host_ns == 0);
}

TEST_CASE("simulate: a cached prefix is not computed again") {
  auto settings = plain();
  settings.block_size = 16;
  std::vector<workload_request> workload{request_of(0, 128, 2), request_of(50 * ms, 128, 2)};
  for (auto& it : workload) it.prefix_group = "a", it.prefix_tokens = 96;
  const auto cold = run(settings, workload);
  settings.prefix_cache = true;
  const auto warm = run(settings, workload);
  CHECK(ttft(cold, 0) == ttft(cold, 1));
  CHECK(ttft(warm, 0) == ttft(cold, 0));
  CHECK(ttft(warm, 1) == ttft(cold, 1) - 96 * 10 * us);
  CHECK(report_of(cold).prefix_hit_rate == 0.0);
  CHECK(report_of(warm).prefix_hit_rate == 96.0 / 256.0);
  // Without a group prompts have nothing in common.
  for (auto& it : workload) it.prefix_group.clear(), it.prefix_tokens = 0;
  CHECK(report_of(run(settings, workload)).prefix_hit_rate == 0.0);
}

TEST_CASE("simulate: a pool that is too small preempts, and everybody still gets every token") {
  auto settings = plain();
  settings.block_size = 4;
  settings.max_num_seqs = 4;
  std::vector<workload_request> workload(4, request_of(0, 16, 24));
  settings.num_kv_blocks = 64;
  CHECK(run(settings, workload).scheduler.preemptions == 0);
  settings.num_kv_blocks = 24;
  for (const auto depth : {1, 2, 3}) {
    CAPTURE(depth);
    settings.depth = depth;
    const auto tight = run(settings, workload);
    CHECK(tight.scheduler.preemptions > 0);
    CHECK(report_of(tight).done == 4);
  }
  settings.num_kv_blocks = 8;  // 32 tokens: nobody fits
  const auto report = report_of(run(settings, workload));
  CHECK(report.failed == 4);
  CHECK(report.done == 0);
}

TEST_CASE("simulate: drafts that are right shorten the decode, and their share is counted") {
  auto settings = plain();
  settings.num_drafts = 3;
  const std::vector<workload_request> workload{request_of(0, 100, 41)};
  const auto all = run(settings, workload);
  CHECK(all.device.steps == 1 + 10);
  CHECK(report_of(all).draft_accept_rate == 1.0);
  settings.acceptance = {0.0};
  const auto none = run(settings, workload);
  CHECK(none.scheduler.accepted_tokens == 0);
  CHECK(none.device.steps == 1 + 40);
  settings.acceptance = {1.0, 0.0};
  const auto one = run(settings, workload);
  CHECK(one.device.steps == 1 + 20);
  settings.acceptance = {0.8, 0.6, 0.4};
  settings.seed = 7;
  const auto rows = draw_acceptance(settings.acceptance, 7, 0, 40, 3);
  std::int64_t steps = 1;
  for (std::int32_t tokens = 1; tokens < 41; ++steps)
    tokens += 1 + rows[static_cast<std::size_t>(steps - 1)];
  CHECK(run(settings, workload).device.steps == steps);
}

TEST_CASE("simulate: drafts are accepted as often as the model of acceptance says") {
  const acceptance_model model{0.8, 0.5};
  std::int64_t first = 0, second = 0, third = 0;
  for (std::uint32_t request = 0; request < 100; ++request)
    for (const auto right : draw_acceptance(model, 3, request, 100, 6)) {
      first += right >= 1;
      second += right >= 2;
      third += right >= 3;
    }
  CHECK(static_cast<double>(first) / 10000 == doctest::Approx(0.8).epsilon(0.02));
  CHECK(static_cast<double>(second) / static_cast<double>(first) ==
        doctest::Approx(0.5).epsilon(0.03));
  CHECK(static_cast<double>(third) / static_cast<double>(second) ==
        doctest::Approx(0.5).epsilon(0.05));
  CHECK(draw_acceptance(model, 3, 1, 50, 2) != draw_acceptance(model, 4, 1, 50, 2));
  CHECK(draw_acceptance(model, 3, 1, 50, 2) != draw_acceptance(model, 3, 2, 50, 2));
  CHECK(draw_acceptance({}, 3, 1, 50, 2).empty());
}

TEST_CASE("simulate: a higher priority starts first, and a device without work says so") {
  auto settings = plain();
  settings.max_num_seqs = 1;
  std::vector<workload_request> workload{request_of(0, 10, 2), request_of(0, 10, 2),
                                         request_of(0, 10, 2), request_of(40 * ms, 10, 1)};
  workload[2].priority = 1;
  const auto out = run(settings, workload);
  CHECK(out.requests[2].first_token_ns < out.requests[0].first_token_ns);
  CHECK(out.requests[0].first_token_ns < out.requests[1].first_token_ns);
  CHECK(ttft(out, 3) == 1 * ms + 10 * 10 * us + 100 * us);
  CHECK(idle(out, idle_cause::no_work) == 40 * ms - out.requests[1].last_token_ns);
}

TEST_CASE("simulate: equal arguments give equal reports at any depth, other seeds other ones") {
  synthetic_workload like;
  like.requests = 40;
  like.rate = 50;
  like.prompt = {100, 60};
  like.output = {20, 19};
  like.prefix_tokens = 64;
  like.prefix_share = 0.5;
  auto settings = plain();
  settings.num_drafts = 2;
  settings.acceptance = {0.7};
  settings.prefix_cache = settings.mixed_steps = true;
  settings.block_size = 8;
  settings.num_kv_blocks = 64;
  settings.max_num_seqs = 8;
  for (const auto depth : {1, 2, 3}) {
    CAPTURE(depth);
    settings.depth = depth;
    const auto text = [&](std::uint64_t seed) {
      like.seed = settings.seed = seed;
      return to_text(object_of(report_of(run(settings, draw_workload(like)))));
    };
    CHECK(text(1) == text(1));
    CHECK(text(1) != text(2));
  }
}

TEST_CASE("simulate: sizes that contradict each other are refused") {
  auto settings = plain();
  settings.num_drafts = 3;
  settings.max_num_batched_tokens = 3;
  const auto refused = simulate(settings, std::vector{request_of(0, 1, 1)});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::bad_config);
  settings.max_num_batched_tokens = 4;
  run(settings, {request_of(0, 1, 5)});
}

TEST_CASE("simulate: percentiles are nearest ranks, and nothing has none") {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 100; i > 0; --i) values.push_back(i);
  const auto all = latency_of(values);
  CHECK(all.count == 100);
  CHECK(all.mean_ns == 50.5);
  CHECK(all.p50_ns == 50);
  CHECK(all.p90_ns == 90);
  CHECK(all.p99_ns == 99);
  const auto three = latency_of({30, 10, 20});
  CHECK(three.p50_ns == 20);
  CHECK(three.p90_ns == 30);
  CHECK(latency_of({}).count == 0);
}

TEST_CASE("simulate: a run whose canary saw an error ends with exit code 10") {
  std::vector<simulation_report> runs(2);
  CHECK(exit_code_of(runs) == 0);
  runs[1].canary_errors = 1;
  CHECK(exit_code_of(runs) == 10);
}
