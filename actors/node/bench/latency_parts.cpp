#include "actors/node/bench/latency_parts.hpp"

#include <new>

#include "actors/node/bench/team_thread.hpp"

namespace deepinfer {
namespace {

constexpr std::int32_t runs = 16;  // of each part and call

double seconds_since(std::int64_t begin_ns) {
  return 1e-9 * static_cast<double>(work_meter::now_ns() - begin_ns);
}

}  // namespace

result<latency_parts> latency_parts::make(const engine_settings& engine, const loaded_model& model,
                                          std::int32_t context, const latency_settings& settings) {
  session_config sizes;
  sizes.numeric = numeric_of(engine.engine);
  DI_TRY(sizes.kernels, kernels_of(engine.engine));
  sizes.max_positions = context + runs * (1 + settings.drafts);
  latency_parts out(model, engine, context, settings.drafts);
  try {
    DI_TRY(out.plain_, model_session::make(model.weights, sizes));
    sizes.with_draft = true;
    DI_TRY(out.drafting_, model_session::make(model.weights, sizes));
  } catch (const std::bad_alloc&) {
    return fail(errc::no_device, "the machine has not enough free memory for two sessions");
  }
  return out;
}

latency_parts::latency_parts(const loaded_model& model, const engine_settings& engine,
                             std::int32_t context, std::int32_t drafts)
  : team_(std::make_unique<cpu_team>(threads_of(engine.engine), engine.engine.pin_threads)),
    ids_(1, model.config().vocab_size),
    context_(context),
    drafts_(drafts) {}

result<void> latency_parts::run(decode_latency& out) {
  return on_team_thread(*team_, [&] { return run_here(out); });
}

result<void> latency_parts::run_here(decode_latency& out) {
  const auto context = ids_.draw(context_);
  const session_row prompt{0, 0, context};
  const stream_ref stream{.team = team_.get()};
  DI_TRY_VOID(plain_->run(stream, {&prompt, 1}));
  DI_TRY_VOID(drafting_->run(stream, {&prompt, 1}));
  DI_TRY_VOID(time_steps(*plain_, 1, out.step));
  DI_TRY_VOID(time_steps(*drafting_, 1 + drafts_, out.verify));
  return time_passes(out.draft);
}

result<void> latency_parts::time_steps(model_session& session, std::int32_t width,
                                       sample_list& out) {
  const stream_ref stream{.team = team_.get()};
  for (std::int32_t i = 0; i < runs; ++i) {
    const auto ids = ids_.draw(width);
    const session_row row{0, context_ + i * width, ids};
    const auto begin = work_meter::now_ns();
    DI_TRY_VOID(session.run(stream, {&row, 1}));
    const auto logits = session.logits(stream);
    out.add(seconds_since(begin));
  }
  return {};
}

result<void> latency_parts::time_passes(sample_list& out) {
  const stream_ref stream{.team = team_.get()};
  const std::int32_t slot = 0;
  // Behind what the steps wrote, so that every pass reads as much.
  const auto position = context_ + runs * (1 + drafts_) - 1;
  for (std::int32_t i = 0; i < runs; ++i) {
    const auto anchor = ids_.draw(1);
    const auto begin = work_meter::now_ns();
    DI_TRY(const auto made, drafting_->draft(stream, {&slot, 1}, {&position, 1}, anchor, drafts_));
    out.add(seconds_since(begin));
  }
  return {};
}

}  // namespace deepinfer
