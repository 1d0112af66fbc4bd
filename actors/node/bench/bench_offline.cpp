#include "actors/node/bench/bench_offline.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "actors/request_intake.hpp"
#include "runtime/base/random.hpp"
#include "runtime/device/cpu_team.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

constexpr auto answer_timeout = 600s;  // of one chunk
constexpr std::int32_t probes = 3;     // before and after each measurement

}  // namespace

counted_work counted_by(const work_meter& meter) {
  counted_work out;
  out.ops.assign(meter.ops().begin(), meter.ops().end());
  out.parts.assign(meter.parts().begin(), meter.parts().end());
  out.total = meter.total();
  out.op_ns = meter.op_ns();
  out.busy_ns = meter.busy_ns();
  return out;
}

std::vector<token_id> random_ids::draw(std::int32_t count) {
  std::vector<token_id> out(static_cast<std::size_t>(count));
  for (auto& id : out) id = static_cast<token_id>(split_mix64(seed_ + 0x10001 * ++drawn_) % vocab_);
  return out;
}

step_meters::step_meters() {
  other_.decode = &decode_;
}

void step_meters::clear() {
  other_.clear();
  decode_.clear();
}

counted_work step_meters::of_decode() const {
  return counted_by(decode_);
}

counted_work step_meters::of_others() const {
  return counted_by(other_);
}

offline_bench::offline_bench(const node& engine, step_meters& meters,
                             const offline_settings& settings)
  : engine_(engine),
    meters_(meters),
    settings_(settings),
    team_(std::make_unique<cpu_team>(engine.facts().threads)),
    ids_(settings.seed, engine.intake().facts().vocab_size) {}

result<void> offline_bench::check() const {
  const auto& facts = engine_.facts();
  const auto refuse = [](const char* flag, std::int64_t found, const char* what,
                         std::int64_t most) -> result<void> {
    return fail(errc::bad_config,
                fmt::format("{}: found {} {}, the engine takes {}", flag, found, what, most));
  };
  const auto positions = std::int64_t{settings_.prompt} + settings_.tokens;
  if (positions > facts.max_model_len)
    return refuse("--prompt and --tokens", positions, "tokens", facts.max_model_len);
  if (settings_.prefill >= facts.max_model_len)
    return refuse("--prefill", settings_.prefill, "tokens", facts.max_model_len - 1);
  for (const auto batch : settings_.batches) {
    const auto blocks = (positions / facts.block_size + 1) * batch;
    if (blocks > facts.num_kv_blocks)
      return refuse("--batch", blocks, "KV blocks for its requests", facts.num_kv_blocks);
  }
  return {};
}

result<offline_result> offline_bench::run(const std::function<void(std::string_view)>& show) {
  DI_TRY_VOID(check());
  DI_TRY(probe_, machine_probe::make());
  offline_result out;
  if (settings_.prefill > 0) {
    show("prefill");
    DI_TRY(out.prefill, measure(1, settings_.prefill, 1));
  }
  for (const auto batch : settings_.batches) {
    show(fmt::format("decode, batch {}", batch));
    DI_TRY(auto phase, measure(batch, settings_.prompt, settings_.tokens));
    out.decode.push_back(std::move(phase));
  }
  out.rates = std::move(rates_);
  return out;
}

result<offline_phase> offline_bench::measure(std::int32_t batch, std::int32_t prompt,
                                             std::int32_t tokens) {
  const bool is_prefill = tokens == 1;
  offline_phase out;
  out.batch = batch;
  DI_TRY(const auto warm_up, run_batch(batch, prompt, tokens));
  static_cast<void>(warm_up);
  DI_TRY(const auto warm_steps, new_steps());
  static_cast<void>(warm_steps);
  meters_.clear();
  for (std::int32_t repeat = 0; repeat < settings_.repeats; ++repeat) {
    probe_machine();
    DI_TRY(const auto seconds, run_batch(batch, prompt, tokens));
    out.request_seconds.add(seconds);
    DI_TRY(const auto steps, new_steps());
    out.steps.add(steps, is_prefill ? "prefill" : "decode", is_prefill ? 0 : batch);
  }
  probe_machine();
  out.work = is_prefill ? meters_.of_others() : meters_.of_decode();
  return out;
}

result<double> offline_bench::run_batch(std::int32_t batch, std::int32_t prompt,
                                        std::int32_t tokens) {
  std::vector<generate_request> requests(static_cast<std::size_t>(batch));
  for (auto& it : requests) {
    it.ids = ids_.draw(prompt);
    it.sampling.max_tokens = tokens;
    it.sampling.ignore_eos = true;
    it.sampling.temperature = settings_.temperature;
    it.sampling.top_p = settings_.top_p;
    it.sampling.seed = split_mix64(settings_.seed + ids_.drawn()) >> 1;
  }
  const auto client = engine_.connect();
  // All of a batch start in one step: a decode step then has a row for each of them.
  DI_TRY_VOID(engine_.pause());
  std::vector<stream> answers;
  for (const auto& it : requests) {
    DI_TRY(auto opened, client.generate(it));
    answers.push_back(std::move(opened));
  }
  const auto begin = work_meter::now_ns();
  DI_TRY_VOID(engine_.resume());
  for (auto& answer : answers) {
    std::size_t got = 0;
    while (true) {
      DI_TRY(const auto chunk, answer.next(answer_timeout));
      if (!chunk) break;
      got += chunk->ids.size();
      if (chunk->finish && chunk->finish->code != errc::ok)
        return fail(chunk->finish->code, chunk->finish->message);
    }
    if (got != static_cast<std::size_t>(tokens))
      return fail(errc::internal, fmt::format("found {} tokens, expected {}", got, tokens));
  }
  const auto seconds = 1e-9 * static_cast<double>(work_meter::now_ns() - begin);
  DI_TRY_VOID(wait_until_idle());
  return seconds;
}

result<void> offline_bench::wait_until_idle() const {
  const auto client = engine_.connect();
  const auto deadline = std::chrono::steady_clock::now() + answer_timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    DI_TRY(const auto stats, client.stats());
    if (stats.running == 0 && stats.queued == 0 && stats.inflight_steps == 0) return {};
    std::this_thread::sleep_for(1ms);
  }
  return fail(errc::deadline_exceeded, "the engine does not come to rest");
}

result<std::vector<traced_step>> offline_bench::new_steps() {
  DI_TRY(const auto trace, engine_.trace(1u << 20));
  DI_TRY(auto steps, read_steps(trace, last_step_));
  if (steps.empty()) return steps;
  if (last_step_ > 0 && steps.front().step != last_step_ + 1)
    return fail(errc::bad_config, fmt::format("--trace-buffer-steps: found room for {} steps, a "
                                              "measurement has {}",
                                              steps.size(), steps.back().step - last_step_));
  last_step_ = steps.back().step;
  return steps;
}

void offline_bench::probe_machine() {
  for (std::int32_t i = 0; i < probes; ++i) probe_->run(*team_, rates_);
}

}  // namespace deepinfer
