#include "actors/node/bench/bench_drafts.hpp"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "actors/model_loading.hpp"
#include "actors/node/bench/team_thread.hpp"

namespace deepinfer {
namespace {

constexpr std::int32_t probes = 3;  // before each repeat and after the last

double seconds_of_part(const counted_work& work, std::string_view part) {
  for (const auto& it : work.parts)
    if (it.name == part) return 1e-9 * static_cast<double>(it.ns);
  return 0.0;
}

}  // namespace

result<draft_bench> draft_bench::make(const engine_settings& engine, const std::string& path,
                                      std::int32_t threads, const offline_settings& settings) {
  try {
    DI_TRY(auto probe, machine_probe::make());
    DI_TRY(auto model, load_model(path, numeric_of(engine.engine)));
    auto team = std::make_unique<cpu_team>(threads, engine.engine.pin_threads);
    draft_bench out(std::move(probe), std::move(model.weights), std::move(team), engine, settings);
    DI_TRY(out.sizes_.kernels, kernels_of(engine.engine));
    return out;
  } catch (const std::bad_alloc&) {
    return fail(errc::no_device, path + ": the machine has not enough free memory for the weights");
  }
}

draft_bench::draft_bench(machine_probe probe, std::shared_ptr<const model_weights> weights,
                         std::unique_ptr<cpu_team> team, const engine_settings& engine,
                         const offline_settings& settings)
  : probe_(std::move(probe)),
    weights_(std::move(weights)),
    team_(std::move(team)),
    settings_(settings),
    ids_(settings.seed, weights_->config.vocab_size) {
  sizes_.numeric = numeric_of(engine.engine);
  sizes_.max_positions = settings.prompt + settings.tokens;
  sizes_.max_tokens =
    std::max(engine.engine.max_num_batched_tokens, weights_->config.draft.block_size);
  sizes_.with_draft = true;
}

result<std::unique_ptr<model_session>> draft_bench::new_session(std::int32_t batch) const {
  auto sizes = sizes_;
  sizes.slots = batch;
  const auto of_a_pass = std::int64_t{batch} * weights_->config.draft.block_size;
  const auto useful = std::max<std::int64_t>(of_a_pass, settings_.prompt);
  sizes.max_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(sizes_.max_tokens, useful));
  return model_session::make(weights_, sizes);
}

result<void> draft_bench::feed_prompts(model_session& session, std::int32_t batch) {
  const stream_ref stream{.team = team_.get()};
  const auto chunk = std::min(settings_.prompt, sizes_.max_tokens);
  for (std::int32_t slot = 0; slot < batch; ++slot)
    for (std::int32_t position = 0; position < settings_.prompt; position += chunk) {
      const auto ids = ids_.draw(std::min(chunk, settings_.prompt - position));
      const session_row row{slot, position, ids};
      DI_TRY_VOID(session.run(stream, {&row, 1}));
    }
  return {};
}

result<void> draft_bench::run_repeat(model_session& session, meters& counted, draft_phase& out) {
  DI_TRY_VOID(feed_prompts(session, out.batch));
  const stream_ref of_steps{.team = team_.get(), .meter = &counted.steps};
  const stream_ref of_passes{.team = team_.get(), .meter = &counted.passes};
  const auto batch = static_cast<std::size_t>(out.batch);
  std::vector<std::int32_t> slots(batch), positions(batch, settings_.prompt);
  std::iota(slots.begin(), slots.end(), 0);
  std::vector<session_row> rows(batch);
  auto ids = ids_.draw(out.batch);
  for (std::int32_t pass = 1; pass < settings_.tokens; ++pass) {
    for (std::size_t i = 0; i < batch; ++i) rows[i] = {slots[i], positions[i], {&ids[i], 1}};
    DI_TRY_VOID(session.run(of_steps, rows));
    const auto anchors = ids_.draw(out.batch);
    counted.passes.enter("embedding");
    const auto begin = work_meter::now_ns();
    DI_TRY(const auto drafts, session.draft(of_passes, slots, positions, anchors, out.drafts));
    out.seconds.add(1e-9 * static_cast<double>(work_meter::now_ns() - begin));
    if (drafts.ids.size() != batch * static_cast<std::size_t>(out.drafts))
      return fail(errc::internal, fmt::format("found {} drafts, expected {}", drafts.ids.size(),
                                              batch * static_cast<std::size_t>(out.drafts)));
    ids = anchors;
    for (auto& position : positions) ++position;
  }
  return {};
}

void draft_bench::probe_machine(machine_rates& rates) {
  for (std::int32_t i = 0; i < probes; ++i) probe_.run(*team_, rates);
}

result<draft_phase> draft_bench::measure_here(std::int32_t batch, machine_rates& rates) {
  try {
    DI_TRY(const auto session, new_session(batch));
    draft_phase out;
    out.batch = batch;
    out.drafts = weights_->config.draft.block_size;
    meters counted;
    DI_TRY_VOID(run_repeat(*session, counted, out));  // to warm up
    out.seconds = {};
    counted.steps.clear();
    counted.passes.clear();
    for (std::int32_t repeat = 0; repeat < settings_.repeats; ++repeat) {
      probe_machine(rates);
      DI_TRY_VOID(run_repeat(*session, counted, out));
    }
    probe_machine(rates);
    out.work = counted_by(counted.passes);
    out.context_seconds = seconds_of_part(counted_by(counted.steps), "draft context") /
                          static_cast<double>(out.seconds.count());
    return out;
  } catch (const std::bad_alloc&) {
    return fail(errc::no_device, "the machine has not enough free memory for the state of "
                                 "sequences and the buffers of a draft pass");
  }
}

result<draft_phase> draft_bench::measure(std::int32_t batch, machine_rates& rates) {
  return on_team_thread(*team_, [&] { return measure_here(batch, rates); });
}

}  // namespace deepinfer
