#include "tests/core/rank_world.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/remap.hpp"

namespace deepinfer::test {

scheduler_config small_config() {
  scheduler_config out;
  out.rank = {3};
  out.depth = 2;
  out.max_num_seqs = 8;
  out.max_num_batched_tokens = 4096;
  out.max_model_len = 256;
  out.num_kv_blocks = 1024;
  out.block_size = 4;
  out.state_slots = 16;
  out.eos = eos_id;
  out.eos_ids = {2};
  out.vocab_size = vocab;
  out.max_queued = 64;
  return out;
}

letter_texts::letter_texts() {
  for (token_id id = 0; id < vocab; ++id) {
    std::string text;
    auto number = mix(static_cast<std::uint64_t>(id) + 77);
    for (auto letters = 1 + number % 3; letters > 0; --letters) {
      number = mix(number);
      text += static_cast<char>('a' + static_cast<char>(number % 3));
    }
    texts_.push_back(text);
  }
}

std::string_view letter_texts::bytes(token_id token) const {
  return texts_.at(static_cast<std::size_t>(token));
}

rank_world::rank_world(scheduler_config config, std::uint64_t model_seed)
  : config_(config),
    seed_(model_seed),
    core_(config, &texts_),
    pool_({config.rank, config.num_kv_blocks, config.state_slots}),
    collector_(config.rank) {
  cells_.resize(static_cast<std::size_t>(config.num_kv_blocks) *
                static_cast<std::size_t>(config.block_size));
  slots_.resize(static_cast<std::size_t>(config.state_slots));
  newest_.clear();
}

seq_id rank_world::submit(std::int32_t prompt_tokens, sampling_params params,
                          std::int32_t stop_after, std::int32_t priority) {
  const seq_id id{++last_id_};
  std::vector<token_id> prompt;
  for (std::int32_t i = 0; i < prompt_tokens; ++i)
    prompt.push_back(word(mix(id.value * 1000 + static_cast<std::uint64_t>(i))));
  request_view view;
  view.request = {id, std::make_shared<const std::vector<token_id>>(std::move(prompt)),
                  std::make_shared<const sampling_params>(std::move(params)), priority};
  view.stop_after = stop_after;
  core_.submit(view.request, static_cast<std::int64_t>(id.value));
  views_.emplace(id.value, std::move(view));
  send();
  return id;
}

token_id rank_world::next_token(const request_view& view, std::uint64_t chain,
                                std::int64_t output) const {
  if (view.stop_after > 0 && output == view.stop_after) return eos_id;
  return word(chain);
}

void rank_world::check_plan(const step_plan& plan) {
  require(plan.step.value == launched_ + 1, "[I01] step {} launched after {}", plan.step.value,
          launched_);
  require(plan.rows() > 0, "[I01] step {} has no row", plan.step.value);
  std::int64_t width = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    auto& view = views_.at(plan.sequences[i].value);
    width += plan.widths[i];
    auto& table = host_tables_[plan.sequences[i].value];
    require(plan.table_begin[i] == static_cast<std::int32_t>(table.size()),
            "[I25] step {} writes ordinal {} of a table of {}", plan.step.value,
            plan.table_begin[i], table.size());
    for (const auto block : plan.row_blocks(static_cast<std::int32_t>(i))) {
      require(pool_.references(block) == 1, "[I17] step {} appends block {}, which is free",
              plan.step.value, block.value);
      for (const auto& [id, other] : host_tables_)
        require(std::find(other.begin(), other.end(), block) == other.end(),
                "[I17] block {} of sequence {} is in the table of {}", block.value,
                plan.sequences[i].value, id);
      table.push_back(block);
    }
    const auto overhang = plan.yields_max[i] > 0 ? config_.draft_overhang : 0;
    const auto need = plan.positions[i] + plan.widths[i] + overhang;
    peak_reserve = std::max<std::int64_t>(peak_reserve, need);
    peak_blocks = std::max(peak_blocks, static_cast<std::int64_t>(table.size()));
    const auto capacity = static_cast<std::int64_t>(table.size()) * config_.block_size;
    require(need <= capacity, "[I08] step {} may write {} tokens of a table of {}", plan.step.value,
            need, capacity);
    require(capacity < need + config_.block_size, "[I15] a table of {} tokens for {}", capacity,
            need);
    require(view.finals == 0, "[I54] ended sequence {} is in step {}", view.request.sequence.value,
            plan.step.value);
    const auto limit = output_limit(static_cast<std::int64_t>(view.request.prompt->size()),
                                    view.request.params->max_tokens, config_.max_model_len);
    require(static_cast<std::int64_t>(view.got.size()) + view.inflight_min < limit,
            "[I40] sequence {} is launched past its foreseen end", view.request.sequence.value);
    view.inflight_min += plan.yields_min[i];
    ++view.launches;
    if (plan.yields_min[i] > 0 && view.first_yield_step == 0)
      view.first_yield_step = plan.step.value;
  }
  require(width <= config_.max_num_batched_tokens, "[I06] step {} has {} tokens of {}",
          plan.step.value, width, config_.max_num_batched_tokens);
  check_remap(plan, newest_);
}

bool rank_world::launch() {
  step_plan plan;
  const auto before = core_.stats();
  if (!core_.plan(plan)) {
    require(core_.stats() == before, "[I09] a plan that failed has changed the core");
    require(plan.rows() == 0, "[I09] a plan that failed has {} rows", plan.rows());
    return false;
  }
  check_plan(plan);
  launched_ = plan.step.value;
  newest_ = plan;
  launched step{std::move(plan), {}};
  for (const auto id : step.plan.sequences) step.tables.push_back(host_tables_[id.value]);
  flying_.push_back(std::move(step));
  require(static_cast<std::int32_t>(flying_.size()) <= config_.depth, "[I01] {} steps in flight",
          flying_.size());
  send();
  return true;
}

std::uint64_t rank_world::read_prefix(const step_plan& plan, const device_slot& slot) {
  auto chain = mix(seed_);
  for (std::int64_t p = 0; p < slot.length; ++p) {
    const auto ordinal = static_cast<std::size_t>(p / config_.block_size);
    if (ordinal >= slot.table.size()) {
      require(false, "[I10] step {} reads position {} of a table of {}", plan.step.value, p,
              slot.table.size());
      return chain;
    }
    const auto& it = cells_[static_cast<std::size_t>(
      slot.table[ordinal].value * config_.block_size + p % config_.block_size)];
    require(it.sequence == slot.sequence.value && it.position == p,
            "[I17] step {}: block {} holds position {} of sequence {}, not {} of {}",
            plan.step.value, slot.table[ordinal].value, it.position, it.sequence, p,
            slot.sequence.value);
    chain = it.chain;
  }
  return chain;
}

void rank_world::write(const step_plan& plan, std::size_t row, device_slot& slot, token_id id) {
  require(0 <= id && id < vocab, "[I27] step {} is fed id {}", plan.step.value, id);
  const auto p = slot.length;
  require(p <= config_.max_model_len - 2, "[I11] step {} writes position {}", plan.step.value, p);
  const auto chain = next_chain(read_prefix(plan, slot), id);
  const auto ordinal = static_cast<std::size_t>(p / config_.block_size);
  if (ordinal >= slot.table.size())
    return require(false, "[I10] step {} row {} writes position {} of a table of {}",
                   plan.step.value, row, p, slot.table.size());
  const auto block = slot.table[ordinal];
  require(pool_.references(block) > 0, "[I17] step {} writes free block {}", plan.step.value,
          block.value);
  cells_[static_cast<std::size_t>(block.value * config_.block_size + p % config_.block_size)] = {
    slot.sequence.value, p, chain};
  slot.length = p + 1;
  written_end = std::max(written_end, slot.length);
}

token_id rank_world::run_row(const step_plan& plan, std::size_t row, device_slot& slot) {
  const auto id = plan.sequences[row];
  require(slot.sequence == id && slot.epoch == plan.epochs[row],
          "[I17] step {}: slot {} is of sequence {}, not {}", plan.step.value,
          plan.slots[row].value, slot.sequence.value, id.value);
  require(plan.positions[row] == slot.length,
          "[I05] step {} plans position {}, the device is at {}", plan.step.value,
          plan.positions[row], slot.length);
  auto ordinal = static_cast<std::size_t>(plan.table_begin[row]);
  for (const auto block : plan.row_blocks(static_cast<std::int32_t>(row))) {
    require(ordinal == slot.table.size(), "[I25] ordinal {} of a table of {} is written", ordinal,
            slot.table.size());
    slot.table.push_back(block);
    ++ordinal;
  }
  const auto source = plan.sources[row];
  if (source == from_fresh) {
    for (const auto token : plan.row_tokens(static_cast<std::int32_t>(row)))
      write(plan, row, slot, token);
  } else {
    const bool in_newest =
      sampled_step_ + 1 == plan.step.value && source < static_cast<std::int32_t>(sampled_.size());
    require(source == from_slot || in_newest, "[I26] step {} names row {} of step {}",
            plan.step.value, source, sampled_step_);
    const auto token =
      source == from_slot || !in_newest ? slot.last : sampled_[static_cast<std::size_t>(source)];
    require(token == slot.last, "[I26] step {}: row gives id {}, the slot {}", plan.step.value,
            token, slot.last);
    write(plan, row, slot, token);
  }
  if (plan.yields_max[row] == 0) return -1;
  const auto output = slot.length - slot.prompt + 1;
  slot.last = next_token(views_.at(id.value), read_prefix(plan, slot), output);
  return slot.last;
}

void rank_world::run(const launched& step, step_result& result) {
  const auto& plan = step.plan;
  for (const auto& start : plan.starts) {
    auto& slot = slots_.at(static_cast<std::size_t>(start.slot.value));
    slot = {start.sequence, start.epoch, 0, start.prompt_tokens, -1, {}};
  }
  std::vector<token_id> sampled;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    auto& slot = slots_.at(static_cast<std::size_t>(plan.slots[i].value));
    const auto token = run_row(plan, i, slot);
    require(slot.table == step.tables[i], "[I25] step {}: device table of row {} differs",
            plan.step.value, i);
    sampled.push_back(token);
    result.sequences.push_back(plan.sequences[i]);
    result.epochs.push_back(plan.epochs[i]);
    if (token >= 0) result.tokens.push_back(token);
    result.token_begin.push_back(static_cast<std::int32_t>(result.tokens.size()));
  }
  sampled_ = std::move(sampled);
  sampled_step_ = plan.step.value;
}

void rank_world::complete(errc code) {
  auto step = std::move(flying_.front());
  flying_.pop_front();
  step_result result;
  result.clear();
  run(step, result);  // a failed step may have written everything, too
  if (code != errc::ok) result.clear();
  result.step = step.plan.step;
  result.code = code;
  settled_ = step.plan.step.value;
  for (std::size_t i = 0; i < step.plan.sequences.size(); ++i) {
    auto& view = views_.at(step.plan.sequences[i].value);
    view.inflight_min -= step.plan.yields_min[i];
    if (view.finals > 0) ++view.overrun_rows;
    if (code != errc::ok && view.finals == 0) view.had_failure = true;
  }
  std::vector<bool> had_ended;
  for (const auto id : step.plan.sequences) had_ended.push_back(views_.at(id.value).finals > 0);
  std::vector<std::size_t> before;
  for (const auto id : step.plan.sequences) before.push_back(views_.at(id.value).got.size());
  core_.settle(result);
  send();
  if (code != errc::ok) return;
  for (std::size_t i = 0; i < step.plan.sequences.size(); ++i) {
    const auto& view = views_.at(step.plan.sequences[i].value);
    const auto row = static_cast<std::int32_t>(i);
    const auto gained = view.got.size() - before[i];
    require(gained == (had_ended[i] ? 0 : result.row_tokens(row).size()),
            "[I41] step {} gave row {} {} tokens, {} left at its settle", settled_, i,
            result.row_tokens(row).size(), gained);
  }
}

void rank_world::abort(seq_id sequence) {
  const auto found = views_.find(sequence.value);
  if (found != views_.end() && found->second.finals == 0) found->second.was_aborted = true;
  core_.abort(sequence, finish_reason::abort, errc::cancelled, "the client left");
  send();
}

void rank_world::note_chunks() {
  for (const auto& chunk : box_.chunks.chunks) {
    auto& view = views_.at(chunk.sequence.value);
    const auto id = chunk.sequence.value;
    require(view.finals == 0, "[I54] sequence {} is told something after its end", id);
    require(chunk.first_output == static_cast<std::int32_t>(view.got.size()),
            "[I35] sequence {} has {} tokens, the next chunk begins at {}", id, view.got.size(),
            chunk.first_output);
    if (view.got.empty() && !chunk.tokens.empty()) view.first_token_step = settled_;
    view.got.insert(view.got.end(), chunk.tokens.begin(), chunk.tokens.end());
    if (!chunk.finish) continue;
    ++view.finals;
    view.finish = *chunk.finish;
    host_tables_.erase(id);
    require(view.finish.usage.completion_tokens == static_cast<std::int32_t>(view.got.size()),
            "[I39] sequence {} is charged {} tokens, it has {}", id,
            view.finish.usage.completion_tokens, view.got.size());
    require(view.finish.usage.prompt_tokens ==
              static_cast<std::int32_t>(view.request.prompt->size()),
            "[I39] sequence {} is charged {} prompt tokens", id, view.finish.usage.prompt_tokens);
  }
}

void rank_world::send() {
  core_.take_outbox(box_);
  note_chunks();
  if (box_.has_leases()) to_collector_.push_back(box_.leases);
  if (box_.has_want()) asks_.push_back(box_.want);
  audit();
}

// Any message may be late, but each channel keeps its order.
bool rank_world::deliver(std::int32_t channel) {
  if (channel == 0 && !to_collector_.empty()) {
    auto freed_now = collector_.take(std::move(to_collector_.front()));
    to_collector_.pop_front();
    if (!freed_now.blocks.empty() || !freed_now.slots.empty())
      to_pool_.push_back(std::move(freed_now));
  } else if (channel == 1 && !to_pool_.empty()) {
    freed(to_pool_.front());
    auto granted = pool_.release(to_pool_.front());
    to_pool_.pop_front();
    if (!granted.blocks.empty() || !granted.slots.empty()) grants_.push_back(std::move(granted));
  } else if (channel == 2 && !asks_.empty()) {
    auto granted = pool_.reserve(asks_.front());
    asks_.pop_front();
    if (!granted.blocks.empty() || !granted.slots.empty()) grants_.push_back(std::move(granted));
  } else if (channel == 3 && !grants_.empty()) {
    core_.grant(grants_.front());
    grants_.pop_front();
    send();
  } else {
    return false;
  }
  pool_.check_invariants();
  return true;
}

void rank_world::deliver_all() {
  for (bool any = true; any;) {
    any = false;
    for (std::int32_t channel = 0; channel < 4; ++channel)
      while (deliver(channel)) any = true;
  }
}

void rank_world::freed(const kv_release& done) {
  for (const auto block : done.blocks) {
    for (const auto& step : flying_)
      for (const auto& table : step.tables)
        require(std::find(table.begin(), table.end(), block) == table.end(),
                "[I17] block {} is freed, step {} still reads it", block.value,
                step.plan.step.value);
    const auto first = static_cast<std::size_t>(block.value * config_.block_size);
    for (std::int32_t i = 0; i < config_.block_size; ++i)
      cells_[first + static_cast<std::size_t>(i)] = {0, -7, 0xDEAD};
  }
  for (const auto slot : done.slots) {
    for (const auto& step : flying_)
      require(std::find(step.plan.slots.begin(), step.plan.slots.end(), slot) ==
                step.plan.slots.end(),
              "[I17] slot {} is freed, step {} still uses it", slot.value, step.plan.step.value);
    slots_[static_cast<std::size_t>(slot.value)] = {};
  }
}

// Nothing is lost and nothing is double: conservation of blocks and slots, after every event.
void rank_world::audit() {
  core_.check_invariants();
  const auto s = core_.stats();
  auto blocks = pool_.free_blocks() + s.credit_blocks + s.table_blocks + collector_.parked_blocks();
  auto slots = pool_.free_slots() + s.credit_slots + s.held_slots + collector_.parked_slots();
  const auto add = [&](const auto& it) {
    blocks += static_cast<std::int64_t>(it.blocks.size());
    slots += static_cast<std::int64_t>(it.slots.size());
  };
  for (const auto& message : to_collector_)
    for (const auto& entry : message.entries) add(entry);
  for (const auto& message : to_pool_) add(message);
  for (const auto& message : grants_) add(message);
  require(blocks == config_.num_kv_blocks, "[I12] {} blocks of {} after step {}", blocks,
          config_.num_kv_blocks, settled_);
  require(slots == config_.state_slots, "[I12] {} slots of {} after step {}", slots,
          config_.state_slots, settled_);
  require(s.running <= config_.max_num_seqs, "[I07] {} active sequences", s.running);
  std::int64_t fewest = 0;
  for (const auto& [id, view] : views_) fewest += view.inflight_min;
  require(s.inflight_tokens == fewest || s.ended > 0, "[I02] {} tokens in flight, rows give {}",
          s.inflight_tokens, fewest);
}

bool rank_world::finish() {
  core_.resume();
  for (std::int32_t turns = 0; turns < 100000; ++turns) {
    deliver_all();
    bool moved = false;
    while (launch()) moved = true;
    if (!flying_.empty()) {
      complete();
      moved = true;
    }
    if (!core_.has_work()) {
      deliver_all();
      return true;
    }
    if (!moved) {
      deliver_all();
      if (!launch()) return false;
    }
  }
  return false;
}

}  // namespace deepinfer::test
