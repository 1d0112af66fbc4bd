#include "runtime/model/step_program.hpp"

#include <algorithm>
#include <utility>

#include "kernels/step/append_blocks.hpp"
#include "kernels/step/fix_rows.hpp"
#include "kernels/step/list_queries.hpp"
#include "kernels/step/split_width.hpp"
#include "kernels/step/start_late.hpp"
#include "kernels/step/start_slots.hpp"
#include "kernels/step/store_tokens.hpp"
#include "runtime/model/resume_point.hpp"

namespace deepinfer {

static_assert(from_fresh == kernels::row_from_fresh && from_slot == kernels::row_from_slot);

namespace {

row_error error_of(kernels::sample_status status) {
  switch (status) {
  case kernels::sample_status::ok: return row_error::none;
  case kernels::sample_status::bad_logits: return row_error::bad_logits;
  case kernels::sample_status::no_candidate: return row_error::no_candidate;
  case kernels::sample_status::bad_history: return row_error::bad_history;
  }
  return row_error::bad_logits;
}

}  // namespace

step_program::step_program(step_device_state& shared)
  : shared_(shared),
    inputs_(shared.config),
    silent_(shared.limits()),
    plain_(shared.limits()),
    gated_(shared.limits()),
    after_(std::make_shared<row_columns>(shared.config.max_num_seqs, shared.config.num_drafts)),
    row_begin_(shared.config.max_num_seqs + 1),
    first_position_(shared.config.max_num_seqs),
    masks_(shared.limits().queries),
    mask_of_(shared.config.max_num_seqs),
    widths_(shared.config.max_num_seqs + 1),
    drafts_(std::int64_t{shared.config.max_num_seqs} * shared.config.num_drafts),
    confidences_(std::int64_t{shared.config.max_num_seqs} * shared.config.num_drafts) {}

void step_program::stage(std::shared_ptr<const step_plan> plan,
                         std::shared_ptr<row_columns> before) {
  plan_ = std::move(plan);
  before_ = std::move(before);
  gate_.reset();
  step_ = plan_->step;
  is_gated_ = plan_->is_gated();
  inputs_.fill(*plan_);
  DI_CHECK(inputs_.tokens <= shared_.config.max_num_batched_tokens,
           "step {} has {} tokens, room for {}", step_.value, inputs_.tokens,
           shared_.config.max_num_batched_tokens);
  const auto& layout = shared_.kv.layout;
  DI_CHECK(inputs_.position_limit <= std::int64_t{layout.table_stride} * layout.block_size,
           "step {} reaches position {}, block tables hold {}", step_.value, inputs_.position_limit,
           std::int64_t{layout.table_stride} * layout.block_size);
  group_rows();
}

void step_program::group_rows() {
  for (auto* group : {&silent_, &plain_, &gated_}) group->clear();
  for (std::int32_t row = 0; row < inputs_.rows; ++row) {
    const auto i = static_cast<std::size_t>(row);
    DI_CHECK(plan_->sources[i] < 0 || before_, "row {} is carried from row {} of no step", row,
             plan_->sources[i]);
    if (plan_->yields_max[i] == 0)
      silent_.put(row, kernels::row_asks::nothing, 0);
    else
      (i < plan_->gated.size() && plan_->gated[i] != 0 ? gated_ : plain_)
        .put(row,
             plan_->kinds[i] == row_kind::decode ? kernels::row_asks::all_tokens
                                                 : kernels::row_asks::last_token,
             plan_->widths[i]);
  }
  for (auto* group : {&plain_, &gated_}) {
    group->queries = std::min(group->queries, inputs_.tokens);
    DI_CHECK(group->queries <= group->limits.queries, "step {} has {} queries, room for {}",
             step_.value, group->queries, group->limits.queries);
  }
  if (gated_.queries > 0 && gated_logits_.size() == 0)  // the first gated step of this ring slot
    gated_logits_ =
      lazy_array<float>(std::int64_t{gated_.limits.queries} * shared_.model.config().vocab_size);
}

void step_program::set_masks(std::shared_ptr<const sample_gate> masks) {
  DI_CHECK(plan_ && is_gated_ && masks->step == step_, "masks of step {} for step {}",
           masks->step.value, step_.value);
  const auto& gate = *masks;
  const auto words = (shared_.model.config().vocab_size + 31) / 32;
  DI_CHECK(gate.words == words && gate.mask_begin.size() == gate.rows.size() + 1 &&
             std::ssize(gate.masks) == std::int64_t{gate.mask_begin.back()} * words,
           "{} words of {} masks of {} each, expected {} each", gate.masks.size(),
           gate.mask_begin.empty() ? 0 : gate.mask_begin.back(), gate.words, words);
  for (std::int32_t i = 0; i < gated_.rows(); ++i) {
    const auto row = gated_.row.host()[i];
    const auto found = std::find(gate.rows.begin(), gate.rows.end(), row) - gate.rows.begin();
    DI_CHECK(found < std::ssize(gate.rows), "row {} of step {} got no mask", row, step_.value);
    const auto at = static_cast<std::size_t>(found);
    const auto wanted = gated_.asks.host()[i] == kernels::row_asks::all_tokens
                          ? plan_->widths[static_cast<std::size_t>(row)]
                          : 1;
    const auto count = gate.mask_begin[at + 1] - gate.mask_begin[at];
    DI_CHECK(count == wanted, "row {} got {} masks, expected {}", row, count, wanted);
    mask_of_[i] = gate.mask_begin[at];
  }
  gate_ = std::move(masks);
}

void step_program::forget() {
  plan_.reset();
  before_.reset();
  gate_.reset();
}

device_status step_program::run(step_phase phase, const stream_ref& given) {
  auto stream = given;
  if (stream.meter && stream.meter->decode && plan_->kind == step_kind::decode)
    stream.meter = stream.meter->decode;
  const bool samples = phase == step_phase::sample || phase == step_phase::sample_gated;
  if (stream.meter) stream.meter->enter(samples ? "sampling" : "fix-up");
  switch (phase) {
  case step_phase::copy_in:
    inputs_.copy_in();
    for (auto* group : {&silent_, &plain_, &gated_}) group->copy_in();
    break;
  case step_phase::forward: forward(stream); break;
  case step_phase::sample:
    sample_group(stream, shared_, rows(), silent_, nullptr, nullptr);
    sample_group(stream, shared_, rows(), plain_, shared_.logits.data(), nullptr);
    break;
  case step_phase::sample_gated:
    point_at_masks();
    sample_group(stream, shared_, rows(), gated_, gated_logits_.data(), masks_.data());
    break;
  case step_phase::copy_out: copy_out(); break;
  }
  return {};
}

step_rows step_program::rows() {
  return {inputs_.slot.device(), row_begin_.data(), first_position_.data(), after_->view()};
}

void step_program::open_slots(const stream_ref& stream) {
  auto& kv = shared_.kv;
  const auto stride = kv.layout.table_stride;
  move_blocks(stream, kv, inputs_.moves.device(), inputs_.moves.size());
  kernels::start_slots_ref(stream,
                           {inputs_.start_slot.device(), inputs_.start_position.device(),
                            inputs_.start_sampling.device(), inputs_.start_slot.size(),
                            shared_.slots(), shared_.sampling.data(), kv.tables.data(), stride});
  kernels::append_blocks_ref(stream, {inputs_.slot.device(), inputs_.table_begin.device(),
                                      inputs_.block_begin.device(), inputs_.blocks.device(),
                                      inputs_.rows, kv.tables.data(), stride});
  kernels::start_late_ref(stream, {inputs_.start_slot.device(), inputs_.start_late.device(),
                                   inputs_.start_late.size(), kv.late_begin.data()});
  load_resume_rows(stream, kv, inputs_.start_slot.device(), inputs_.start_position.device(),
                   inputs_.start_slot.size());
}

void step_program::fix_up(const stream_ref& stream) {
  const auto before = before_ ? before_->view() : kernels::carried_view{};
  kernels::split_width_ref(stream,
                           {inputs_.source.device(), inputs_.slot.device(), inputs_.width.device(),
                            inputs_.rows, inputs_.tokens, before, shared_.slots(),
                            shared_.survival.data(), shared_.heap.data(), row_begin_.data()});
  kernels::fix_rows_args fix;
  fix.source = inputs_.source.device();
  fix.slot = inputs_.slot.device();
  fix.planned = inputs_.planned.device();
  fix.row_begin = row_begin_.data();
  fix.fresh_begin = inputs_.fresh_begin.device();
  fix.fresh = inputs_.fresh.device();
  fix.before = before;
  fix.slots = shared_.slots();
  fix.rows = inputs_.rows;
  fix.tokens = inputs_.tokens;
  fix.first_position = first_position_.data();
  fix.token_id = shared_.token_id.data();
  fix.token_slot = shared_.token_slot.data();
  fix.token_position = shared_.token_position.data();
  fix.row_token = shared_.row_token.data();
  fix.row_first = shared_.row_first.data();
  kernels::fix_rows_ref(stream, fix);
  auto& kv = shared_.kv;
  kernels::store_tokens_ref(stream, {fix.token_id, fix.token_slot, fix.token_position,
                                     inputs_.tokens, kv.tables.data(), kv.layout.table_stride,
                                     kv.layout.block_size, kv.tokens.data()});
  for (auto* group : {&silent_, &plain_, &gated_}) list_queries(stream, *group);
}

void step_program::list_queries(const stream_ref& stream, row_group& group) {
  kernels::list_queries_args list;
  list.row = group.row.device();
  list.asks = group.asks.device();
  list.rows = group.rows();
  list.queries = group.queries;
  list.slot = inputs_.slot.device();
  list.row_begin = row_begin_.data();
  list.first_position = first_position_.data();
  list.token_id = shared_.token_id.data();
  list.query_begin = group.made.query_begin.data();
  list.token = group.token.data();
  list.query_slot = group.slot.data();
  list.position = group.position.data();
  list.draft = group.draft.data();
  kernels::list_queries_ref(stream, list);
}

void step_program::forward(const stream_ref& stream) {
  open_slots(stream);
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
  step.kept_tokens = inputs_.kept_tokens;
  shared_.model.forward(stream, step, kv);
  shared_.model.logits(stream, plain_.token.data(), plain_.queries, kv, shared_.logits.data());
  shared_.model.logits(stream, gated_.token.data(), gated_.queries, kv, gated_logits_.data());
}

void step_program::point_at_masks() {
  DI_CHECK(gated_.rows() == 0 || gate_, "step {} has no masks", step_.value);
  const auto* begin = gated_.made.query_begin.data();
  std::fill_n(masks_.data(), gated_.queries, nullptr);
  for (std::int32_t i = 0; i < gated_.rows(); ++i)
    for (auto q = begin[i]; q < begin[i + 1]; ++q)
      masks_[q] =
        gate_->masks.data() + std::int64_t{mask_of_[i] + q - begin[i]} * std::int64_t{gate_->words};
}

void step_program::copy_out() {
  for (auto* group : {&silent_, &plain_, &gated_}) group->copy_out();
  std::copy_n(row_begin_.data(), inputs_.rows + 1, widths_.data());
  if (shared_.drafts) {
    const auto drafts = std::int64_t{inputs_.rows} * shared_.config.num_drafts;
    std::copy_n(after_->carried.drafts.data(), drafts, drafts_.data());
    std::copy_n(after_->carried.confidence.data(), drafts, confidences_.data());
  }
}

// What was chosen behind a rejected draft means nothing, its status included: only what the row
// gives is looked at. A query that failed is the last of these, so what is before it is sound.
row_error step_program::collect_row(const row_group& group, std::int32_t i, bool has_logprobs,
                                    step_result& out) const {
  const auto& from = group.copied;
  const auto begin = from.query_begin[i];
  for (auto q = begin; q < begin + from.given[i]; ++q) {
    if (const auto error = error_of(from.status[q]); error != row_error::none) return error;
    out.tokens.push_back(from.ids[q]);
    if (!has_logprobs) continue;
    auto& entry = out.logprobs.emplace_back();
    if (from.best_counts[q] < 0) continue;
    const auto first = std::int64_t{q} * group.limits.best;
    entry.ids.push_back(from.ids[q]);
    entry.logprobs.push_back(from.chosen_logprobs[q]);
    for (std::int32_t k = 0; k < from.best_counts[q]; ++k) {
      entry.ids.push_back(from.best_ids[first + k]);
      entry.logprobs.push_back(from.best_logprobs[first + k]);
    }
  }
  return row_error::none;
}

void step_program::collect(step_result& out) const {
  out.clear();
  out.step = step_;
  out.sequences = plan_->sequences;
  out.epochs = plan_->epochs;
  bool has_logprobs = false;
  for (const auto* group : {&plain_, &gated_})
    for (std::int32_t q = 0; q < group->queries; ++q)
      has_logprobs = has_logprobs || group->copied.best_counts[q] >= 0;
  // Each group lists its rows in the step's order.
  std::int32_t plain = 0, gated = 0;
  const auto is_next = [](const row_group& group, std::int32_t i, std::int32_t row) {
    return i < group.rows() && group.row.host()[i] == row;
  };
  out.token_begin.assign(1, 0);
  for (std::int32_t row = 0; row < inputs_.rows; ++row) {
    auto error = row_error::none;
    if (is_next(plain_, plain, row)) error = collect_row(plain_, plain++, has_logprobs, out);
    if (is_next(gated_, gated, row)) error = collect_row(gated_, gated++, has_logprobs, out);
    if (error != row_error::none) {
      out.row_errors.resize(static_cast<std::size_t>(inputs_.rows), row_error::none);
      out.row_errors[static_cast<std::size_t>(row)] = error;
    }
    out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
    out.widths.push_back(widths_[row + 1] - widths_[row]);
  }
  if (!shared_.drafts) return;
  const auto drafts = std::int64_t{inputs_.rows} * shared_.config.num_drafts;
  out.drafts_per_row = shared_.config.num_drafts;
  out.drafts.assign(drafts_.data(), drafts_.data() + drafts);
  if (shared_.drafts->has_confidences())
    out.confidences.assign(confidences_.data(), confidences_.data() + drafts);
}

}  // namespace deepinfer
