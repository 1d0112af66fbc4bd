#include "tests/core/naive_pool.hpp"

#include <algorithm>

namespace deepinfer::test {
namespace {

std::vector<std::int32_t> counting_down(std::int32_t count) {
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0; i < count; ++i) out.insert(out.begin(), i);
  return out;
}

std::int32_t pop(std::vector<std::int32_t>& stack) {
  const auto last = stack.back();
  stack.pop_back();
  return last;
}

std::int32_t pop(std::list<std::int32_t>& order) {
  const auto first = order.front();
  order.pop_front();
  return first;
}

}  // namespace

naive_pool::naive_pool(const kv_pool_config& config)
  : config_(config),
    free_(counting_down(config.num_kv_blocks)),
    free_places_(counting_down(config.host_blocks)),
    free_slots_(counting_down(config.state_slots)) {
  for (const auto block : free_) refs_[block] = 0;
}

std::int64_t naive_pool::held_blocks() const {
  return std::ranges::count_if(refs_, [](const auto& it) { return it.second > 0; });
}

const naive_pool::name* naive_pool::name_of_block(std::int32_t block) const {
  for (const auto& [at, it] : names_)
    if (!it.on_host && it.number == block) return &it;
  return nullptr;
}

void naive_pool::forget_block(std::int32_t block) {
  std::erase_if(names_,
                [&](const auto& it) { return !it.second.on_host && it.second.number == block; });
}

void naive_pool::publish(std::int32_t block, key at, std::vector<token_id> ids,
                         std::uint64_t pending) {
  const auto found = names_.find(at);
  if (found == names_.end()) {
    names_[at] = {false, block, std::move(ids), pending};
    return;
  }
  auto& old = found->second;
  if (!old.on_host && old.number == block) {
    if (old.pending == 0 || pending == 0)
      old.pending = 0;
    else
      old.pending = std::max(old.pending, pending);
  } else if (old.on_host && pending == 0 && old.ids == ids) {
    spilled_.remove(old.number);
    free_places_.push_back(old.number);
    old = {false, block, std::move(ids), 0};
  }
}

void naive_pool::look_up(const prefix_lookup& lookup, kv_grant& out) {
  const auto size = static_cast<std::size_t>(config_.block_size);
  prefix_hit hit{lookup.sequence, lookup.epoch, {}, {}, {}};
  std::vector<std::uint64_t> waits;
  for (std::size_t i = 0; i < lookup.keys.size(); ++i) {
    const auto begin = lookup.ids->begin() + static_cast<std::ptrdiff_t>(i * size);
    const std::vector<token_id> ids(begin, begin + config_.block_size);
    const auto found = names_.find({lookup.keys[i].high, lookup.keys[i].low});
    if (found == names_.end()) break;
    auto& it = found->second;
    if (it.ids != ids) {
      ++counters_.other_ids;
      break;
    }
    if (it.on_host) {
      if (free_.empty() && cached_.empty()) break;
      if (free_.empty()) evict(out, it.number);
      const auto block = pop(free_);
      out.moves.push_back({{block}, it.number, false});
      ++counters_.host_hits;
      spilled_.remove(it.number);
      free_places_.push_back(it.number);
      it.on_host = false;
      it.number = block;
    }
    cached_.remove(it.number);
    ++refs_[it.number];
    if (it.pending != 0) waits.push_back(it.pending);
    hit.blocks.push_back({it.number});
  }
  if (!waits.empty()) {
    hit.pending_first = {std::ranges::min(waits)};
    hit.pending_last = {std::ranges::max(waits)};
  }
  counters_.query_tokens += static_cast<std::int64_t>(lookup.keys.size() * size);
  counters_.hit_tokens += static_cast<std::int64_t>(hit.blocks.size() * size);
  out.hits.push_back(hit);
}

void naive_pool::evict(kv_grant& out, std::int32_t kept_place) {
  const auto block = pop(cached_);
  ++counters_.evictions;
  free_.push_back(block);
  if (config_.host_blocks == 0) return forget_block(block);
  if (free_places_.empty()) {
    const auto found =
      std::ranges::find_if(spilled_, [&](std::int32_t place) { return place != kept_place; });
    if (found == spilled_.end()) return forget_block(block);
    const auto oldest = *found;
    spilled_.erase(found);
    std::erase_if(names_,
                  [&](const auto& it) { return it.second.on_host && it.second.number == oldest; });
    free_places_.push_back(oldest);
  }
  const auto place = pop(free_places_);
  spilled_.push_back(place);
  for (auto& [at, it] : names_)
    if (!it.on_host && it.number == block) {
      it.on_host = true;
      it.number = place;
      break;
    }
  ++counters_.spills;
  out.moves.push_back({{block}, place, true});
}

void naive_pool::pay(kv_grant& out) {
  while (owed_blocks_ > 0 && !free_.empty()) {
    const auto block = pop(free_);
    refs_[block] = 1;
    out.blocks.push_back({block});
    --owed_blocks_;
  }
  while (owed_slots_ > 0 && !free_slots_.empty()) {
    out.slots.push_back({pop(free_slots_)});
    --owed_slots_;
  }
}

kv_grant naive_pool::reserve(const kv_reserve& want) {
  kv_grant out;
  for (std::size_t i = 0; i < want.publish.blocks.size(); ++i) {
    const auto begin =
      want.publish.ids.begin() + static_cast<std::ptrdiff_t>(i) * config_.block_size;
    publish(want.publish.blocks[i].value, {want.publish.keys[i].high, want.publish.keys[i].low},
            {begin, begin + config_.block_size}, want.publish.pending[i].value);
  }
  for (const auto step : want.retract)
    std::erase_if(names_, [&](const auto& it) { return it.second.pending == step.value; });
  if (want.forget) forget_all();
  out.has_forgotten = want.forget;
  for (const auto& lookup : want.lookups) look_up(lookup, out);
  owed_blocks_ += want.blocks;
  owed_slots_ += want.slots;
  pay(out);
  for (std::int32_t i = 0; i < want.evict; ++i)
    if (owed_blocks_ > 0 && !cached_.empty()) {
      evict(out);
      pay(out);
    }
  return out;
}

kv_grant naive_pool::release(const kv_release& done) {
  for (const auto block : done.blocks) {
    if (--refs_[block.value] > 0) continue;
    const auto* it = name_of_block(block.value);
    if (it && it->pending == 0) {
      cached_.push_back(block.value);
    } else {
      forget_block(block.value);
      free_.push_back(block.value);
    }
  }
  for (const auto slot : done.slots) free_slots_.push_back(slot.value);
  kv_grant out;
  pay(out);
  return out;
}

void naive_pool::forget_all() {
  names_.clear();
  free_.insert(free_.end(), cached_.begin(), cached_.end());
  cached_.clear();
  spilled_.clear();
  free_places_ = counting_down(config_.host_blocks);
}

kv_grant naive_pool::flush() {
  forget_all();
  kv_grant out;
  pay(out);
  return out;
}

std::vector<std::int64_t> naive_pool::state() const {
  std::vector<std::int64_t> out;
  const auto add = [&out](const auto& list) {
    out.push_back(static_cast<std::int64_t>(list.size()));
    out.insert(out.end(), list.begin(), list.end());
  };
  add(free_);
  add(free_places_);
  add(cached_);
  add(spilled_);
  for (const auto& [block, refs] : refs_) out.push_back(refs);
  for (const auto& [at, it] : names_) {
    out.insert(out.end(), {static_cast<std::int64_t>(at.first), it.on_host, it.number,
                           static_cast<std::int64_t>(it.pending)});
    add(it.ids);
  }
  out.push_back(owed_blocks_);
  return out;
}

}  // namespace deepinfer::test
