#include "runtime/model/hash_runner.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

/// A step's arrays, once on the host and once on the device. Assignment keeps capacity.
struct step_arrays {
  step_id before;  ///< the step launched before this one
  std::vector<hash_runner::launched_row>
    recent;  ///< rows of the steps launched before, as many as may be in flight
  std::vector<seq_id> sequences;
  std::vector<std::uint32_t> epochs;
  std::vector<slot_id> slots;
  std::vector<std::int32_t> sources, widths, positions, yields, token_begin, table_begin,
    block_begin;
  std::vector<token_id> tokens;
  std::vector<block_id> blocks;
  std::vector<hash_start> starts;
};

class checksum {
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
  void add_one(seq_id id) { add(id.value); }
  void add_one(slot_id id) { add(static_cast<std::uint64_t>(id.value)); }
  void add_one(block_id id) { add(static_cast<std::uint64_t>(id.value)); }
  void add_one(const hash_start& start) {
    add_one(start.slot);
    add(start.sequence.value);
    add(start.epoch);
    add_one(start.position);
    add(start.sampling.seed);
  }

  std::uint64_t sum_ = 0;
};

std::uint64_t checksum_of(const step_arrays& arrays) {
  checksum sum;
  sum.add(arrays.before.value);
  sum.add_all(arrays.sequences);
  sum.add_all(arrays.epochs);
  sum.add_all(arrays.slots);
  for (const auto* column : {&arrays.sources, &arrays.widths, &arrays.positions, &arrays.yields,
                             &arrays.token_begin, &arrays.table_begin, &arrays.block_begin})
    sum.add_all(*column);
  sum.add_all(arrays.tokens);
  sum.add_all(arrays.blocks);
  sum.add_all(arrays.starts);
  return sum.value();
}

struct step_outputs {
  std::vector<token_id> tokens;       ///< [rows] -1 where the row gives none
  std::vector<std::uint64_t> chains;  ///< [rows] of the last position: the logprob
  std::vector<std::int32_t> asked;    ///< [rows] 1: the row wants logprobs
};

std::uint64_t checksum_of(const step_outputs& outputs) {
  checksum sum;
  sum.add_all(outputs.tokens);
  sum.add_all(outputs.chains);
  sum.add_all(outputs.asked);
  return sum.value();
}

}  // namespace

/// One slot of the staging ring: host arrays, their copy on the device, and the way back.
class hash_work final : public device_work {
public:
  explicit hash_work(hash_runner* runner) : runner_(runner) {}

  step_id step() const override { return step_; }
  device_status run(step_phase phase, const stream_ref& stream) override;

  hash_runner* runner_;
  step_id step_;
  std::shared_ptr<const step_plan> plan;
  bool is_free = true;  ///< host thread

  step_arrays staged;
  std::uint64_t staged_sum = 0;
  step_arrays on_device;
  std::vector<token_id> last_ids;  ///< device: newest id fed by each row; -1: the row is stale
  step_outputs outputs;
  std::uint64_t outputs_sum = 0;
  step_outputs returned;
  bool is_complete = false;
};

device_status hash_work::run(step_phase phase, const stream_ref&) {
  switch (phase) {
  case step_phase::copy_in:
    on_device = staged;
    if (checksum_of(on_device) != staged_sum)
      runner_->canary_.add("staging_overwritten",
                           fmt::format("step {}: not what was staged", step_.value));
    break;
  case step_phase::forward: runner_->run_forward(*this); break;
  case step_phase::sample: runner_->run_sample(*this); break;
  case step_phase::copy_out:
    returned = outputs;
    if (checksum_of(returned) != outputs_sum)
      runner_->canary_.add("output_overwritten",
                           fmt::format("step {}: not what was sampled", step_.value));
    is_complete = true;
    break;
  }
  return {};
}

hash_runner::hash_runner(const runner_config& config, const hash_model_config& model)
  : config_(config),
    model_(model),
    state_(config, model, &canary_) {
  DI_CHECK(config.num_drafts == 0, "the hash model decodes without drafts, not with {}",
           config.num_drafts);
}

hash_runner::~hash_runner() = default;

void hash_runner::register_script(seq_id sequence, hash_script script) {
  auto shared = std::make_shared<const hash_script>(std::move(script));
  const std::lock_guard lock(scripts_mutex_);
  scripts_[sequence] = std::move(shared);
}

std::shared_ptr<const hash_script> hash_runner::script_of(seq_id sequence) const {
  const std::lock_guard lock(scripts_mutex_);
  const auto found = scripts_.find(sequence);
  return found == scripts_.end() ? nullptr : found->second;
}

// A ring slot that has been collected is used again. One whose step was given up (its completion
// never came) may still be written to by the device, which then holds it: it is replaced, not
// reused.
std::shared_ptr<hash_work> hash_runner::free_work() {
  std::erase_if(ring_, [](const auto& work) { return !work->is_free && work.use_count() == 1; });
  for (const auto& work : ring_)
    if (work->is_free) return work;
  return ring_.emplace_back(std::make_shared<hash_work>(this));
}

void hash_runner::remember(const step_plan& plan) {
  const auto kept = static_cast<std::uint64_t>(config_.depth) + 1;
  std::erase_if(recent_, [&](const auto& row) { return row.step.value + kept <= plan.step.value; });
  for (std::size_t row = 0; row < plan.sequences.size(); ++row)
    recent_.push_back({plan.step, plan.slots[row], plan.sequences[row], plan.epochs[row]});
  last_staged_ = plan.step;
}

std::size_t hash_runner::unfinished() const {
  return static_cast<std::size_t>(
    std::count_if(ring_.begin(), ring_.end(), [](const auto& work) { return !work->is_free; }));
}

std::shared_ptr<device_work> hash_runner::stage(std::shared_ptr<const step_plan> plan) {
  const auto& p = *plan;
  DI_CHECK(p.step > last_staged_, "step {} after step {}", p.step.value, last_staged_.value);
  auto work = free_work();
  work->is_free = false;
  work->is_complete = false;
  work->step_ = p.step;
  auto& to = work->staged;
  to.before = last_staged_;
  to.sequences = p.sequences;
  to.epochs = p.epochs;
  to.slots = p.slots;
  to.sources = p.sources;
  to.widths = p.widths;
  to.positions = p.positions;
  to.yields = p.yields_max;
  to.token_begin = p.token_begin;
  to.tokens = p.tokens;
  to.table_begin = p.table_begin;
  to.block_begin = p.block_begin;
  to.blocks = p.blocks;
  to.starts.clear();
  std::int32_t width = 0;
  for (const auto row_width : p.widths) width += row_width;
  if (width > config_.max_num_batched_tokens)
    canary_.add("budget_exceeded", fmt::format("step {}: {} tokens, at most {}", p.step.value,
                                               width, config_.max_num_batched_tokens));
  for (const auto& start : p.starts) {
    const auto row = std::find(p.slots.begin(), p.slots.end(), start.slot) - p.slots.begin();
    DI_CHECK(row < std::ssize(p.slots), "step {} starts slot {} without a row", p.step.value,
             start.slot.value);
    to.starts.push_back({start.slot, start.sequence, start.epoch, start.prompt_tokens,
                         p.positions[static_cast<std::size_t>(row)],
                         hash_sampling::of(*start.params), script_of(start.sequence)});
  }
  to.recent.assign(recent_.begin(), recent_.end());
  remember(p);
  work->staged_sum = checksum_of(to);
  work->plan = std::move(plan);
  return work;
}

// Steps behind the newest sampled one, and before this, have failed: what was launched behind them
// for the same sequences starts from a hole, and nobody looks at it.
void hash_runner::mark_stale_rows(const hash_work& work) {
  for (const auto& row : work.on_device.recent) {
    if (row.step <= newest_.step || !state_.is_slot(row.slot)) continue;
    auto& slot = state_.slot(row.slot);
    slot.is_live = slot.is_stale = true;
    slot.sequence = row.sequence;  // whose start may be lost
    slot.epoch = row.epoch;
  }
}

// Whether the remap of the step is one: rows of the newest step, of equal sequence and epoch, each
// used once [I26].
void hash_runner::check_row_map(const hash_work& work) {
  const auto& in = work.on_device;
  std::vector<bool> is_used(newest_.tokens.size(), false);
  for (std::size_t row = 0; row < in.sources.size(); ++row) {
    const auto source = in.sources[row];
    if (source < 0 || newest_.step != in.before) continue;
    const auto from = static_cast<std::size_t>(source);
    const bool is_right = from < is_used.size() && !is_used[from] &&
                          newest_.sequences[from] == in.sequences[row] &&
                          newest_.epochs[from] == in.epochs[row] && newest_.tokens[from] >= 0;
    if (is_right)
      is_used[from] = true;
    else
      canary_.add(
        "row_map_broken",
        fmt::format("step {}, row {}, sequence {} epoch {}: its source is row {} of step {}",
                    work.step_.value, row, in.sequences[row].value, in.epochs[row], source,
                    newest_.step.value));
  }
}

void hash_runner::run_forward(hash_work& work) {
  const auto& in = work.on_device;
  mark_stale_rows(work);
  for (const auto& start : in.starts)
    if (state_.is_slot(start.slot)) state_.start(start);
  const auto rows = in.sequences.size();
  for (std::size_t row = 0; row < rows; ++row) {
    const auto begin = static_cast<std::size_t>(in.block_begin[row]);
    const auto end = static_cast<std::size_t>(in.block_begin[row + 1]);
    if (begin < end && state_.is_slot(in.slots[row]))
      state_.append_blocks(work.step_, in.slots[row], in.table_begin[row],
                           std::span(in.blocks).subspan(begin, end - begin));
  }
  check_row_map(work);
  work.last_ids.assign(rows, -1);
  work.outputs.chains.assign(rows, 0);
  for (std::size_t row = 0; row < rows; ++row)
    if (is_row_whole(work, row)) run_row(work, row);
}

// Whether slot, length and source of a row fit together. A stale row computes nothing.
bool hash_runner::is_row_whole(const hash_work& work, std::size_t row) {
  const auto& in = work.on_device;
  const auto where = [&] {
    return fmt::format("step {}, row {}, sequence {} epoch {}, slot {}", work.step_.value, row,
                       in.sequences[row].value, in.epochs[row], in.slots[row].value);
  };
  if (!state_.is_slot(in.slots[row])) {
    canary_.add("row_map_broken", where() + ": there is no such slot");
    return false;
  }
  auto& slot = state_.slot(in.slots[row]);
  if (!slot.is_live || slot.sequence != in.sequences[row] || slot.epoch != in.epochs[row]) {
    canary_.add("row_map_broken", fmt::format("{}: the slot holds sequence {} epoch {}", where(),
                                              slot.sequence.value, slot.epoch));
    return false;
  }
  if (slot.is_stale) return false;
  const auto source = in.sources[row];
  const bool has_id = source == from_fresh || slot.last_token >= 0;
  if (slot.length == in.positions[row] && has_id) return true;
  canary_.add("row_map_broken",
              fmt::format("{}: length {} on the device, first query at {}, source "
                          "{}, carried id {}",
                          where(), slot.length, in.positions[row], source, slot.last_token));
  return false;
}

void hash_runner::run_row(hash_work& work, std::size_t row) {
  const auto& in = work.on_device;
  auto& slot = state_.slot(in.slots[row]);
  const auto source = in.sources[row];
  const auto host = static_cast<std::size_t>(in.token_begin[row]);
  const auto host_ids = static_cast<std::size_t>(in.token_begin[row + 1]) - host;
  const auto width = static_cast<std::size_t>(in.widths[row]);
  if (host_ids != (source == from_fresh ? width : 0)) {
    canary_.add("row_map_broken", fmt::format("step {}, row {}: {} host ids, width {}, source {}",
                                              work.step_.value, row, host_ids, width, source));
    return;
  }
  token_id carried = slot.last_token;
  if (source >= 0 && static_cast<std::size_t>(source) < newest_.tokens.size()) {
    carried = newest_.tokens[static_cast<std::size_t>(source)];
    if (carried != slot.last_token)
      canary_.add("carry_split",
                  fmt::format("step {}, row {}: row {} of step {} gave {}, the slot {}",
                              work.step_.value, row, source, newest_.step.value, carried,
                              slot.last_token));
  }
  auto chain = state_.read_prefix(work.step_, in.slots[row], slot.length);
  for (std::size_t query = 0; query < width; ++query) {
    const auto id = source == from_fresh ? in.tokens[host + query] : carried;
    chain = state_.write(work.step_, in.slots[row], slot.length, id, chain);
    if (slot.length >= slot.prompt_tokens)
      slot.penalty_sum += hash_mix(static_cast<std::uint64_t>(id));
    ++slot.length;
    work.last_ids[row] = id;
  }
  work.outputs.chains[row] = chain;
}

void hash_runner::run_sample(hash_work& work) {
  const auto& in = work.on_device;
  const auto rows = in.sequences.size();
  work.outputs.tokens.assign(rows, -1);
  work.outputs.asked.assign(rows, 0);
  for (std::size_t row = 0; row < rows; ++row) {
    if (in.yields[row] == 0) continue;
    if (work.last_ids[row] < 0) {  // a stale row yields what nobody reads
      work.outputs.tokens[row] = hash_first_word;
      continue;
    }
    auto& slot = state_.slot(in.slots[row]);
    const auto output = slot.length - slot.prompt_tokens + 1;
    slot.last_token = hash_choice(model_, slot.sampling, slot.script.get(),
                                  work.outputs.chains[row], slot.length, output, slot.penalty_sum);
    work.outputs.tokens[row] = slot.last_token;
    work.outputs.asked[row] = slot.sampling.has_logprobs;
  }
  work.outputs_sum = checksum_of(work.outputs);
  newest_.step = work.step_;
  newest_.sequences = in.sequences;
  newest_.epochs = in.epochs;
  newest_.tokens = work.outputs.tokens;
}

void hash_runner::collect(const device_work& work, step_result& out) {
  const auto found =
    std::find_if(ring_.begin(), ring_.end(), [&](const auto& one) { return one.get() == &work; });
  DI_CHECK(found != ring_.end() && !(*found)->is_free,
           "step {} is not in the ring or was collected", work.step().value);
  auto& done = **found;
  const auto& plan = *done.plan;
  out.clear();
  out.step = done.step_;
  out.code = done.is_complete ? errc::ok : errc::device_failed;
  out.sequences = plan.sequences;
  out.epochs = plan.epochs;
  const auto& from = done.returned;
  const bool has_logprobs =
    done.is_complete && std::find(from.asked.begin(), from.asked.end(), 1) != from.asked.end();
  for (std::size_t row = 0; row < plan.sequences.size(); ++row) {
    if (done.is_complete && from.tokens[row] >= 0) {
      out.tokens.push_back(from.tokens[row]);
      if (has_logprobs) out.logprobs.emplace_back();
      if (from.asked[row] != 0)
        out.logprobs.back() = {{from.tokens[row]}, {hash_logprob(from.chains[row])}};
    }
    out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
  }
  done.plan.reset();
  done.is_free = true;
}

void hash_runner::overwrite(device_work& work, step_phase copy) {
  auto& it = static_cast<hash_work&>(work);
  if (copy == step_phase::copy_in)
    ++it.staged.positions.at(0);
  else
    ++it.outputs.tokens.at(0);
}

void hash_runner::reset() {
  for (const auto& work : ring_)
    DI_CHECK(work->is_free || work.use_count() == 1, "step {} is unfinished", work->step_.value);
  ring_.clear();
  state_.reset();
  newest_ = {};
  last_staged_ = {};  // a restarted rank counts from 1 again
  recent_.clear();
}

void hash_runner::poison(std::span<const block_id> blocks, std::span<const slot_id> slots) {
  for (const auto block : blocks) state_.poison_block(block);
  for (const auto slot : slots) state_.poison_slot(slot);
}

}  // namespace deepinfer
