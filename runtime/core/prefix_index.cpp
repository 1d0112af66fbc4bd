#include "runtime/core/prefix_index.hpp"

#include <algorithm>
#include <bit>

#include "runtime/base/check.hpp"

namespace deepinfer {

prefix_index::prefix_index(const prefix_index_config& config)
  : blocks_(config.blocks),
    block_size_(config.block_size),
    cached_(config.blocks),
    spilled_(config.host_blocks) {
  const auto homes = at(config.blocks) + at(config.host_blocks);
  homes_.resize(homes);
  ids_.resize(homes * at(block_size_));
  buckets_.resize(std::bit_ceil(2 * homes), nowhere);
  free_places_.reserve(at(config.host_blocks));
  for (auto place = config.host_blocks; place-- > 0;) free_places_.push_back(place);
}

std::span<const token_id> prefix_index::ids_of(std::int32_t number) const {
  return std::span(ids_).subspan(at(number) * at(block_size_), at(block_size_));
}

bool prefix_index::has_ids(std::int32_t number, std::span<const token_id> ids) const {
  return std::ranges::equal(ids_of(number), ids);
}

std::int32_t prefix_index::home_of(prefix_key key) const {
  auto number = buckets_[bucket_of(key)];
  while (number != nowhere && homes_[at(number)].key != key) number = homes_[at(number)].next;
  return number;
}

void prefix_index::name(std::int32_t number, prefix_key key, std::span<const token_id> ids,
                        step_id pending) {
  auto& first = buckets_[bucket_of(key)];
  homes_[at(number)] = {key, pending, true, first};
  first = number;
  std::ranges::copy(ids, ids_.begin() + static_cast<std::ptrdiff_t>(number) * block_size_);
}

void prefix_index::forget(std::int32_t number) {
  auto* link = &buckets_[bucket_of(homes_[at(number)].key)];
  while (*link != number) link = &homes_[at(*link)].next;
  *link = homes_[at(number)].next;
  homes_[at(number)] = {};
}

void prefix_index::forget_place(std::int32_t number) {
  forget(number);
  spilled_.remove(number - blocks_);
  free_places_.push_back(number - blocks_);
}

void prefix_index::publish(block_id block, prefix_key key, std::span<const token_id> ids,
                           step_id pending) {
  auto& own = homes_[at(block.value)];
  if (own.is_named) {
    DI_CHECK(own.key == key && has_ids(block.value, ids), "block {} was named twice, differently",
             block.value);
    const bool is_settled = own.pending == step_id{} || pending == step_id{};
    own.pending = is_settled ? step_id{} : std::max(own.pending, pending);
    return;
  }
  const auto other = home_of(key);
  if (other != nowhere) {
    // A pending block may yet lose its name; the copy in the host tier is worth more until then.
    if (!is_host(other) || pending != step_id{} || !has_ids(other, ids)) return;
    forget_place(other);
  }
  name(block.value, key, ids, pending);
}

void prefix_index::retract(step_id step) {
  DI_CHECK(step != step_id{}, "settled names were retracted, step {}", step.value);
  for (std::int32_t block = 0; block < blocks_; ++block) {
    const auto& home = homes_[at(block)];
    if (home.is_named && home.pending == step) forget(block);
  }
}

prefix_match prefix_index::find(prefix_key key, std::span<const token_id> ids) const {
  const auto number = home_of(key);
  if (number == nowhere) return {};
  prefix_match match;
  if (!has_ids(number, ids)) {
    match.found = prefix_found::other_ids;
  } else if (is_host(number)) {
    match.found = prefix_found::in_host;
    match.host = number - blocks_;
  } else {
    match.found = prefix_found::in_block;
    match.block = {number};
    match.pending = homes_[at(number)].pending;
  }
  return match;
}

bool prefix_index::keep(block_id block) {
  const auto& home = homes_[at(block.value)];
  if (!home.is_named) return false;
  if (home.pending != step_id{}) {
    forget(block.value);
    return false;
  }
  cached_.push_back(block.value);
  return true;
}

void prefix_index::restore(std::int32_t host, block_id block) {
  const auto place = blocks_ + host;
  DI_CHECK(homes_[at(place)].is_named, "place {} of the host tier is empty", host);
  DI_CHECK(!is_named(block), "block {} has a name already", block.value);
  const auto key = homes_[at(place)].key;
  forget_place(place);
  name(block.value, key, ids_of(place), {});
}

prefix_eviction prefix_index::evict(std::optional<std::int32_t> kept_place) {
  const auto block = cached_.front();
  cached_.remove(block);
  const auto key = homes_[at(block)].key;
  forget(block);
  if (homes_.size() == at(blocks_)) return {{block}, {}};
  if (free_places_.empty()) {
    const auto oldest = spilled_.front_but(kept_place);
    if (!oldest) return {{block}, {}};
    forget_place(blocks_ + *oldest);
  }
  const auto host = free_places_.back();
  free_places_.pop_back();
  spilled_.push_back(host);
  name(blocks_ + host, key, ids_of(block), {});
  return {{block}, host};
}

void prefix_index::flush(std::vector<block_id>& freed) {
  while (cached_.size() > 0) {
    freed.push_back({cached_.front()});
    cached_.remove(cached_.front());
  }
  std::ranges::fill(homes_, home_name{});
  std::ranges::fill(buckets_, nowhere);
  spilled_.clear();
  free_places_.clear();
  for (auto place = static_cast<std::int32_t>(homes_.size()) - blocks_; place-- > 0;)
    free_places_.push_back(place);
}

void prefix_index::check_invariants() const {
  const auto homes = static_cast<std::int32_t>(homes_.size());
  for (std::int32_t number = 0; number < homes; ++number) {
    const auto& home = homes_[at(number)];
    if (home.is_named)
      DI_CHECK(home_of(home.key) == number, "the name of home {} leads to {}", number,
               home_of(home.key));
    const bool is_settled = home.is_named && home.pending == step_id{};
    if (is_host(number))
      DI_CHECK(is_settled == spilled_.contains(number - blocks_), "place {} settled: {}",
               number - blocks_, is_settled);
    else
      DI_CHECK(is_settled || !cached_.contains(number), "cached block {} isn't settled", number);
  }
  const auto places = static_cast<std::int64_t>(free_places_.size()) + host_entries();
  DI_CHECK(places == homes - blocks_, "{} places of {} are free or named", places, homes - blocks_);
  for (const auto place : free_places_)
    DI_CHECK(!spilled_.contains(place), "free place {} is named", place);
}

}  // namespace deepinfer
