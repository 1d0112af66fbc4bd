#include "actors/node/bench/step_engine.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_offline.hpp"
#include "actors/node/bench/step_pace.hpp"
#include "actors/request_intake.hpp"
#include "actors/tokenizer_texts.hpp"
#include "runtime/core/capacity.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/model/model_runner.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

constexpr auto answer_timeout = 600s;     // of one chunk
constexpr std::size_t steps_skipped = 2;  // at the begin of a run: the pipeline fills

result<runner_config> runner_of(const engine_settings& settings, const step_engine_sizes& sizes) {
  runner_config out;
  out.depth = sizes.depth;
  out.num_drafts = sizes.num_drafts;
  out.drafter = sizes.num_drafts > 0 ? drafter_kind::dspark : drafter_kind::none;
  out.max_num_seqs = sizes.rows_max;
  out.state_slots = sizes.rows_max * sizes.depth;
  out.max_num_batched_tokens = settings.engine.max_num_batched_tokens;
  out.block_size = settings.engine.block_size;
  out.numeric = numeric_of(settings.engine);
  DI_TRY(out.kernels, kernels_of(settings.engine));
  const pipeline_shape shape{sizes.depth, sizes.num_drafts, 0};
  out.max_model_len = sizes.tokens_max + static_cast<std::int32_t>(shape.margin());
  const auto blocks = blocks_for(out.max_model_len + shape.margin(), out.block_size);
  out.num_kv_blocks = static_cast<std::int32_t>(blocks) * sizes.rows_max;
  return out;
}

/// Decode steps of `rows` rows that follow each other: the longest such run.
std::vector<traced_step> full_steps(const std::vector<traced_step>& all, std::int32_t rows) {
  std::vector<traced_step> best, now;
  for (const auto& it : all) {
    if (it.kind != "decode" || it.rows != rows) {
      now.clear();
      continue;
    }
    now.push_back(it);
    if (now.size() > best.size()) best = now;
  }
  return best;
}

}  // namespace

result<step_sample> sample_of(const std::vector<traced_step>& steps,
                              const std::unordered_map<std::uint64_t, std::int32_t>& tokens,
                              std::int32_t rows) {
  const auto full = full_steps(steps, rows);
  if (full.size() < steps_skipped + least_steps)
    return fail(errc::internal, fmt::format("found {} steps of {} rows, expected {} or more",
                                            full.size(), rows, steps_skipped + least_steps));
  sample_list seconds, device, host, gained;
  double idle = 0.0;
  for (std::size_t i = steps_skipped; i + 1 < full.size(); ++i) {
    const auto length = full[i + 1].begin - full[i].begin;
    seconds.add(length);
    device.add(full[i].end - full[i].begin);
    host.add(full[i].host_seconds);
    idle += std::max(0.0, full[i + 1].begin - full[i].end);
    const auto found = tokens.find(full[i].step);
    gained.add(found == tokens.end() ? 0.0 : static_cast<double>(found->second));
  }
  step_sample out;
  out.seconds = seconds.median();
  out.device_seconds = device.median();
  out.host_seconds = host.median();
  out.device_idle = idle / seconds.sum();
  out.tokens = gained.sum() / static_cast<double>(gained.count());
  return out;
}

step_engine::step_engine() : pace_(std::make_unique<spinning_pace>()) {}

step_engine::~step_engine() = default;

result<std::unique_ptr<step_engine>> step_engine::make(const loaded_model& model,
                                                       const engine_settings& settings,
                                                       const step_engine_sizes& sizes) {
  const auto cores = cores_to_use();
  if (cores.size() < 2)
    return fail(errc::no_device, "bench step needs two cores: one for the host, one as the device");
  std::unique_ptr<step_engine> out(new step_engine());
  DI_TRY(const auto config, runner_of(settings, sizes));
  if (config.max_model_len > model.config().max_positions)
    return fail(errc::bad_config,
                fmt::format("--prompt and --steps: found {} tokens with drafts, the model takes {}",
                            config.max_model_len, model.config().max_positions));
  DI_TRY(auto runner, model_runner::make(model.weights, config));
  intake_facts facts;
  facts.model_name = "bench";
  facts.vocab_size = model.config().vocab_size;
  facts.max_model_len = config.max_model_len;
  facts.bos = std::max(0, model.config().bos_token);
  rank_machines machines;
  machines.runner = std::move(runner);
  machines.texts = std::make_shared<tokenizer_texts>(model.words);
  machines.intake = std::make_shared<request_intake>(model.words, facts);
  machines.eos_ids = model.config().eos_tokens;
  machines.pace = out->pace_.get();
  {
    DI_TRY(const auto device_core, core_choice::make(cores[1]));
    cpu_device_config device;
    device.threads = 1;
    machines.on = std::make_unique<cpu_device>(device);
  }
  auto engine = settings;
  engine.engine.depth = sizes.depth;
  engine.engine.max_num_seqs = sizes.rows_max;
  engine.engine.chunk_size = 0;
  engine.engine.mixed_steps = false;
  engine.engine.min_decode_gap = 0;  // a batch starts whole, in however many steps
  engine.observability.trace_buffer_steps = 2 * sizes.tokens_max;
  DI_TRY(const auto host_core, core_choice::make(cores[0]));
  node_facts about;
  about.max_model_len = config.max_model_len;
  about.threads = 1;
  out->engine_ = node::start(engine, std::move(machines), about);
  return out;
}

result<step_sample> step_engine::run(std::int32_t batch, std::int32_t prompt, std::int32_t outputs,
                                     double loop_seconds) {
  // Who reads the answers is host work as well.
  DI_TRY(const auto host_core, core_choice::make(cores_to_use().front()));
  pace_->set_loop_ns(static_cast<std::int64_t>(loop_seconds * 1e9));
  DI_TRY_VOID(answer_all(batch, prompt, outputs));
  DI_TRY_VOID(engine_->pause());  // answered when the last step has settled
  DI_TRY(const auto trace, engine_->trace(1u << 20));
  DI_TRY(const auto steps, read_steps(trace, last_step_));
  if (!steps.empty()) last_step_ = steps.back().step;
  return sample_of(steps, pace_->take_tokens(), batch);
}

result<void> step_engine::answer_all(std::int32_t batch, std::int32_t prompt,
                                     std::int32_t outputs) {
  const auto client = engine_->connect();
  random_ids ids(1, engine_->intake().facts().vocab_size);
  DI_TRY_VOID(engine_->pause());
  std::vector<stream> answers;
  for (std::int32_t i = 0; i < batch; ++i) {
    generate_request request;
    request.ids = ids.draw(prompt);
    request.sampling.max_tokens = outputs;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = 0.0f;
    DI_TRY(auto opened, client.generate(request));
    answers.push_back(std::move(opened));
  }
  DI_TRY_VOID(engine_->resume());
  for (auto& answer : answers) {
    while (true) {
      DI_TRY(const auto chunk, answer.next(answer_timeout));
      if (!chunk) break;
      if (chunk->finish && chunk->finish->code != errc::ok)
        return fail(chunk->finish->code, chunk->finish->message);
    }
  }
  return {};
}

}  // namespace deepinfer
