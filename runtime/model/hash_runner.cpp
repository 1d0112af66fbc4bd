#include "runtime/model/hash_runner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/check.hpp"

namespace deepinfer {

hash_runner::hash_runner(const runner_config& config, const hash_model_config& model)
  : config_(config),
    model_(model),
    program_(config, model),
    fence_(config, &program_.canary()) {}

hash_runner::~hash_runner() = default;

void hash_runner::register_script(seq_id sequence, hash_script script) {
  auto shared = std::make_shared<const hash_script>(std::move(script));
  const std::lock_guard lock(scripts_mutex_);
  scripts_[sequence] = std::move(shared);
}

void hash_runner::forget_script(seq_id sequence) {
  const std::lock_guard lock(scripts_mutex_);
  scripts_.erase(sequence);
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
  return ring_.emplace_back(std::make_shared<hash_work>(&program_));
}

void hash_runner::remember(const step_plan& plan) {
  const auto kept = static_cast<std::uint64_t>(config_.depth) + 1;
  std::erase_if(recent_, [&](const auto& row) { return row.step.value + kept <= plan.step.value; });
  for (std::size_t row = 0; row < plan.sequences.size(); ++row)
    recent_.push_back({plan.step, plan.slots[row], plan.sequences[row], plan.epochs[row],
                       written_blocks(plan, row)});
  last_staged_ = plan.step;
}

// Whoever starts behind a chunk may read the blocks it completes, also where the chunk then fails
// and the device never hears of them.
std::vector<block_id> hash_runner::written_blocks(const step_plan& plan, std::size_t row) {
  const auto slot = static_cast<std::size_t>(plan.slots[row].value);
  if (!config_.prefix_cache || slot >= static_cast<std::size_t>(config_.state_slots)) return {};
  tables_.resize(static_cast<std::size_t>(config_.state_slots));
  auto& table = tables_[slot];
  table.resize(static_cast<std::size_t>(std::max(0, plan.table_begin[row])));
  const auto added = plan.row_blocks(static_cast<std::int32_t>(row));
  table.insert(table.end(), added.begin(), added.end());
  if (plan.kinds[row] != row_kind::prefill) return {};
  const auto first = static_cast<std::size_t>(plan.positions[row] / config_.block_size);
  const auto last =
    static_cast<std::size_t>((plan.positions[row] + plan.widths[row] - 1) / config_.block_size);
  std::vector<block_id> out;
  for (auto i = first; i <= last && i < table.size(); ++i) out.push_back(table[i]);
  return out;
}

std::size_t hash_runner::unfinished() const {
  return static_cast<std::size_t>(
    std::count_if(ring_.begin(), ring_.end(), [](const auto& work) { return !work->is_free; }));
}

void hash_runner::check_plan(const step_plan& p) {
  const auto add = [&](std::string_view name, const std::string& text) {
    program_.canary().add(name, fmt::format("step {}: {}", p.step.value, text));
  };
  const auto most = std::accumulate(p.widths.begin(), p.widths.end(), 0);
  if (p.total_width > most || p.total_width < p.rows() ||
      (p.total_width != most && p.kind != step_kind::decode))
    add("row_map_broken", fmt::format("{} query tokens in all for {} rows of {} in all",
                                      p.total_width, p.rows(), most));
  const auto width = std::min(most, p.total_width);
  if (width > config_.max_num_batched_tokens)
    add("budget_exceeded",
        fmt::format("{} tokens, at most {}", width, config_.max_num_batched_tokens));
  if (p.rows() > config_.max_num_seqs)
    add("budget_exceeded", fmt::format("{} rows, at most {}", p.rows(), config_.max_num_seqs));
  if (p.bucket != 0 && p.bucket < width)
    add("budget_exceeded", fmt::format("{} tokens in a bucket of {}", width, p.bucket));
}

// A gated row's sequence is planned again only when the gate of its newest row is open.
void hash_runner::check_gates(const step_plan& p) {
  for (const auto& work : ring_) {
    if (work->is_free || work->masks || !work->is_gated() || work.use_count() == 1) continue;
    const auto& gated = *work->plan;
    for (std::size_t row = 0; row < p.sequences.size(); ++row)
      for (std::size_t i = 0; i < gated.sequences.size(); ++i)
        if (gated.gated[i] != 0 && gated.sequences[i] == p.sequences[row] &&
            gated.epochs[i] == p.epochs[row])
          program_.canary().add(
            "row_map_broken",
            fmt::format("step {}, row {}, sequence {}: step {} waits for its masks", p.step.value,
                        row, p.sequences[row].value, gated.step.value));
  }
}

void hash_runner::stage_starts(const step_plan& p, std::vector<hash_start>& out) {
  out.clear();
  for (const auto& start : p.starts) {
    const auto row = std::find(p.slots.begin(), p.slots.end(), start.slot) - p.slots.begin();
    DI_CHECK(row < std::ssize(p.slots), "step {} starts slot {} without a row", p.step.value,
             start.slot.value);
    out.push_back({start.slot, start.sequence, start.epoch, start.prompt_tokens, start.outputs,
                   start.position, start.output_limit, hash_sampling::of(*start.params),
                   script_of(start.sequence)});
  }
}

std::shared_ptr<device_work> hash_runner::stage(std::shared_ptr<const step_plan> plan) {
  const auto& p = *plan;
  DI_CHECK(p.step > last_staged_, "step {} after step {}", p.step.value, last_staged_.value);
  check_plan(p);
  check_gates(p);
  fence_.check(p, ring_);
  auto work = free_work();
  work->open(plan);
  auto& to = work->staged;
  to.plan = p;
  stage_starts(p, to.starts);
  to.before = last_staged_;
  remember(p);
  to.recent.assign(recent_.begin(), recent_.end());
  work->staged_sum = to.checksum();
  return work;
}

void hash_runner::set_masks(device_work& given, std::shared_ptr<const sample_gate> masks) {
  auto& work = static_cast<hash_work&>(given);
  const auto& p = *work.plan;
  const auto& m = *masks;
  DI_CHECK(p.is_gated(), "step {} has no gated row", p.step.value);
  bool is_right = m.step == p.step && m.words == hash_mask_words(model_.vocab) &&
                  m.mask_begin.size() == m.rows.size() + 1 &&
                  m.masks.size() == static_cast<std::size_t>(m.mask_begin.back()) *
                                      static_cast<std::size_t>(m.words);
  const auto gated = std::count_if(p.gated.begin(), p.gated.end(), [](auto it) { return it != 0; });
  is_right = is_right && std::ssize(m.rows) == gated;
  for (std::size_t i = 0; is_right && i < m.rows.size(); ++i) {
    const auto row = static_cast<std::size_t>(m.rows[i]);
    is_right = row < p.gated.size() && p.gated[row] != 0 &&
               m.mask_begin[i + 1] - m.mask_begin[i] ==
                 (p.kinds[row] == row_kind::decode ? p.widths[row] : 1);
  }
  if (is_right) {
    work.masks = std::move(masks);
    return;
  }
  program_.canary().add("row_map_broken",
                        fmt::format("step {}: masks of step {} with {} words for {} rows do not "
                                    "fit its {} gated rows",
                                    p.step.value, m.step.value, m.words, m.rows.size(), gated));
}

void hash_runner::collect(const device_work& work, step_result& out) {
  const auto found =
    std::find_if(ring_.begin(), ring_.end(), [&](const auto& one) { return one.get() == &work; });
  DI_CHECK(found != ring_.end() && !(*found)->is_free,
           "step {} is not in the ring or was collected", work.step().value);
  auto& done = **found;
  const bool is_complete = done.is_complete;
  out.clear();
  out.step = done.step_;
  out.code = is_complete ? errc::ok : errc::device_failed;
  out.sequences = done.plan->sequences;
  out.epochs = done.plan->epochs;
  const auto& from = done.returned;
  const bool has_logprobs =
    is_complete && std::find(from.asked.begin(), from.asked.end(), 1) != from.asked.end();
  for (std::size_t row = 0; row < out.sequences.size(); ++row) {
    const auto first = row * static_cast<std::size_t>(from.stride);
    const auto given = is_complete ? static_cast<std::size_t>(from.given[row]) : 0;
    for (auto i = first; i < first + given; ++i) {
      out.tokens.push_back(from.tokens[i]);
      if (!has_logprobs) continue;
      out.logprobs.emplace_back();
      if (from.asked[row] != 0)
        out.logprobs.back() = {{from.tokens[i]}, {hash_logprob(from.chains[i])}, {}};
    }
    out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
  }
  if (is_complete) {
    out.widths = from.widths;
    out.drafts_per_row = config_.num_drafts;
    out.drafts = from.drafts;
    if (from.has_confidences != 0) out.confidences = from.confidences;
  }
  done.plan.reset();
  done.masks.reset();
  done.is_free = true;
}

void hash_runner::overwrite(device_work& work, step_phase copy) {
  auto& it = static_cast<hash_work&>(work);
  switch (copy) {
  case step_phase::copy_in: ++it.staged.plan.positions.at(0); break;
  case step_phase::copy_out: ++it.outputs.tokens.at(0); break;
  default: program_.split_carry(copy == step_phase::forward); break;
  }
}

void hash_runner::reset() {
  for (const auto& work : ring_)
    DI_CHECK(work->is_free || work.use_count() == 1, "step {} is unfinished", work->step_.value);
  ring_.clear();
  program_.reset();
  fence_.reset();
  last_staged_ = {};  // a restarted rank counts from 1 again
  recent_.clear();
  tables_.clear();
}

void hash_runner::poison(std::span<const block_id> blocks, std::span<const slot_id> slots) {
  for (const auto block : blocks) program_.state().kv().poison(block);
  for (const auto slot : slots) program_.state().poison_slot(slot);
}

}  // namespace deepinfer
