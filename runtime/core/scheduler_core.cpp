// Requests come and end; what they held goes to the collector.
#include "runtime/core/scheduler_core.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/core/mutant.hpp"

namespace deepinfer {

namespace {

/// Outputs a sequence has room for before its list grows.
constexpr std::int64_t outputs_reserved = 8192;

sequence_finish finish_of(finish_reason reason, errc code, std::string message) {
  sequence_finish out;
  out.reason = reason;
  out.code = code;
  out.message = std::move(message);
  return out;
}

usage_counts usage_of(const sequence_state& sequence) {
  usage_counts out;
  out.prompt_tokens = static_cast<std::int32_t>(sequence.prompt_tokens());
  out.completion_tokens = static_cast<std::int32_t>(sequence.ledger.emitted());
  out.cached_tokens = static_cast<std::int32_t>(sequence.cached_tokens);
  out.reasoning_tokens = static_cast<std::int32_t>(sequence.reasoning_tokens);
  return out;
}

void clear(scheduler_outbox& box) {
  box.chunks.chunks.clear();
  box.leases.entries.clear();
  box.want.blocks = box.want.slots = box.want.evict = 0;
  box.want.must_answer = box.want.forget = false;
  box.want.publish.clear();
  box.want.retract.clear();
  box.want.lookups.clear();
  box.gates.clear();
  box.preempted.clear();
  box.leases_due = false;
}

}  // namespace

scheduler_core::scheduler_core(scheduler_config config, const scheduler_helpers& helpers)
  : config_(std::move(config)),
    helpers_(helpers),
    shape_{config_.depth, config_.num_drafts, config_.draft_overhang},
    depth_(config_.depth),
    book_(config_.num_kv_blocks, config_.state_slots) {
  if (config_.max_depth == 0) config_.max_depth = config_.depth;
  check_config();
  // What a plan touches gets its final size here.
  const auto& c = config_;
  const auto rows = static_cast<std::size_t>(std::min(c.max_num_seqs, c.max_num_batched_tokens));
  for (auto& record : records_) {
    record.rows.reserve(rows);
    record.epochs.reserve(rows);
    record.gated.reserve(rows);
    record.masks.reserve(rows);
  }
  picks_.reserve(rows);
  candidates_.reserve(static_cast<std::size_t>(c.max_num_seqs));
  running_.reserve(static_cast<std::size_t>(c.max_num_seqs));
}

void scheduler_core::check_config() const {
  const auto& c = config_;
  DI_CHECK(1 <= c.depth && c.depth <= c.max_depth, "depth {}, at most {}", c.depth, c.max_depth);
  DI_CHECK(c.max_depth <= depth_limit, "depth {}, at most {}", c.max_depth, depth_limit);
  DI_CHECK(c.num_drafts >= 0, "{} drafts", c.num_drafts);
  DI_CHECK(c.draft_overhang >= 0, "a drafter that writes {} further", c.draft_overhang);
  DI_CHECK(c.max_num_seqs > 0, "{} active sequences", c.max_num_seqs);
  DI_CHECK(c.max_num_batched_tokens > c.num_drafts, "{} tokens a step, a decode row has {}",
           c.max_num_batched_tokens, 1 + c.num_drafts);
  DI_CHECK(c.chunk_size >= 0, "chunks of {}", c.chunk_size);
  DI_CHECK(c.max_model_len > 1, "length {}", c.max_model_len);
  DI_CHECK(c.num_kv_blocks > 0, "{} blocks", c.num_kv_blocks);
  DI_CHECK(c.block_size > 0, "blocks of {}", c.block_size);
  DI_CHECK(c.state_slots > 0, "{} slots", c.state_slots);
  DI_CHECK(c.vocab_size > 0, "a vocabulary of {}", c.vocab_size);
  DI_CHECK(c.max_queued > 0, "a queue of {}", c.max_queued);
  DI_CHECK(c.resume_stride > 0, "resume points every {} blocks", c.resume_stride);
}

scheduler_core::~scheduler_core() {
  // The rank goes away as one; its pool with it.
  for (auto& [id, sequence] : sequences_) sequence->lease.forget();
}

result<void> scheduler_core::check_request(const sequence_request& request) const {
  const auto& c = config_;
  DI_CHECK(request.params, "sequence {} has no sampling parameters", request.sequence.value);
  if (!request.prompt || request.prompt->empty())
    return fail(errc::invalid_argument, "the prompt is empty, expected at least one token",
                "prompt");
  for (std::size_t i = 0; i < request.prompt->size(); ++i) {
    const auto id = (*request.prompt)[i];
    if (id < c.first_id || id >= c.vocab_size)
      return fail(errc::invalid_argument,
                  fmt::format("prompt token {} is id {}, expected {}..{}", i, id, c.first_id,
                              c.vocab_size - 1),
                  "prompt");
  }
  const auto prompt = static_cast<std::int64_t>(request.prompt->size());
  if (prompt >= c.max_model_len)
    return fail(errc::context_length_exceeded,
                fmt::format("the prompt has {} tokens, the context holds {}, at least one of them "
                            "for output",
                            prompt, c.max_model_len),
                "prompt");
  if (request.params->max_tokens == 0)
    return fail(errc::invalid_argument, "max_tokens is 0, expected at least 1", "max_tokens");
  if (!helpers_.texts && !request.params->stop.empty())
    return fail(errc::invalid_argument, "stop strings need a tokenizer, and there is none", "stop");
  if (!helpers_.grammars && !request.params->grammar.empty())
    return fail(errc::invalid_argument,
                fmt::format("grammar {}: this engine has none", request.params->grammar),
                "grammar");
  const auto blocks = blocks_for(prompt, c.block_size);
  if (blocks > c.num_kv_blocks)
    return fail(errc::no_blocks, fmt::format("the prompt needs {} KV blocks ({} tokens), the rank "
                                             "has {}",
                                             blocks, prompt, c.num_kv_blocks));
  if (is_draining_) return fail(errc::draining, "the engine is draining and takes no new request");
  if (queue_.size() >= c.max_queued)
    return fail(errc::queue_full, fmt::format("{} requests wait already, at most {} may",
                                              queue_.size(), c.max_queued));
  return {};
}

void scheduler_core::submit(sequence_request request, std::int64_t now_us) {
  if (sequences_.contains(request.sequence)) {  // the same message again
    ++totals_.late_messages;
    return;
  }
  if (auto checked = check_request(request); !checked) {
    auto& why = checked.error();
    const auto reason =
      why.code == errc::no_blocks ? finish_reason::resource : finish_reason::error;
    return refuse(request, reason, why.code, std::move(why.message));
  }
  const auto prompt = static_cast<std::int64_t>(request.prompt->size());
  const auto limit = output_limit(prompt, request.params->max_tokens, config_.max_model_len);
  stop_rule rule(*request.params, config_.eos, config_.eos_ids, limit, helpers_.texts);
  const bool reasons = request.params->reasoning && config_.think_end >= 0;
  if (reasons && !config_.policy.stop_in_reasoning) rule.spare_until(config_.think_end);
  const auto id = request.sequence;
  const auto place = admission_queue::key_of(request.priority, ++arrivals_);
  auto sequence =
    std::make_unique<sequence_state>(std::move(request), now_us, place, std::move(rule));
  sequence->in_reasoning = reasons;
  sequence->outputs.reserve(static_cast<std::size_t>(std::min(limit, outputs_reserved)));
  const auto drafts = static_cast<std::size_t>(config_.num_drafts);
  sequence->made.confidences.resize(draft_history::kept * drafts);
  sequence->made.drafts.reserve(drafts);
  look_up_later(*sequence);
  queue_.push(place, *sequence);
  sequences_.emplace(id, std::move(sequence));
}

void scheduler_core::refuse(const sequence_request& request, finish_reason reason, errc code,
                            std::string message) {
  sequence_chunk chunk;
  chunk.sequence = request.sequence;
  chunk.finish = finish_of(reason, code, std::move(message));
  if (request.prompt)
    chunk.finish->usage.prompt_tokens = static_cast<std::int32_t>(request.prompt->size());
  outbox_.chunks.chunks.push_back(std::move(chunk));
  ++totals_.final_records;
}

void scheduler_core::abort(seq_id sequence, finish_reason reason, errc code,
                           std::string_view message) {
  DI_CHECK(reason != finish_reason::none, "sequence {} aborted for no reason", sequence.value);
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end() || found->second->phase == sequence_phase::ended) {
    ++totals_.late_messages;
    return;
  }
  ++totals_.aborts;
  sequence_chunk chunk;
  chunk.sequence = sequence;
  chunk.first_output = static_cast<std::int32_t>(found->second->ledger.emitted());
  end(*found->second, finish_of(reason, code, std::string(message)), std::move(chunk));
}

void scheduler_core::abort_all(finish_reason reason, errc code, std::string_view message) {
  for (const auto* sequence :
       by_arrival([](const auto& it) { return it.phase != sequence_phase::ended; }))
    abort(sequence->id(), reason, code, message);
}

void scheduler_core::hold(seq_id sequence, bool is_held) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end() || found->second->phase == sequence_phase::ended) return;
  if (std::exchange(found->second->is_held, is_held) != is_held) held_ += is_held ? 1 : -1;
}

void scheduler_core::grant(const kv_grant& granted) {
  credit_blocks_.insert(credit_blocks_.end(), granted.blocks.begin(), granted.blocks.end());
  credit_slots_.insert(credit_slots_.end(), granted.slots.begin(), granted.slots.end());
  owed_blocks_ -= std::min(owed_blocks_, static_cast<std::int64_t>(granted.blocks.size()));
  owed_slots_ -= std::min(owed_slots_, static_cast<std::int64_t>(granted.slots.size()));
  if (granted.has_forgotten) --forgets_due_;
  // What the allocator said before it forgot is void, also what it wanted to be moved.
  if (!is_forgetting()) {
    moves_.insert(moves_.end(), granted.moves.begin(), granted.moves.end());
    for (const auto& move : granted.moves)
      if (!move.to_host) restored_.push_back({move.block, {launched_ + 1}});
  }
  for (const auto& hit : granted.hits) take_hit(hit);
}

// What it waited for is nobody's any more: a start that it holds back might else wait for ever.
void scheduler_core::leave_running(sequence_state& sequence) {
  const auto at = std::find(running_.begin(), running_.end(), &sequence);
  DI_CHECK(at != running_.end(), "sequence {} does not run", sequence.id().value);
  running_.erase(at);
  claimed_ -= std::exchange(sequence.claimed, 0);
}

void scheduler_core::end(sequence_state& sequence, sequence_finish finish, sequence_chunk chunk) {
  auto fence = sequence.ledger.newest();
  switch (sequence.phase) {
  case sequence_phase::queued:
    queue_.remove(sequence.place);
    fence = {};  // cached blocks that nothing launched reads yet
    break;
  case sequence_phase::running: leave_running(sequence); break;
  case sequence_phase::retiring: std::erase(retiring_, &sequence); break;
  case sequence_phase::preempted: --preempted_; break;
  case sequence_phase::ended: DI_CHECK(false, "sequence {} ends twice", sequence.id().value); break;
  }
  if (sequence.is_held) --held_;
  sequence.ended_by = finish.reason;
  finish.usage = usage_of(sequence);
  chunk.finish = std::move(finish);
  outbox_.chunks.chunks.push_back(std::move(chunk));
  ++totals_.final_records;
  give_back(sequence, fence);
  sequence.phase = sequence_phase::ended;
  ++ended_;
  erase_if_unreferenced(sequence);
}

void scheduler_core::end_with_error(sequence_state& sequence, errc code, std::string message,
                                    sequence_chunk chunk) {
  const auto reason = code == errc::no_blocks ? finish_reason::resource : finish_reason::error;
  end(sequence, finish_of(reason, code, std::move(message)), std::move(chunk));
}

void scheduler_core::give_back(sequence_state& sequence, step_id fence) {
  if (sequence.lease.is_empty()) return;
  if (mutant(1)) fence = {};  // released without a fence
  auto entry = sequence.lease.park_all(fence);
  book_.park(fence, entry.blocks, static_cast<std::int64_t>(entry.slots.size()), {settled_});
  parked_fence_ = std::max(parked_fence_, fence.value);
  outbox_.leases.entries.push_back(std::move(entry));
  outbox_.leases_due = true;
}

void scheduler_core::erase_if_unreferenced(sequence_state& sequence) {
  if (sequence.phase != sequence_phase::ended || sequence.ledger.refs() > 0) return;
  --ended_;
  sequences_.erase(sequence.id());
}

void scheduler_core::take_outbox(scheduler_outbox& out) {
  clear(out);
  open_gates();
  outbox_.want.rank = outbox_.chunks.rank = outbox_.leases.rank = config_.rank;
  outbox_.chunks.step = outbox_.leases.settled = {settled_};
  want_credit(outbox_.want);
  want_lookups(outbox_.want);
  forgets_due_ += outbox_.want.forget;
  owed_blocks_ += outbox_.want.blocks;
  owed_slots_ += outbox_.want.slots;
  shortfall_ = 0;  // it has been named
  waits_for_credit_ = false;
  std::swap(out, outbox_);
}

// A smaller pipeline needs shorter tables: each gives back its tail when it settles next [I13].
void scheduler_core::set_depth(std::int32_t depth) {
  DI_CHECK(1 <= depth && depth <= config_.max_depth, "depth {}, expected 1..{}", depth,
           config_.max_depth);
  depth_ = depth;
  shape_.depth = mutant(27) ? std::max(shape_.depth, depth) : depth;  // 27: it only grows
}

const sequence_state* scheduler_core::find(seq_id sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? nullptr : found->second.get();
}

// Arrival order, so that what is told does not depend on a hash table.
std::vector<sequence_state*>
scheduler_core::by_arrival(bool (*wanted)(const sequence_state&)) const {
  std::vector<sequence_state*> out;
  for (const auto& [id, sequence] : sequences_)
    if (wanted(*sequence)) out.push_back(sequence.get());
  std::sort(out.begin(), out.end(),
            [](const auto* a, const auto* b) { return a->place.arrival < b->place.arrival; });
  return out;
}

std::vector<sequence_request> scheduler_core::fail_all_started(errc code,
                                                               std::string_view message) {
  std::vector<sequence_request> waiting;
  for (const auto& [place, sequence] : queue_)
    if (sequence->started == 0) waiting.push_back(sequence->request);
  for (auto& [id, sequence] : sequences_) sequence->lease.forget();
  const auto had_started = [](const sequence_state& it) {
    return it.started > 0 && it.phase != sequence_phase::ended;
  };
  for (auto* sequence : by_arrival(had_started)) {
    sequence_chunk chunk;
    chunk.sequence = sequence->id();
    chunk.first_output = static_cast<std::int32_t>(sequence->ledger.emitted());
    chunk.finish = finish_of(finish_reason::error, code, std::string(message));
    chunk.finish->usage = usage_of(*sequence);
    outbox_.chunks.chunks.push_back(std::move(chunk));
    ++totals_.final_records;
  }
  queue_.clear();
  running_.clear();
  retiring_.clear();
  sequences_.clear();
  ended_ = preempted_ = held_ = 0;
  book_.reset();
  credit_blocks_.clear();
  credit_slots_.clear();
  owed_blocks_ = owed_slots_ = shortfall_ = claimed_ = 0;
  moves_.clear();
  restored_.clear();
  forgets_due_ = 0;
  outbox_.want.forget = false;
  settled_ = launched_;
  for (auto& record : records_) record.rows.clear();
  parked_fence_ = 0;
  outbox_.leases.entries.clear();
  outbox_.leases_due = false;
  outbox_.want.publish.clear();
  outbox_.want.retract.clear();
  return waiting;
}

}  // namespace deepinfer
