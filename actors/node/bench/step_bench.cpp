#include "actors/node/bench/step_bench.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr std::int32_t batch_limit = 256;
constexpr std::int32_t first_batch = 8;
constexpr double wakes_share_max = 0.04;  // of a step: messages, waking threads, copies
constexpr double step_seconds_max = 10e-3;
constexpr std::int32_t probe_steps = 24;  // to see how long a step of a batch takes

/// Outputs that a run of `steps` decode steps needs: the prefill gives the first.
std::int32_t outputs_for(std::int32_t steps) {
  return steps + 1;
}

/// With drafts a step gives more: enough for some steps even where every draft is accepted.
std::int32_t draft_outputs_for(std::int32_t steps, std::int32_t drafts) {
  constexpr std::int32_t least_runs = 8;
  return std::max(steps, least_runs * (1 + drafts)) + 1;
}

json::value mode_object(const step_mode& it, std::int32_t batch) {
  const auto device = it.device_seconds.median();
  return json::object{{"seconds", it.seconds.median()},
                      {"device_seconds", device},
                      {"host_seconds", it.host_seconds.median()},
                      {"host_share", it.host_seconds.median() / device},
                      {"device_idle", it.device_idle.median()},
                      {"tokens_per_step", it.tokens.median() / batch},
                      {"tokens_per_second", it.tokens_per_second()}};
}

}  // namespace

void step_mode::add(const step_sample& one) {
  seconds.add(one.seconds);
  device_seconds.add(one.device_seconds);
  host_seconds.add(one.host_seconds);
  device_idle.add(one.device_idle);
  tokens.add(one.tokens);
}

double step_mode::tokens_per_second() const {
  return tokens.median() / seconds.median();
}

double step_row::overlap_gain() const {
  return gains.median();
}

double step_row::ideal_gain() const {
  const auto device = sync.device_seconds.median();
  const auto host = sync.host_seconds.median();
  return (device + host) / std::max(device, host);
}

double step_row::sync_over_sum() const {
  return sums.median();
}

std::optional<double> step_row::drafts_gain() const {
  if (!drafts) return std::nullopt;
  return drafts->tokens_per_second() / sync.tokens_per_second();
}

double loop_for(double share, double device_seconds, double host_seconds) {
  return std::max(0.0, share * device_seconds - host_seconds);
}

result<step_bench> step_bench::make(const loaded_model& model, const engine_settings& engine,
                                    const step_bench_settings& settings) {
  step_bench out(settings);
  step_engine_sizes sizes;
  sizes.rows_max = settings.batch > 0 ? settings.batch : batch_limit;
  sizes.tokens_max =
    settings.prompt + draft_outputs_for(std::max(settings.steps, probe_steps), settings.drafts);
  sizes.depth = 1;
  DI_TRY(out.sync_, step_engine::make(model, engine, sizes));
  sizes.depth = 2;
  DI_TRY(out.overlap_, step_engine::make(model, engine, sizes));
  if (settings.drafts > 0) {
    sizes.num_drafts = settings.drafts;
    DI_TRY(out.drafts_, step_engine::make(model, engine, sizes));
  }
  return out;
}

result<step_bench_result> step_bench::run(const std::function<void(std::string_view)>& show) {
  step_bench_result out;
  show("batch");
  DI_TRY(out.batch, choose_batch());
  show("no loop");
  DI_TRY(auto plain, measure(out.batch, 0.0, 0.0));
  const auto device = plain.sync.device_seconds.median();
  const auto host = plain.sync.host_seconds.median();
  out.rows.push_back(std::move(plain));
  for (const auto share : settings_.shares) {
    show(fmt::format("host work {:.0f} %", 100 * share));
    DI_TRY(auto row, measure(out.batch, share, loop_for(share, device, host)));
    out.rows.push_back(std::move(row));
  }
  return out;
}

result<std::int32_t> step_bench::choose_batch() {
  if (settings_.batch > 0) return settings_.batch;
  for (auto batch = first_batch; batch < batch_limit; batch *= 2) {
    DI_TRY(const auto probe, sync_->run(batch, settings_.prompt, outputs_for(probe_steps), 0.0));
    const auto sum = probe.device_seconds + probe.host_seconds;
    const bool is_long = probe.device_seconds >= settings_.step_seconds_min;
    if (is_long && probe.seconds <= (1 + wakes_share_max) * sum) return batch;
    if (probe.device_seconds >= step_seconds_max) return batch;
  }
  return batch_limit;
}

result<step_row> step_bench::measure(std::int32_t batch, double share, double loop_seconds) {
  step_row out;
  out.host_share = share;
  out.loop_seconds = loop_seconds;
  if (drafts_) out.drafts.emplace();
  const auto prompt = settings_.prompt;
  const auto outputs = outputs_for(settings_.steps);
  for (std::int32_t repeat = 0; repeat < settings_.repeats; ++repeat) {
    DI_TRY(const auto sync, sync_->run(batch, prompt, outputs, loop_seconds));
    out.sync.add(sync);
    DI_TRY(const auto overlap, overlap_->run(batch, prompt, outputs, loop_seconds));
    out.overlap.add(overlap);
    out.gains.add(sync.seconds / overlap.seconds);
    out.sums.add(sync.seconds / (sync.device_seconds + sync.host_seconds));
    if (!drafts_ || repeat > 0) continue;
    DI_TRY(const auto drafts,
           drafts_->run(batch, prompt, draft_outputs_for(settings_.steps, settings_.drafts),
                        loop_seconds));
    out.drafts->add(drafts);
  }
  return out;
}

json::object row_object(const step_row& row, std::int32_t batch) {
  json::object out{{"host_share", row.host_share},
                   {"loop_seconds", row.loop_seconds},
                   {"overlap_gain", row.overlap_gain()},
                   {"ideal_gain", row.ideal_gain()},
                   {"device_idle", row.overlap.device_idle.median()},
                   {"sync_over_sum", row.sync_over_sum()},
                   {"drafts_gain", nullptr},
                   {"sync", mode_object(row.sync, batch)},
                   {"overlap", mode_object(row.overlap, batch)},
                   {"drafts", nullptr}};
  if (row.drafts) {
    out["drafts_gain"] = *row.drafts_gain();
    out["drafts"] = mode_object(*row.drafts, batch);
  }
  return out;
}

std::string rows_text(const step_bench_result& made) {
  std::string out = fmt::format(
    "{:>8} {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>6} {:>7} {:>7} {:>6}\n", "h/d", "d ms", "h ms",
    "sync ms", "over. ms", "/(d+h)", "gain", "ideal", "idle", "drafts", "t/row");
  for (const auto& row : made.rows) {
    const auto ms = [](const sample_list& it) { return 1e3 * it.median(); };
    const auto drafts_gain =
      row.drafts ? fmt::format("{:.2f}x", *row.drafts_gain()) : std::string("-");
    const auto drafts_tokens = row.drafts
                                 ? fmt::format("{:.2f}", row.drafts->tokens.median() / made.batch)
                                 : std::string("-");
    out += fmt::format(
      "{:>8} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>6.3f} {:>6.3f} {:>6.3f} {:>6.1f}% {:>7} "
      "{:>6}\n",
      row.loop_seconds > 0 ? fmt::format("{:.0f}%", 100 * row.host_share) : "no loop",
      ms(row.sync.device_seconds), ms(row.sync.host_seconds), ms(row.sync.seconds),
      ms(row.overlap.seconds), row.sync_over_sum(), row.overlap_gain(), row.ideal_gain(),
      100 * row.overlap.device_idle.median(), drafts_gain, drafts_tokens);
  }
  return out;
}

}  // namespace deepinfer
