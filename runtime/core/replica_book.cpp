#include "runtime/core/replica_book.hpp"

#include <algorithm>
#include <tuple>

#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

constexpr std::int32_t held_least = 4;
constexpr std::int32_t held_share = 4;

constexpr auto is_less_loaded = [](const auto* a, const auto* b) {
  const auto order = [](const auto& of) {
    return std::tuple(of.second.load, of.second.sequences, of.first);
  };
  return order(*a) < order(*b);
};

/// Of a request's strides, how many the table has from the first on.
std::size_t known_strides(const bounded_table<std::uint64_t, bool>& table,
                          const std::vector<std::uint64_t>& prefix) {
  std::size_t known = 0;
  while (known < prefix.size() && table.find(prefix[known])) ++known;
  return known;
}

}  // namespace

std::int32_t ahead_of(std::int32_t slots) {
  return std::max(std::min(held_least, (slots + 1) / 2), slots / held_share);
}

replica_book::replica_book(const replica_rules& rules)
  : rules_(rules),
    sessions_(rules.sessions_most) {}

void replica_book::add(std::int32_t replica, std::int32_t slots, replica_place at,
                       std::int32_t ahead) {
  const auto is_new =
    replicas_
      .emplace(replica, replica_state{slots, ahead, at, false, false, 0, 0, 0,
                                      bounded_table<std::uint64_t, bool>(rules_.prefixes_most)})
      .second;
  DI_CHECK(is_new && slots > 0 && ahead >= 0, "replica {} of {} slots and {} ahead", replica, slots,
           ahead);
}

void replica_book::set_slots(std::int32_t replica, std::int32_t slots, std::int32_t ahead) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end() || slots <= 0) return;
  found->second.slots = slots;
  found->second.ahead = ahead;
}

void replica_book::set_ready(std::int32_t replica, bool is_ready) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end() || found->second.is_retired) return;
  found->second.is_ready = is_ready;
  if (!is_ready) found->second.prefixes.clear();
}

void replica_book::retire(std::int32_t replica) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end()) return;
  found->second.is_ready = false;
  found->second.is_retired = true;
  if (found->second.sequences == 0) replicas_.erase(found);
}

replica_book::candidates replica_book::with_room(const route_request& request,
                                                 std::span<const std::int32_t> refused) const {
  candidates out;
  for (const auto& it : replicas_) {
    const auto& replica = it.second;
    if (!replica.is_ready) continue;
    if (request.is_forwarded && replica.at == replica_place::elsewhere) continue;
    if (std::find(refused.begin(), refused.end(), it.first) != refused.end()) continue;
    const auto capacity = replica.slots + std::min(replica.ahead, rules_.ahead_most);
    if (replica.sequences == 0 || replica.sequences + request.sequences <= capacity)
      out.push_back(&it);
  }
  return out;
}

std::int32_t replica_book::by_prefix(const candidates& among, const route_request& request) const {
  const auto least = *std::min_element(among.begin(), among.end(), is_less_loaded);
  const auto* best = least;
  auto most_known = known_strides(least->second.prefixes, request.prefix);
  for (const auto* it : among) {
    if (it->second.load - least->second.load > rules_.imbalance_tokens) continue;
    const auto known = known_strides(it->second.prefixes, request.prefix);
    if (known < most_known || (known == most_known && !is_less_loaded(it, best))) continue;
    best = it;
    most_known = known;
  }
  return best->first;
}

std::optional<std::int32_t> replica_book::choose(const route_request& request,
                                                 std::span<const std::int32_t> refused) const {
  const auto among = with_room(request, refused);
  if (among.empty()) return {};
  if (!request.session.empty())
    if (const auto* bound = sessions_.find(request.session))
      for (const auto* it : among)
        if (it->first == *bound) return it->first;
  switch (rules_.rule) {
  case route_rule::prefix: return by_prefix(among, request);
  case route_rule::round_robin:
    for (const auto* it : among)
      if (it->first > last_) return it->first;
    return among.front()->first;
  case route_rule::least_load: break;
  }
  return (*std::min_element(among.begin(), among.end(), is_less_loaded))->first;
}

void replica_book::enter(std::int32_t replica, const route_request& request, std::int64_t tokens) {
  auto& it = replicas_.at(replica);
  it.sequences += request.sequences;
  ++it.unstarted;
  it.load += tokens;
  // The deepest first: without its beginning nothing of a prefix is found.
  for (auto fingerprint = request.prefix.rbegin(); fingerprint != request.prefix.rend();
       ++fingerprint)
    it.prefixes.put(*fingerprint, true);
  if (!request.session.empty()) sessions_.put(request.session, replica);
  last_ = replica;
}

void replica_book::start(std::int32_t replica, std::int64_t tokens_less) {
  auto& it = replicas_.at(replica);
  it.load -= tokens_less;
  --it.unstarted;
}

void replica_book::leave(std::int32_t replica, std::int32_t sequences, std::int64_t tokens,
                         bool has_started) {
  auto& it = replicas_.at(replica);
  it.sequences -= sequences;
  it.load -= tokens;
  if (!has_started) --it.unstarted;
  DI_CHECK(it.sequences >= 0 && it.load >= 0 && it.unstarted >= 0,
           "replica {}: {} sequences, {} tokens, {} unstarted", replica, it.sequences, it.load,
           it.unstarted);
  if (it.is_retired && it.sequences == 0) replicas_.erase(replica);
}

std::int32_t replica_book::waiting() const {
  std::int32_t out = 0;
  for (const auto& [replica, it] : replicas_)
    out += std::clamp(it.sequences - it.slots, 0, it.unstarted);
  return out;
}

void replica_book::forget_prefixes() {
  for (auto& [replica, it] : replicas_) it.prefixes.clear();
}

bool replica_book::is_ready(std::int32_t replica) const {
  const auto found = replicas_.find(replica);
  return found != replicas_.end() && found->second.is_ready;
}

bool replica_book::is_here(std::int32_t replica) const {
  const auto found = replicas_.find(replica);
  return found != replicas_.end() && found->second.at == replica_place::here;
}

bool replica_book::is_retired(std::int32_t replica) const {
  const auto found = replicas_.find(replica);
  return found != replicas_.end() && found->second.is_retired;
}

std::size_t replica_book::replicas() const {
  return static_cast<std::size_t>(std::count_if(
    replicas_.begin(), replicas_.end(), [](const auto& it) { return !it.second.is_retired; }));
}

std::int32_t replica_book::ready() const {
  return static_cast<std::int32_t>(std::count_if(
    replicas_.begin(), replicas_.end(), [](const auto& it) { return it.second.is_ready; }));
}

}  // namespace deepinfer
