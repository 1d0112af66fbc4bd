#include "runtime/core/scheduler_core.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

sequence_finish finish_of(finish_reason reason, errc code, std::string message) {
  sequence_finish out;
  out.reason = reason;
  out.code = code;
  out.message = std::move(message);
  return out;
}

void clear(scheduler_outbox& box) {
  box.chunks.chunks.clear();
  box.leases.entries.clear();
  box.want = {};
  box.leases_due = false;
}

}  // namespace

scheduler_core::scheduler_core(scheduler_config config, const token_texts* texts)
  : config_(std::move(config)),
    texts_(texts),
    shape_{config_.depth, config_.num_drafts, config_.draft_overhang},
    depth_(config_.depth),
    book_(config_.num_kv_blocks, config_.state_slots) {
  const auto& c = config_;
  DI_CHECK(1 <= c.depth && c.depth <= depth_limit, "depth {}, at most {}", c.depth, depth_limit);
  DI_CHECK(c.num_drafts >= 0, "{} drafts", c.num_drafts);
  DI_CHECK(c.draft_overhang >= 0, "a drafter that writes {} further", c.draft_overhang);
  DI_CHECK(c.max_num_seqs > 0, "{} active sequences", c.max_num_seqs);
  DI_CHECK(c.max_num_batched_tokens > 0, "{} tokens a step", c.max_num_batched_tokens);
  DI_CHECK(c.chunk_size >= 0, "chunks of {}", c.chunk_size);
  DI_CHECK(c.max_model_len > 1, "length {}", c.max_model_len);
  DI_CHECK(c.num_kv_blocks > 0, "{} blocks", c.num_kv_blocks);
  DI_CHECK(c.block_size > 0, "blocks of {}", c.block_size);
  DI_CHECK(c.state_slots > 0, "{} slots", c.state_slots);
  DI_CHECK(c.vocab_size > 0, "a vocabulary of {}", c.vocab_size);
  DI_CHECK(c.max_queued > 0, "a queue of {}", c.max_queued);

  // What a plan touches gets its final size here.
  const auto rows = static_cast<std::size_t>(std::min(c.max_num_seqs, c.max_num_batched_tokens));
  for (auto& record : records_) {
    record.rows.reserve(rows);
    record.epochs.reserve(rows);
  }
  picks_.reserve(rows);
  candidates_.reserve(static_cast<std::size_t>(c.max_num_seqs));
  running_.reserve(static_cast<std::size_t>(c.max_num_seqs));
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
    if (id < 0 || id >= c.vocab_size)
      return fail(errc::invalid_argument,
                  fmt::format("prompt token {} is id {}, expected 0..{}", i, id, c.vocab_size - 1),
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
  if (!texts_ && !request.params->stop.empty())
    return fail(errc::invalid_argument, "stop strings need a tokenizer, and there is none", "stop");
  const auto tokens = promise_tokens(prompt, request.params->max_tokens, c.max_model_len, shape_);
  const auto blocks = blocks_for(tokens, c.block_size);
  if (blocks > c.num_kv_blocks)
    return fail(errc::no_blocks,
                fmt::format("the sequence may need {} KV blocks ({} tokens), the rank has {}",
                            blocks, tokens, c.num_kv_blocks));
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
  stop_rule rule(*request.params, config_.eos, config_.eos_ids, limit, texts_);
  const auto id = request.sequence;
  const auto place = admission_queue::key_of(request.priority, ++arrivals_);
  auto sequence =
    std::make_unique<sequence_state>(std::move(request), now_us, place, std::move(rule));
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
  sequence_chunk chunk;
  chunk.sequence = sequence;
  chunk.first_output = static_cast<std::int32_t>(found->second->ledger.emitted());
  end(*found->second, finish_of(reason, code, std::string(message)), std::move(chunk));
}

void scheduler_core::grant(const kv_grant& granted) {
  credit_blocks_.insert(credit_blocks_.end(), granted.blocks.begin(), granted.blocks.end());
  credit_slots_.insert(credit_slots_.end(), granted.slots.begin(), granted.slots.end());
  owed_blocks_ -= std::min(owed_blocks_, static_cast<std::int64_t>(granted.blocks.size()));
  owed_slots_ -= std::min(owed_slots_, static_cast<std::int64_t>(granted.slots.size()));
}

void scheduler_core::leave_running(const sequence_state& sequence) {
  const auto at = std::find(running_.begin(), running_.end(), &sequence);
  DI_CHECK(at != running_.end(), "sequence {} does not run", sequence.id().value);
  running_.erase(at);
}

void scheduler_core::end(sequence_state& sequence, sequence_finish finish, sequence_chunk chunk) {
  switch (sequence.phase) {
  case sequence_phase::queued: queue_.remove(sequence.place); break;
  case sequence_phase::running: leave_running(sequence); break;
  case sequence_phase::retiring: --retiring_; break;
  case sequence_phase::ended: DI_CHECK(false, "sequence {} ends twice", sequence.id().value); break;
  }
  finish.usage.prompt_tokens = static_cast<std::int32_t>(sequence.prompt_tokens());
  finish.usage.completion_tokens = static_cast<std::int32_t>(sequence.ledger.emitted());
  chunk.finish = std::move(finish);
  outbox_.chunks.chunks.push_back(std::move(chunk));
  ++totals_.final_records;
  if (sequence.phase != sequence_phase::queued) give_back(sequence);
  sequence.phase = sequence_phase::ended;
  ++ended_;
  erase_if_unreferenced(sequence);
}

void scheduler_core::give_back(sequence_state& sequence) {
  book_.keep(std::exchange(sequence.promised_blocks, 0));
  auto entry = sequence.lease.park_all(sequence.ledger.newest());
  if (settled_ < entry.fence.value)
    book_.park(entry.fence, static_cast<std::int64_t>(entry.blocks.size()),
               static_cast<std::int64_t>(entry.slots.size()));
  park(std::move(entry));
}

void scheduler_core::park(lease_return::parked entry) {
  parked_fence_ = std::max(parked_fence_, entry.fence.value);
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
  outbox_.chunks.rank = outbox_.leases.rank = config_.rank;
  outbox_.chunks.step = outbox_.leases.settled = {settled_};
  outbox_.want = next_want();
  owed_blocks_ += outbox_.want.blocks;
  owed_slots_ += outbox_.want.slots;
  std::swap(out, outbox_);
}

void scheduler_core::set_depth(std::int32_t depth) {
  DI_CHECK(1 <= depth && depth <= config_.depth, "depth {}, expected 1..{}", depth, config_.depth);
  depth_ = depth;
}

std::vector<sequence_request> scheduler_core::fail_all_started(errc code,
                                                               std::string_view message) {
  std::vector<sequence_request> waiting;
  for (const auto& [place, sequence] : queue_) waiting.push_back(sequence->request);
  // Arrival order, so that the records do not depend on a hash table.
  std::vector<sequence_state*> started;
  for (const auto& [id, sequence] : sequences_)
    if (sequence->phase == sequence_phase::running || sequence->phase == sequence_phase::retiring)
      started.push_back(sequence.get());
  std::sort(started.begin(), started.end(),
            [](const auto* a, const auto* b) { return a->place.arrival < b->place.arrival; });
  for (auto* sequence : started) {
    sequence->lease.forget();
    sequence_chunk chunk;
    chunk.sequence = sequence->id();
    chunk.first_output = static_cast<std::int32_t>(sequence->ledger.emitted());
    chunk.finish = finish_of(finish_reason::error, code, std::string(message));
    chunk.finish->usage.prompt_tokens = static_cast<std::int32_t>(sequence->prompt_tokens());
    chunk.finish->usage.completion_tokens = static_cast<std::int32_t>(sequence->ledger.emitted());
    outbox_.chunks.chunks.push_back(std::move(chunk));
    ++totals_.final_records;
  }
  queue_.clear();
  running_.clear();
  sequences_.clear();
  retiring_ = ended_ = 0;
  book_.reset();
  credit_blocks_.clear();
  credit_slots_.clear();
  owed_blocks_ = owed_slots_ = 0;
  settled_ = launched_;
  for (auto& record : records_) record.rows.clear();
  parked_fence_ = 0;
  outbox_.leases.entries.clear();
  outbox_.leases_due = false;
  return waiting;
}

}  // namespace deepinfer
