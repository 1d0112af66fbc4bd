#include "hash_driver.hpp"

#include <numeric>

namespace deepinfer {

void step_inbox::receive(void* user, ticket id, device_status status, const phase_times&) {
  auto& self = *static_cast<step_inbox*>(user);
  const std::lock_guard lock(self.mutex_);
  self.done_.emplace_back(id, status);
  self.changed_.notify_all();
}

device_status step_inbox::wait_for(ticket id) {
  std::unique_lock lock(mutex_);
  device_status found;
  changed_.wait(lock, [&] {
    const auto it =
      std::find_if(done_.begin(), done_.end(), [&](const auto& one) { return one.first == id; });
    if (it == done_.end()) return false;
    found = it->second;
    done_.erase(it);
    return true;
  });
  return found;
}

hash_driver::hash_driver(const driver_options& options)
  : options_(options),
    random_(options.seed),
    runner_(
      [&] {
        auto sizes = options.sizes;
        sizes.depth = options.depth;
        return sizes;
      }(),
      options.model) {
  for (std::int32_t block = 0; block < runner_.config().num_kv_blocks; ++block)
    free_blocks_.push_back(block_id{block});
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), random_);
  if (options.on_cpu)
    device_ = std::make_unique<cpu_device>(cpu_device_config{2, 64});
  else
    device_ = std::make_unique<virtual_device>(options.timing);
}

hash_driver::~hash_driver() {
  for (auto& it : in_flight_)
    if (it.held) abandon_step(it.held);
}

driven_sequence& hash_driver::add(hash_script script, sampling_params params,
                                  std::int32_t most_outputs) {
  driven_sequence one;
  one.id = seq_id{100 + static_cast<std::uint64_t>(sequences.size())};
  one.slot = take_slot();
  one.script = std::move(script);
  one.params = std::make_shared<sampling_params>(std::move(params));
  one.most_outputs = most_outputs;
  one.prefill_end = one.prompt_tokens();
  runner_.register_script(one.id, one.script);
  return sequences.emplace_back(std::move(one));
}

block_id hash_driver::take_block() {
  const auto block = free_blocks_.back();
  free_blocks_.pop_back();
  return block;
}

driven_sequence& hash_driver::find(seq_id id) {
  return *std::find_if(sequences.begin(), sequences.end(),
                       [&](const auto& one) { return one.id == id; });
}

std::shared_ptr<step_plan> hash_driver::plan() {
  auto out = std::make_shared<step_plan>();
  out->clear();
  out->step = step_id{last_step_ + 1};
  for (auto& one : sequences) {
    if (one.is_launched_out() || (one.is_gated() && one.rows > 0)) continue;
    if (draws(options_.skip_percent)) continue;
    plan_row(one, *out);
  }
  finish_plan(*out);
  return out;
}

void hash_driver::plan_row(driven_sequence& one, step_plan& out) {
  if (!one.has_started)
    one.settled = static_cast<std::int32_t>(one.hits.size()) * runner_.config().block_size;
  const auto left = one.prefill_end - one.planned();
  const auto drafts = runner_.config().num_drafts;
  auto width = left > 0 ? std::min(left, options_.chunk) : 1 + drafts;
  if (left <= 0 && drafts > 0 && draws(options_.truncate_percent))
    width = 1 + static_cast<std::int32_t>(random_() % static_cast<unsigned>(1 + drafts));
  out.sequences.push_back(one.id);
  out.epochs.push_back(one.epoch);
  out.slots.push_back(one.slot);
  out.kinds.push_back(left > 0 ? row_kind::prefill : row_kind::decode);
  out.widths.push_back(width);
  out.positions.push_back(one.planned());
  out.yields_max.push_back(left <= 0 ? width : left > width ? 0 : 1);
  out.yields_min.push_back(left > width ? 0 : 1);
  // Masks are made from what the host knows: nothing of the sequence is in flight then.
  out.gated.push_back(one.is_gated() && out.yields_max.back() > 0 ? 1 : 0);
  plan_ids(one, out, left > 0, width);
  plan_blocks(one, out, width);
  if (one.has_started) return;
  const auto known = one.prefill_end - one.prompt_tokens();
  out.starts.push_back({one.slot, one.id, one.epoch, one.prompt_tokens(), known, one.settled,
                        one.most_outputs, one.params});
}

void hash_driver::plan_ids(driven_sequence& one, step_plan& out, bool is_prefill,
                           std::int32_t width) {
  const bool is_known = one.rows == 0 && !one.outputs.empty();
  if (is_prefill) {
    out.sources.push_back(from_fresh);
    for (auto p = one.planned(); p < one.planned() + width; ++p) out.tokens.push_back(one.known(p));
  } else if (is_known && draws(options_.fresh_percent)) {
    out.sources.push_back(from_fresh);
    out.tokens.push_back(one.outputs.back());
    out.tokens.insert(out.tokens.end(), one.drafts.begin(), one.drafts.begin() + width - 1);
  } else {
    out.sources.push_back(one.newest_step == last_step_ ? one.newest_row : from_slot);
  }
  out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
}

void hash_driver::plan_blocks(driven_sequence& one, step_plan& out, std::int32_t width) {
  const auto size = runner_.config().block_size;
  const auto end = one.planned() + width + runner_.config().draft_overhang;
  if (!one.has_started) one.blocks.clear();
  const auto held = static_cast<std::int32_t>(one.blocks.size());
  out.table_begin.push_back(held);
  if (!one.has_started) out.blocks.insert(out.blocks.end(), one.hits.begin(), one.hits.end());
  const auto first =
    std::max(held, static_cast<std::int32_t>(one.has_started ? 0 : one.hits.size()));
  for (auto block = first; block < (end + size - 1) / size; ++block)
    out.blocks.push_back(take_block());
  out.block_begin.push_back(static_cast<std::int32_t>(out.blocks.size()));
}

void hash_driver::finish_plan(step_plan& out) {
  const auto decodes = std::count(out.kinds.begin(), out.kinds.end(), row_kind::decode);
  out.kind = decodes == out.rows() ? step_kind::decode
             : decodes == 0        ? step_kind::prefill
                                   : step_kind::mixed;
  if (out.rows() == 0) out.kind = step_kind::empty;
  out.total_width = std::accumulate(out.widths.begin(), out.widths.end(), 0);
  if (out.kind != step_kind::decode || !draws(options_.split_percent)) return;
  const auto spread = static_cast<unsigned>(out.total_width - out.rows() + 1);
  out.total_width = out.rows() + static_cast<std::int32_t>(random_() % spread);
}

void hash_driver::mark_launched(const step_plan& plan, std::int32_t row) {
  const auto i = static_cast<std::size_t>(row);
  auto& one = find(plan.sequences[i]);
  one.has_started = true;
  one.in_flight += plan.widths[i];
  one.fewest += plan.yields_min[i];
  ++one.rows;
  const auto added = plan.row_blocks(row);
  one.blocks.insert(one.blocks.end(), added.begin(), added.end());
  if (plan.yields_max[i] == 0) return;
  one.newest_step = plan.step.value;
  one.newest_row = row;
}

bool hash_driver::launch(std::shared_ptr<step_plan> plan) {
  last_step_ = plan->step.value;
  for (std::int32_t row = 0; row < plan->rows(); ++row) mark_launched(*plan, row);
  auto work = runner_.stage(plan);
  const ticket number{last_step_};
  if (!plan->is_gated()) {
    const auto accepted = launch_step(*device_, work, number, step_inbox::receive, &inbox_);
    in_flight_.push_back({std::move(plan), std::move(work)});
    return accepted.has_value();
  }
  const auto held = launch_gated_step(*device_, work, number, step_inbox::receive, &inbox_);
  in_flight_.push_back({std::move(plan), std::move(work), held.value_or(nullptr)});
  if (held && !draws(options_.delayed_gates)) open_gate(in_flight_.size() - 1);
  return held.has_value();
}

void hash_driver::open_gate(std::size_t of_flight, void (*spoil)(sample_gate&)) {
  auto& it = in_flight_[of_flight];
  const auto& plan = *it.plan;
  auto gate = std::make_shared<sample_gate>();
  gate->step = plan.step;
  gate->words = hash_mask_words(options_.model.vocab);
  gate->mask_begin.push_back(0);
  const auto words = static_cast<std::size_t>(gate->words);
  for (std::int32_t row = 0; row < plan.rows(); ++row) {
    const auto i = static_cast<std::size_t>(row);
    if (plan.gated[i] == 0) continue;
    const auto& one = find(plan.sequences[i]);
    auto state = hash_grammar_state::at_start(one.params->reasoning);
    for (const auto id : one.outputs) state.add(id);
    const auto masks = plan.kinds[i] == row_kind::decode ? plan.widths[i] : 1;
    for (std::int32_t query = 0; query < masks; ++query) {
      if (query > 0) state.add(one.drafts[static_cast<std::size_t>(query - 1)]);
      gate->masks.resize(gate->masks.size() + words);
      const auto mask = std::span(gate->masks).last(words);
      if (state.has_started)
        hash_fill_mask(*one.script.grammar, state, options_.model.vocab, mask);
      else
        std::fill(mask.begin(), mask.end(), ~0u);
    }
    gate->rows.push_back(row);
    gate->mask_begin.push_back(gate->mask_begin.back() + masks);
  }
  if (spoil) spoil(*gate);
  runner_.set_masks(*it.work, gate);
  (void)finish_step(std::exchange(it.held, nullptr));
}

step_result hash_driver::settle() {
  if (in_flight_.front().held) open_gate(0);
  auto oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (auto* clocked = dynamic_cast<virtual_device*>(device_.get())) clocked->run_until_idle();
  const auto status = inbox_.wait_for(ticket{oldest.plan->step.value});
  step_result result;
  runner_.collect(*oldest.work, result);
  if (status.code != errc::ok) result.code = status.code;
  for (std::int32_t row = 0; row < oldest.plan->rows(); ++row) take_row(*oldest.plan, result, row);
  return result;
}

void hash_driver::take_row(const step_plan& plan, const step_result& result, std::int32_t row) {
  const auto i = static_cast<std::size_t>(row);
  auto& one = find(plan.sequences[i]);
  if (plan.epochs[i] != one.epoch) return;  // dropped when it was preempted
  --one.rows;
  one.in_flight -= plan.widths[i];
  one.fewest -= plan.yields_min[i];
  if (result.code != errc::ok) one.has_failed = true;
  if (one.has_failed) return;
  if (result.widths[i] == 0) one.is_dead = true;
  const auto tokens = result.row_tokens(row);
  const auto given = static_cast<std::int32_t>(tokens.size());
  const bool is_decode = plan.kinds[i] == row_kind::decode;
  one.settled += is_decode ? given : plan.widths[i];
  for (std::int32_t k = 0; k < given; ++k) {
    if (static_cast<std::int32_t>(one.outputs.size()) >= one.most_outputs) break;
    const auto token = static_cast<std::size_t>(result.token_begin[i] + k);
    one.outputs.push_back(result.tokens[token]);
    if (!result.logprobs.empty()) one.logprobs.push_back(result.logprobs[token]);
    if (one.is_gated() && one.outputs.back() == hash_stop_id) break;
  }
  const bool is_dead_end = one.is_gated() && one.script.grammar->dead_end_at > 0 &&
                           std::ssize(one.outputs) >= one.script.grammar->dead_end_at;
  if (is_dead_end || std::ssize(one.outputs) >= one.most_outputs ||
      (!one.outputs.empty() && one.outputs.back() == hash_stop_id && one.is_gated()))
    one.is_over = true;
  if (given == 0) return;
  if (is_decode) one.accepted.push_back(given - 1);
  const auto drafts = static_cast<std::size_t>(result.drafts_per_row);
  const auto first = result.drafts.begin() + static_cast<std::ptrdiff_t>(i * drafts);
  one.drafts.assign(first, first + static_cast<std::ptrdiff_t>(drafts));
}

void hash_driver::run() {
  for (;;) {
    auto next = plan();
    const bool has_rows = next->rows() > 0;
    if (has_rows) launch(std::move(next));
    // A gate may open behind the step that was launched after it.
    for (std::size_t i = 0; i + 1 < in_flight_.size(); ++i)
      if (in_flight_[i].held) open_gate(i);
    const bool is_full = in_flight_.size() >= static_cast<std::size_t>(options_.depth);
    const bool is_done = std::all_of(sequences.begin(), sequences.end(),
                                     [](const auto& one) { return one.is_launched_out(); });
    if (!in_flight_.empty() && (is_full || !has_rows)) settle();
    if (is_done && in_flight_.empty()) return;
  }
}

void hash_driver::run_to_stops() {
  for (;;) {
    auto next = plan();
    const bool has_rows = next->rows() > 0;
    if (has_rows) launch(std::move(next));
    const bool is_full = in_flight_.size() >= static_cast<std::size_t>(options_.depth);
    if (!in_flight_.empty() && (is_full || !has_rows)) settle();
    for (auto& one : sequences)
      if (one.is_dead) one.is_over = true;
    if (!has_rows && in_flight_.empty()) return;
  }
}

void hash_driver::preempt(driven_sequence& one, std::int32_t hits) {
  one.hits.assign(one.blocks.begin(), one.blocks.begin() + hits);
  ++one.epoch;
  one.slot = take_slot();
  one.has_started = false;
  one.prefill_end = one.prompt_tokens() + static_cast<std::int32_t>(one.outputs.size());
  one.settled = one.in_flight = one.rows = one.fewest = 0;
  one.newest_step = 0;
  one.drafts.clear();
  one.accepted.clear();
}

std::vector<token_id> hash_driver::expected(const driven_sequence& one) const {
  hash_sequence truth(options_.model, one.script, hash_sampling::of(*one.params));
  std::vector<token_id> out;
  for (std::int32_t k = 1; k <= one.most_outputs; ++k) out.push_back(truth.output(k));
  return out;
}

}  // namespace deepinfer
