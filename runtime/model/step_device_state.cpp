#include "runtime/model/step_device_state.hpp"

#include <algorithm>
#include <utility>

#include "kernels/sampling/filter_row.hpp"
#include "kernels/sampling/reject_drafts.hpp"
#include "kernels/sampling/sample_rows.hpp"
#include "kernels/sampling/verify_rows.hpp"
#include "kernels/step/advance_slots.hpp"
#include "kernels/step/store_drafts.hpp"

namespace deepinfer {

namespace {

forward_limits limits_of(const kv_layout& layout, const runner_config& config) {
  forward_limits limits;
  limits.tokens = config.max_num_batched_tokens;
  limits.positions = std::int64_t{layout.table_stride} * layout.block_size;
  return limits;
}

std::int32_t most_queries(const runner_config& config) {
  const auto decode = std::int64_t{config.max_num_seqs} * (1 + config.num_drafts);
  return static_cast<std::int32_t>(std::min<std::int64_t>(config.max_num_batched_tokens, decode));
}

void choose_ids(const stream_ref& stream, step_device_state& shared, row_group& group,
                const float* logits, const std::uint32_t* const* masks) {
  auto& kv = shared.kv;
  auto& made = group.made;
  const auto vocab = shared.model.config().vocab_size;
  kernels::sample_rows_args args;
  args.logits = logits;
  args.logits_stride = vocab;
  args.slots = group.slot.data();
  args.positions = group.position.data();
  args.sampling = shared.sampling.data();
  args.history = kv.tokens.data();
  args.tables = kv.tables.data();
  args.table_stride = kv.layout.table_stride;
  args.block_size = kv.layout.block_size;
  args.masks = masks;
  args.rows = group.queries;
  args.vocab = vocab;
  args.ids = made.ids.data();
  args.status = made.status.data();
  args.best_max = group.limits.best;
  args.best_counts = made.best_counts.data();
  args.chosen_logprobs = made.chosen_logprobs.data();
  args.best_ids = made.best_ids.data();
  args.best_logprobs = made.best_logprobs.data();
  args.scratch = shared.sample_scratch.of(stream, kernels::sample_rows_scratch_bytes(vocab, 1));
  shared.model.ops().sample_rows(stream, args);
}

/// The rejection rule's part: drafts that it accepts become the ids of their queries.
void reject(const stream_ref& stream, step_device_state& shared, row_group& group,
            const float* logits, const std::uint32_t* const* masks) {
  auto& kv = shared.kv;
  auto& made = group.made;
  const auto vocab = shared.model.config().vocab_size;
  kernels::reject_drafts_args args;
  args.logits = logits;
  args.logits_stride = vocab;
  args.query_begin = made.query_begin.data();
  args.slot = group.slot.data();
  args.position = group.position.data();
  args.draft = group.draft.data();
  args.sampling = shared.sampling.data();
  args.draft_probs = shared.drafts ? shared.drafts->probs() : nullptr;
  args.drafts_max = shared.config.num_drafts;
  args.history = kv.tokens.data();
  args.tables = kv.tables.data();
  args.table_stride = kv.layout.table_stride;
  args.block_size = kv.layout.block_size;
  args.masks = masks;
  args.rows = group.rows();
  args.vocab = vocab;
  args.status = made.status.data();
  args.id = made.ids.data();
  args.best_counts = made.best_counts.data();
  args.chosen_logprobs = made.chosen_logprobs.data();
  args.scratch = shared.reject_scratch.of(stream, kernels::filter_scratch_bytes(vocab));
  kernels::reject_drafts_ref(stream, args);
}

void advance(const stream_ref& stream, step_device_state& shared, const step_rows& rows,
             row_group& group) {
  auto& made = group.made;
  kernels::advance_slots_args args;
  args.row = group.row.device();
  args.rows = group.rows();
  args.slot = rows.slot;
  args.row_begin = rows.row_begin;
  args.first_position = rows.first_position;
  args.query_begin = made.query_begin.data();
  args.position = group.position.data();
  args.id = made.ids.data();
  args.given = made.given.data();
  args.is_alive = group.is_alive.data();
  args.after = rows.after;
  args.slots = shared.slots();
  args.draft_slot = group.draft_slot.data();
  args.draft_position = group.draft_position.data();
  args.anchor = group.anchor.data();
  kernels::advance_slots_ref(stream, args);
}

void draft(const stream_ref& stream, step_device_state& shared, const step_rows& rows,
           row_group& group) {
  if (!shared.drafts) return;
  if (group.queries > 0) {
    draft_rows wanted;
    wanted.count = group.rows();
    wanted.drafts = shared.config.num_drafts;
    wanted.slot = group.draft_slot.data();
    wanted.position = group.draft_position.data();
    wanted.anchor = group.anchor.data();
    wanted.sampling = shared.sampling.data();
    wanted.ids = shared.draft_ids.data();
    wanted.confidence = shared.draft_confidence.data();
    shared.drafts->draft(stream, wanted);
  }
  kernels::store_drafts_args args;
  args.row = group.row.device();
  args.slot = group.draft_slot.data();
  args.rows = group.rows();
  args.vocab = shared.model.config().vocab_size;
  args.id = shared.draft_ids.data();
  args.confidence = shared.drafts->has_confidences() ? shared.draft_confidence.data() : nullptr;
  args.after = rows.after;
  args.slots = shared.slots();
  kernels::store_drafts_ref(stream, args);
}

}  // namespace

step_device_state::step_device_state(std::shared_ptr<const model_weights> weights, kv_layout layout,
                                     const runner_config& sizes)
  : config(sizes),
    kv(std::move(layout)),
    model(std::move(weights), limits_of(kv.layout, config), config.numeric, config.kernels,
          config.drafter == drafter_kind::dspark),
    drafts(make_drafter(config, model, kv)),
    carried(config.state_slots, config.num_drafts),
    sampling(config.state_slots),
    token_id(config.max_num_batched_tokens),
    token_slot(config.max_num_batched_tokens),
    token_position(config.max_num_batched_tokens),
    row_token(config.max_num_batched_tokens),
    row_first(config.max_num_batched_tokens),
    survival(config.max_num_seqs),
    heap(config.max_num_seqs),
    logits(std::int64_t{most_queries(config)} * model.config().vocab_size),
    draft_ids(std::int64_t{config.max_num_seqs} * config.num_drafts),
    draft_confidence(std::int64_t{config.max_num_seqs} * config.num_drafts) {}

group_limits step_device_state::limits() const {
  return {config.max_num_seqs, most_queries(config),
          std::min(max_logprobs, model.config().vocab_size)};
}

void sample_group(const stream_ref& stream, step_device_state& shared, const step_rows& rows,
                  row_group& group, const float* logits, const std::uint32_t* const* masks) {
  if (group.rows() == 0) return;
  choose_ids(stream, shared, group, logits, masks);
  if (shared.config.acceptance == acceptance_rule::rejection)
    reject(stream, shared, group, logits, masks);
  auto& made = group.made;
  kernels::verify_rows_ref(stream, {made.query_begin.data(), group.slot.data(),
                                    group.position.data(), group.draft.data(), made.ids.data(),
                                    shared.sampling.data(), group.rows(), shared.config.stop_mask,
                                    made.given.data(), group.is_alive.data()});
  advance(stream, shared, rows, group);
  draft(stream, shared, rows, group);
}

}  // namespace deepinfer
