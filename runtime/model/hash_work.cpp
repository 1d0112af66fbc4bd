#include "runtime/model/hash_work.hpp"

#include <fmt/core.h>

#include <bit>
#include <utility>

#include "runtime/model/hash_program.hpp"

namespace deepinfer {

namespace {

class summer {
public:
  void add(std::uint64_t value) { sum_ = hash_mix(sum_ ^ value) + 1; }
  template <class T>
  void add_all(const std::vector<T>& values) {
    add(values.size());
    for (const auto& value : values) add_one(value);
  }
  std::uint64_t value() const { return sum_; }

private:
  void add_one(std::int32_t value) { add(static_cast<std::uint64_t>(value)); }
  void add_one(std::uint32_t value) { add(value); }
  void add_one(std::uint64_t value) { add(value); }
  void add_one(std::uint8_t value) { add(value); }
  void add_one(float value) { add(std::bit_cast<std::uint32_t>(value)); }
  void add_one(row_kind value) { add(static_cast<std::uint64_t>(value)); }
  void add_one(seq_id id) { add(id.value); }
  void add_one(slot_id id) { add(static_cast<std::uint64_t>(id.value)); }
  void add_one(block_id id) { add(static_cast<std::uint64_t>(id.value)); }
  void add_one(const block_move& move) {
    add_one(move.block);
    add_one(move.host);
    add(move.to_host ? 1 : 0);
  }
  void add_one(const hash_start& start) {
    add_one(start.slot);
    add_one(start.sequence);
    add_one(start.epoch);
    add_one(start.outputs);
    add_one(start.position);
    add(start.sampling.seed);
  }

  std::uint64_t sum_ = 0;
};

}  // namespace

std::uint64_t hash_arrays::checksum() const {
  summer sum;
  sum.add(before.value);
  sum.add_all(plan.sequences);
  sum.add_all(plan.epochs);
  sum.add_all(plan.slots);
  sum.add_all(plan.kinds);
  for (const auto* column : {&plan.sources, &plan.widths, &plan.positions, &plan.yields_max,
                             &plan.token_begin, &plan.table_begin, &plan.block_begin})
    sum.add_all(*column);
  sum.add_all(plan.tokens);
  sum.add_all(plan.blocks);
  sum.add_all(plan.gated);
  sum.add_all(plan.moves);
  sum.add(static_cast<std::uint64_t>(plan.total_width));
  sum.add_all(starts);
  return sum.value();
}

void hash_outputs::clear(std::size_t rows, std::int32_t drafts_per_row) {
  stride = 1 + drafts_per_row;
  const auto draft_entries = rows * static_cast<std::size_t>(drafts_per_row);
  const auto token_entries = rows + draft_entries;
  given.assign(rows, 0);
  tokens.assign(token_entries, -1);
  chains.assign(token_entries, 0);
  asked.assign(rows, 0);
  widths.assign(rows, 0);
  drafts.assign(draft_entries, -1);
  confidences.assign(draft_entries, 0.0f);
  has_confidences = 0;
}

std::uint64_t hash_outputs::checksum() const {
  summer sum;
  sum.add_all(given);
  sum.add_all(tokens);
  sum.add_all(chains);
  sum.add_all(asked);
  sum.add_all(widths);
  sum.add_all(drafts);
  sum.add_all(confidences);
  return sum.value();
}

void hash_work::open(std::shared_ptr<const step_plan> next) {
  step_ = next->step;
  plan = std::move(next);
  is_free = false;
  masks.reset();
  is_prepared = false;
  is_complete = false;
  phases_run_ = 0;
  has_reported_ = false;
  suspicion_.clear();
  is_suspected_ = false;
}

void hash_work::suspect(std::string text) {
  if (is_suspected_) return;  // one is enough
  suspicion_ = std::move(text);
  is_suspected_ = true;
}

void hash_work::report_suspicion() {
  if (has_reported_ || !is_suspected_) return;
  has_reported_ = true;
  program_->canary().add("reused_before_fence", suspicion_);
}

// Each phase once and in order; sample_gated only of a gated step.
bool hash_work::is_next(step_phase phase) {
  auto turn = static_cast<std::int32_t>(phase);
  if (phase == step_phase::copy_out && !is_gated()) --turn;
  const bool is_right = phases_run_ == turn && (phase != step_phase::sample_gated || is_gated());
  if (!is_right)
    program_->canary().add(
      "event_generation_mixed",
      fmt::format("step {}: phase {} runs after {} phases of this life of its ring slot",
                  step_.value, static_cast<int>(phase), phases_run_));
  return is_right;
}

void hash_work::begin(step_phase phase) {
  if (phase != step_phase::forward || phases_run_ != static_cast<std::int32_t>(phase)) return;
  report_suspicion();
  program_->prepare(*this);
  program_->read_prefixes(*this);
  is_prepared = true;
}

device_status hash_work::run(step_phase phase, const stream_ref&) {
  report_suspicion();
  if (!is_next(phase)) return {};
  ++phases_run_;
  switch (phase) {
  case step_phase::copy_in:
    on_device = staged;
    if (on_device.checksum() != staged_sum)
      program_->canary().add("staging_overwritten",
                             fmt::format("step {}: not what was staged", step_.value));
    break;
  case step_phase::forward: program_->forward(*this); break;
  case step_phase::sample: program_->sample(*this); break;
  case step_phase::sample_gated: program_->sample_gated(*this); break;
  case step_phase::copy_out:
    returned = outputs;
    if (returned.checksum() != outputs_sum)
      program_->canary().add("output_overwritten",
                             fmt::format("step {}: not what was sampled", step_.value));
    is_complete = true;
    break;
  }
  return {};
}

}  // namespace deepinfer
