#include "runtime/model/step_program.hpp"

#include <algorithm>
#include <utility>

#include "kernels/step/advance_slots.hpp"
#include "kernels/step/append_blocks.hpp"
#include "kernels/step/fix_rows.hpp"
#include "kernels/step/start_slots.hpp"
#include "kernels/step/store_tokens.hpp"

namespace deepinfer {

namespace {

static_assert(from_fresh == kernels::row_from_fresh && from_slot == kernels::row_from_slot);

forward_limits limits_of(const kv_layout& layout, const runner_config& config) {
  forward_limits limits;
  limits.tokens = config.max_num_batched_tokens;
  limits.positions = std::int64_t{layout.table_stride} * layout.block_size;
  return limits;
}

}  // namespace

step_outputs::step_outputs(const runner_config& config, std::int32_t best_max)
  : ids(config.max_num_seqs),
    status(config.max_num_seqs),
    best_counts(config.max_num_seqs),
    chosen_logprobs(config.max_num_seqs),
    best_ids(std::int64_t{config.max_num_seqs} * best_max),
    best_logprobs(std::int64_t{config.max_num_seqs} * best_max) {}

step_device_state::step_device_state(std::shared_ptr<const model_weights> weights, kv_layout layout,
                                     const runner_config& sizes)
  : config(sizes),
    best_max(std::min(max_logprobs, weights->config.vocab_size)),
    kv(std::move(layout)),
    model(std::move(weights), limits_of(kv.layout, config), config.numeric, config.kernels,
          config.num_drafts > 0),
    sampling(config.state_slots),
    next_position(config.max_num_seqs),
    yield_position(config.max_num_seqs),
    token_id(config.max_num_batched_tokens),
    token_slot(config.max_num_batched_tokens),
    token_position(config.max_num_batched_tokens),
    row_token(config.max_num_batched_tokens),
    row_first(config.max_num_batched_tokens),
    logits(std::int64_t{config.max_num_seqs} * model.config().vocab_size) {}

step_program::step_program(step_device_state& shared, const runner_config& config)
  : shared_(shared),
    inputs_(config),
    made_(config, shared.best_max),
    copied_(config, shared.best_max),
    sampled_(std::make_shared<lazy_array<std::int32_t>>(config.max_num_seqs)) {}

void step_program::stage(std::shared_ptr<const step_plan> plan, sampled_column before) {
  plan_ = std::move(plan);
  before_ = std::move(before);
  step_ = plan_->step;
  status_ = {};
  inputs_.fill(*plan_);
  DI_CHECK(inputs_.tokens <= shared_.config.max_num_batched_tokens,
           "step {} has {} tokens, room for {}", step_.value, inputs_.tokens,
           shared_.config.max_num_batched_tokens);
  const auto& layout = shared_.kv.layout;
  DI_CHECK(inputs_.position_limit <= std::int64_t{layout.table_stride} * layout.block_size,
           "step {} reaches position {}, block tables hold {}", step_.value, inputs_.position_limit,
           std::int64_t{layout.table_stride} * layout.block_size);
}

void step_program::forget() {
  plan_.reset();
  before_.reset();
}

device_status step_program::run(step_phase phase, const stream_ref& given) {
  auto stream = given;
  if (stream.meter && stream.meter->decode && plan_->kind == step_kind::decode)
    stream.meter = stream.meter->decode;
  if (stream.meter) stream.meter->enter(phase == step_phase::sample ? "sampling" : "fix-up");
  switch (phase) {
  case step_phase::copy_in: inputs_.copy_in(); break;
  case step_phase::forward: forward(stream); break;
  case step_phase::sample: sample(stream); break;
  case step_phase::copy_out: return copy_out();
  }
  return {};
}

void step_program::fix_up(const stream_ref& stream) {
  auto& kv = shared_.kv;
  const auto stride = kv.layout.table_stride;
  kernels::start_slots_ref(stream, {inputs_.start_slot.device(), inputs_.start_sampling.device(),
                                    inputs_.start_slot.size(), kv.length.data(), kv.newest.data(),
                                    shared_.sampling.data(), kv.tables.data(), stride});
  kernels::append_blocks_ref(stream, {inputs_.slot.device(), inputs_.table_begin.device(),
                                      inputs_.block_begin.device(), inputs_.blocks.device(),
                                      inputs_.rows, kv.tables.data(), stride});
  kernels::fix_rows_args fix;
  fix.source = inputs_.source.device();
  fix.slot = inputs_.slot.device();
  fix.planned = inputs_.planned.device();
  fix.token_begin = inputs_.token_begin.device();
  fix.fresh_begin = inputs_.fresh_begin.device();
  fix.fresh = inputs_.fresh.device();
  fix.sampled = before_ ? before_->data() : nullptr;
  fix.length = kv.length.data();
  fix.newest = kv.newest.data();
  fix.rows = inputs_.rows;
  fix.yield_row = inputs_.yield_row.device();
  fix.yields = inputs_.yields;
  fix.next_position = shared_.next_position.data();
  fix.token_id = shared_.token_id.data();
  fix.token_slot = shared_.token_slot.data();
  fix.token_position = shared_.token_position.data();
  fix.row_token = shared_.row_token.data();
  fix.row_first = shared_.row_first.data();
  fix.yield_position = shared_.yield_position.data();
  kernels::fix_rows_ref(stream, fix);
  kernels::store_tokens_ref(stream,
                            {fix.token_id, fix.token_slot, fix.token_position, inputs_.tokens,
                             kv.tables.data(), stride, kv.layout.block_size, kv.tokens.data()});
}

void step_program::forward(const stream_ref& stream) {
  fix_up(stream);
  auto& kv = shared_.kv;
  step_tokens step;
  step.batch.tokens = inputs_.tokens;
  step.batch.slot = shared_.token_slot.data();
  step.batch.position = shared_.token_position.data();
  step.batch.row_first_token = shared_.row_token.data();
  step.batch.row_first_position = shared_.row_first.data();
  step.batch.block_table = kv.tables.data();
  step.batch.max_blocks = kv.layout.table_stride;
  step.batch.block_size = kv.layout.block_size;
  step.token_id = shared_.token_id.data();
  step.position_limit = inputs_.position_limit;
  shared_.model.forward(stream, step, kv);
  shared_.model.logits(stream, inputs_.yield_token.device(), inputs_.yields, kv,
                       shared_.logits.data());
}

void step_program::sample(const stream_ref& stream) {
  auto& kv = shared_.kv;
  const auto vocab = shared_.model.config().vocab_size;
  const auto threads = stream.team ? stream.team->threads() : 1;
  if (shared_.scratch_threads != threads) {  // the first step on this team
    shared_.scratch = lazy_array<std::byte>(
      static_cast<std::int64_t>(kernels::sample_rows_scratch_bytes(vocab, threads)));
    shared_.scratch_threads = threads;
  }
  kernels::sample_rows_args args;
  args.logits = shared_.logits.data();
  args.logits_stride = vocab;
  args.slots = inputs_.yield_slot.device();
  args.positions = shared_.yield_position.data();
  args.sampling = shared_.sampling.data();
  args.history = kv.tokens.data();
  args.tables = kv.tables.data();
  args.table_stride = kv.layout.table_stride;
  args.block_size = kv.layout.block_size;
  args.rows = inputs_.yields;
  args.vocab = vocab;
  args.ids = made_.ids.data();
  args.status = made_.status.data();
  args.best_max = shared_.best_max;
  args.best_counts = made_.best_counts.data();
  args.chosen_logprobs = made_.chosen_logprobs.data();
  args.best_ids = made_.best_ids.data();
  args.best_logprobs = made_.best_logprobs.data();
  args.scratch = shared_.scratch.data();
  shared_.model.ops().sample_rows(stream, args);
  kernels::advance_slots_ref(stream,
                             {inputs_.slot.device(), shared_.next_position.data(), inputs_.rows,
                              inputs_.yield_row.device(), made_.ids.data(), inputs_.yields,
                              sampled_->data(), kv.length.data(), kv.newest.data()});
}

device_status step_program::copy_out() {
  const std::int64_t yields = inputs_.yields, best = yields * shared_.best_max;
  const auto copy = [](const auto& from, auto& to, std::int64_t count) {
    std::copy_n(from.data(), count, to.data());
  };
  copy(made_.ids, copied_.ids, yields);
  copy(made_.status, copied_.status, yields);
  copy(made_.best_counts, copied_.best_counts, yields);
  copy(made_.chosen_logprobs, copied_.chosen_logprobs, yields);
  copy(made_.best_ids, copied_.best_ids, best);
  copy(made_.best_logprobs, copied_.best_logprobs, best);
  const auto* status = copied_.status.data();
  const bool all_ok = std::all_of(status, status + yields, [](kernels::sample_status it) {
    return it == kernels::sample_status::ok;
  });
  if (!all_ok) status_ = {errc::device_failed, false, "the logits of a row are not finite"};
  return status_;
}

void step_program::collect(step_result& out) const {
  out.clear();
  out.step = step_;
  out.code = status_.code;
  out.sequences = plan_->sequences;
  out.epochs = plan_->epochs;
  out.token_begin.clear();
  out.token_begin.push_back(0);
  const auto yields = status_.code == errc::ok ? inputs_.yields : 0;
  const auto* counts = copied_.best_counts.data();
  const bool has_logprobs = std::any_of(counts, counts + yields, [](auto it) { return it >= 0; });
  std::int32_t yield = 0;
  for (std::int32_t row = 0; row < plan_->rows(); ++row) {
    if (yield < yields && plan_->yields_max[static_cast<std::size_t>(row)] > 0) {
      out.tokens.push_back(copied_.ids[yield]);
      if (has_logprobs) {
        auto& entry = out.logprobs.emplace_back();
        if (counts[yield] >= 0) {
          const auto first = std::int64_t{yield} * shared_.best_max;
          entry.ids.push_back(copied_.ids[yield]);
          entry.logprobs.push_back(copied_.chosen_logprobs[yield]);
          for (std::int32_t i = 0; i < counts[yield]; ++i) {
            entry.ids.push_back(copied_.best_ids[first + i]);
            entry.logprobs.push_back(copied_.best_logprobs[first + i]);
          }
        }
      }
      ++yield;
    }
    out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
  }
}

}  // namespace deepinfer
