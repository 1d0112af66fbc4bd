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

namespace {

std::vector<std::string> make_letters() {
  std::vector<std::string> out;
  for (token_id id = 0; id < vocab; ++id) {
    std::string text;
    auto number = mix(static_cast<std::uint64_t>(id) + 77);
    for (auto letters = 1 + number % 3; letters > 0; --letters) {
      number = mix(number);
      text += static_cast<char>('a' + static_cast<char>(number % 3));
    }
    out.push_back(text);
  }
  return out;
}

const std::vector<std::string>& letters() {
  static const auto texts = make_letters();
  return texts;
}

}  // namespace

sampling_params tokens(std::int32_t max_tokens) {
  sampling_params p;
  p.max_tokens = max_tokens;
  return p;
}

std::string_view letter_texts::bytes(token_id token) const {
  return letters().at(static_cast<std::size_t>(token));
}

rank_world::rank_world(scheduler_config config, std::uint64_t model_seed, std::int32_t host_blocks)
  : config_(config),
    seed_(model_seed),
    core_(config, {.texts = &texts_}),
    pool_({.rank = config.rank,
           .num_kv_blocks = config.num_kv_blocks,
           .state_slots = config.state_slots,
           .block_size = config.block_size,
           .host_blocks = host_blocks}),
    collector_(config.rank) {
  cells_.resize(static_cast<std::size_t>(config.num_kv_blocks + host_blocks) *
                static_cast<std::size_t>(config.block_size));
  slots_.resize(static_cast<std::size_t>(config.state_slots));
  newest_.clear();
}

seq_id rank_world::submit(std::int32_t prompt_tokens, sampling_params params,
                          std::int32_t stop_after, std::int32_t priority) {
  std::vector<token_id> prompt;
  for (std::int32_t i = 0; i < prompt_tokens; ++i) {
    const auto text = i < shared_ids_ ? 1 : (last_id_ + 1) * 1000;
    prompt.push_back(word(mix(text + static_cast<std::uint64_t>(i))));
  }
  return submit(std::move(prompt), std::move(params), stop_after, priority);
}

seq_id rank_world::submit(std::vector<token_id> prompt, sampling_params params,
                          std::int32_t stop_after, std::int32_t priority) {
  const seq_id id{++last_id_};
  request_view view;
  view.request = {id, std::make_shared<const std::vector<token_id>>(std::move(prompt)),
                  std::make_shared<const sampling_params>(std::move(params)), priority};
  view.stop_after = stop_after;
  const auto turn = static_cast<std::ptrdiff_t>(id.value % 3);
  std::rotate(view.accept.begin(), view.accept.begin() + turn, view.accept.end());
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

void rank_world::check_blocks(const step_plan& plan, std::size_t row) {
  const auto id = plan.sequences[row];
  auto& table = host_tables_[id.value];
  require(plan.table_begin[row] == static_cast<std::int32_t>(table.size()),
          "[I25] step {} writes ordinal {} of a table of {}", plan.step.value,
          plan.table_begin[row], table.size());
  for (const auto block : plan.row_blocks(static_cast<std::int32_t>(row))) {
    require(pool_.references(block) >= 1, "[I17] step {} appends block {}, which is free",
            plan.step.value, block.value);
    // With a cache others may hold it as well where the row reads it, never where it writes.
    const auto end = (std::ssize(table) + 1) * config_.block_size;
    const bool is_hit = config_.prefix_cache && end <= plan.positions[row];
    for (const auto& [other_id, other] : host_tables_)
      require(is_hit || std::find(other.begin(), other.end(), block) == other.end(),
              "[I17][I48] step {} writes block {} of sequence {}, it is in the table of {}",
              plan.step.value, block.value, id.value, other_id);
    table.push_back(block);
  }
  const auto* sequence = core_.find(id);
  if (!sequence)
    return require(false, "step {} names unknown sequence {}", plan.step.value, id.value);
  const auto overhang = plan.yields_max[row] > 0 ? config_.draft_overhang : 0;
  const auto need = plan.positions[row] + plan.widths[row] + overhang;
  peak_reserve = std::max<std::int64_t>(peak_reserve, need);
  peak_blocks = std::max(peak_blocks, static_cast<std::int64_t>(table.size()));
  const auto capacity = static_cast<std::int64_t>(table.size()) * config_.block_size;
  require(need <= capacity, "[I08] step {} may write {} tokens of a table of {}", plan.step.value,
          need, capacity);
  const auto margin = std::int64_t{config_.depth} * (1 + config_.num_drafts);
  const auto most = std::max({sequence->ledger.committed() + margin, sequence->fill_end,
                              std::int64_t{plan.positions[row]} + plan.widths[row]}) +
                    config_.draft_overhang;
  require(capacity < most + config_.block_size, "[I15] a table of {} tokens where {} do", capacity,
          most);
}

void rank_world::check_row(const step_plan& plan, std::size_t row) {
  auto& view = views_.at(plan.sequences[row].value);
  for (const auto& start : plan.starts) {
    if (start.sequence != plan.sequences[row]) continue;
    host_tables_[start.sequence.value].clear();
    view.inflight_min = view.inflight_max = 0;
    view.epoch = start.epoch;
    view.delivers = ~0u;
    require(start.outputs == static_cast<std::int32_t>(view.got.size()),
            "[I53] sequence {} starts with {} outputs, it has {}", start.sequence.value,
            start.outputs, view.got.size());
  }
  require(plan.epochs[row] == view.epoch, "[I04] step {} names epoch {} of sequence {}, it is {}",
          plan.step.value, plan.epochs[row], plan.sequences[row].value, view.epoch);
  check_blocks(plan, row);
  require(!view.is_held, "held sequence {} is in step {}", view.request.sequence.value,
          plan.step.value);
  require(view.finals == 0, "[I54] ended sequence {} is in step {}", view.request.sequence.value,
          plan.step.value);
  const auto limit = output_limit(static_cast<std::int64_t>(view.request.prompt->size()),
                                  view.request.params->max_tokens, config_.max_model_len);
  require(
    static_cast<std::int64_t>(view.got.size()) + view.inflight_min < limit,
    "[I40] step {}: sequence {} is launched past its foreseen end: {} outputs, {} at least in "
    "flight, {} wanted",
    plan.step.value, view.request.sequence.value, view.got.size(), view.inflight_min, limit);
  view.inflight_min += plan.yields_min[row];
  view.inflight_max += plan.yields_max[row];
  ++view.launches;
  if (plan.yields_min[row] > 0 && view.first_yield_step == 0)
    view.first_yield_step = plan.step.value;
}

void rank_world::check_plan(const step_plan& plan) {
  require(plan.step.value == launched_ + 1, "[I01] step {} launched after {}", plan.step.value,
          launched_);
  require(plan.rows() > 0, "[I01] step {} has no row", plan.step.value);
  std::int64_t width = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    width += plan.widths[i];
    check_row(plan, i);
  }
  require(width <= config_.max_num_batched_tokens, "[I06] step {} has {} tokens of {}",
          plan.step.value, width, config_.max_num_batched_tokens);
  require(width == plan.total_width, "[I06] step {} says {} tokens, its rows have {}",
          plan.step.value, plan.total_width, width);
  check_remap(plan, newest_);
}

bool rank_world::launch() {
  step_plan plan;
  if (!core_.plan(plan)) {
    require(plan.rows() == 0, "[I09] a plan that failed has {} rows", plan.rows());
    send();
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

void rank_world::complete(errc code) {
  auto step = std::move(flying_.front());
  flying_.pop_front();
  step_result result;
  result.clear();
  run(step, result);
  if (code != errc::ok) {  // it may have written everything, but nobody may count on it
    result.clear();
    for (const auto index : written_) cells_[index].is_void = true;
    for (const auto& move : step.plan.moves)
      note_unknown(static_cast<std::size_t>(move.to_host ? config_.num_kv_blocks + move.host
                                                         : move.block.value),
                   launched_);
    moves_failed += std::ssize(step.plan.moves);
  }
  result.step = step.plan.step;
  result.code = code;
  settled_ = step.plan.step.value;
  std::vector<request_view> before;
  for (std::size_t i = 0; i < step.plan.sequences.size(); ++i) {
    auto& view = views_.at(step.plan.sequences[i].value);
    if (step.plan.epochs[i] == view.epoch) {
      view.inflight_min -= step.plan.yields_min[i];
      view.inflight_max -= step.plan.yields_max[i];
    }
    if (view.finals > 0) ++view.overrun_rows;
    if (code != errc::ok && view.finals == 0) view.had_failure = true;
    if (code != errc::ok && step.plan.epochs[i] == view.delivers) view.delivers = ~0u;
    before.push_back(view);
  }
  core_.settle(result);
  send();
  check_gains(step, result, before);
  if (code == errc::ok && result.row_errors.empty()) return;
  // Whoever has begun behind the step may be computed again, although only one of its rows is void.
  for (auto& [id, view] : views_) {
    const auto* sequence = core_.find({id});
    if (!sequence || sequence->phase != sequence_phase::preempted) view.delivers = ~0u;
  }
}

// A row of its sequence's life, or of the one that was taken away and is to be delivered, gives its
// tokens at its settle; any other gives none, nor one that stands on a failed step.
void rank_world::check_gains(const launched& step, const step_result& result,
                             const std::vector<request_view>& before) {
  for (std::size_t i = 0; i < step.plan.sequences.size(); ++i) {
    const auto& view = views_.at(step.plan.sequences[i].value);
    const auto has_failed = result.code != errc::ok;
    const auto given = has_failed ? 0 : result.row_tokens(static_cast<std::int32_t>(i)).size();
    const auto gained = view.got.size() - before[i].got.size();
    const auto epoch = step.plan.epochs[i];
    const bool counts = before[i].finals == 0 && !on_void_[i] &&
                        (epoch == before[i].epoch || epoch == before[i].delivers);
    require(gained <= (counts ? given : 0), "[I41] step {} gave row {} {} tokens, {} left",
            settled_, i, given, gained);
    require(!counts || view.finals > 0 || gained == given,
            "[I41] step {} gave row {} {} tokens, {} left at its settle", settled_, i, given,
            gained);
  }
}

void rank_world::preempt(seq_id sequence) {
  core_.preempt(sequence);
  send();
}

void rank_world::hold(seq_id sequence, bool is_held) {
  if (const auto found = views_.find(sequence.value); found != views_.end())
    found->second.is_held = is_held;
  core_.hold(sequence, is_held);
  send();
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

// The core may have returned the tail of a table; what is left is as it was. That the tail is not
// lost and not double is for the audit.
void rank_world::cut_tables() {
  for (auto& [id, table] : host_tables_) {
    const auto* sequence = core_.find({id});
    if (!sequence || sequence->ledger.epoch() != views_.at(id).epoch) continue;
    const auto held = sequence->lease.blocks();
    require(held.size() <= table.size() && std::equal(held.begin(), held.end(), table.begin()),
            "[I25] sequence {} holds {} blocks that are not the first of its table of {}", id,
            held.size(), table.size());
    table.assign(held.begin(), held.end());
  }
}

void rank_world::send() {
  core_.take_outbox(box_);
  for (const auto& [id, why] : box_.preempted) {
    auto& view = views_.at(id.value);
    ++view.preemptions;
    const auto* sequence = core_.find(id);
    const bool waits = sequence && sequence->phase == sequence_phase::preempted;
    view.delivers = waits ? view.epoch : ~0u;
  }
  note_chunks();  // a sequence may have had its first token and be computed again
  for (auto& [id, view] : views_) {
    const auto* sequence = core_.find({id});
    if (!sequence || sequence->phase == sequence_phase::running ||
        sequence->phase == sequence_phase::retiring)
      continue;
    host_tables_.erase(id);
    view.inflight_min = view.inflight_max = 0;
    view.epoch = ~0u;  // until it starts again
    const bool waits = sequence && sequence->phase == sequence_phase::queued;
    if (waits && view.got.empty()) view.first_yield_step = 0;
  }
  cut_tables();
  if (box_.has_want()) {
    asks_.push_back(box_.want);
    ++asks_sent_;
  }
  if (box_.has_leases()) to_collector_.push_back({box_.leases, asks_sent_});
  audit();
}

// Any message may be late, but each channel keeps its order.
bool rank_world::deliver(std::int32_t channel) {
  if (channel == 0 && !to_collector_.empty()) {
    // Messages are causal: what was asked before a lease came back is there before it.
    while (asks_taken_ < to_collector_.front().asks_before) deliver(2);
    auto freed_now = collector_.take(std::move(to_collector_.front().leases));
    to_collector_.pop_front();
    if (!freed_now.blocks.empty() || !freed_now.slots.empty())
      to_pool_.push_back(std::move(freed_now));
  } else if (channel == 1 && !to_pool_.empty()) {
    freed(to_pool_.front());
    auto granted = pool_.release(to_pool_.front());
    to_pool_.pop_front();
    if (!granted.is_empty()) grants_.push_back(std::move(granted));
  } else if (channel == 2 && !asks_.empty()) {
    auto granted = pool_.reserve(asks_.front());
    const bool must_answer = asks_.front().must_answer;
    asks_.pop_front();
    ++asks_taken_;
    if (!granted.is_empty() || must_answer) grants_.push_back(std::move(granted));
  } else if (channel == 3 && !grants_.empty()) {
    core_.grant(grants_.front());
    grants_.pop_front();
    send();
  } else {
    return false;
  }
  if (is_watched_) pool_.check_invariants();
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
    if (config_.prefix_cache) continue;  // it may be kept, or be in other tables
    for (const auto& step : flying_)
      for (const auto& table : step.tables)
        require(std::find(table.begin(), table.end(), block) == table.end(),
                "[I17] block {} is freed, step {} still reads it", block.value,
                step.plan.step.value);
    const auto first = static_cast<std::size_t>(block.value * config_.block_size);
    for (std::int32_t i = 0; i < config_.block_size; ++i)
      cells_[first + static_cast<std::size_t>(i)] = {-7, 0xDEAD, false};
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
  if (!is_watched_) return;
  core_.check_invariants();
  const auto s = core_.stats();
  auto blocks = pool_.free_blocks() + s.credit_blocks + s.table_blocks + collector_.parked_blocks();
  auto slots = pool_.free_slots() + s.credit_slots + s.held_slots + collector_.parked_slots();
  const auto add = [&](const auto& it) {
    blocks += static_cast<std::int64_t>(it.blocks.size());
    slots += static_cast<std::int64_t>(it.slots.size());
  };
  for (const auto& message : to_collector_)
    for (const auto& entry : message.leases.entries) add(entry);
  for (const auto& message : to_pool_) add(message);
  for (const auto& message : grants_) add(message);
  require(config_.prefix_cache || blocks == config_.num_kv_blocks,
          "[I12] {} blocks of {} after step {}", blocks, config_.num_kv_blocks, settled_);
  require(slots == config_.state_slots, "[I12] {} slots of {} after step {}", slots,
          config_.state_slots, settled_);
  require(s.running <= config_.max_num_seqs, "[I07] {} active sequences", s.running);
  std::int64_t most = 0;
  for (const auto& [id, view] : views_) most += view.inflight_max;
  require(s.inflight_tokens == most || s.ended > 0 || s.failed_steps > 0,
          "[I02] {} tokens in flight, rows give {}", s.inflight_tokens, most);
}

bool rank_world::finish() {
  for (const auto& [id, view] : views_)
    if (view.is_held) hold({id}, false);
  return finish_the_others();
}

bool rank_world::finish_the_others() {
  core_.resume();
  for (std::int32_t turns = 0; turns < 100000; ++turns) {
    deliver_all();
    bool moved = false;
    while (launch()) moved = true;
    if (!flying_.empty()) {
      complete();
      moved = true;
    }
    const auto is_over = [this] { return !core_.has_wanted() && core_.in_flight() == 0; };
    if (is_over()) {
      deliver_all();
      return true;
    }
    for (std::int32_t idle = 0; !moved && !is_over(); ++idle) {
      deliver_all();
      if (launch()) break;
      if (idle > 8 && !core_.has_made_room()) return false;
    }
  }
  return false;
}

}  // namespace deepinfer::test
