#include "runtime/core/fair_queue.hpp"

#include <algorithm>
#include <optional>

#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

/// Tenants that neither wait nor are served, and are remembered since they were served much.
constexpr std::size_t idle_most = 1024;

}  // namespace

const std::string& fair_queue::name_of(const std::string& tenant) const {
  static const std::string everybody;
  return is_fair_ ? tenant : everybody;
}

std::int64_t fair_queue::least_served() const {
  std::optional<std::int64_t> least;
  for (const auto& [name, it] : tenants_)
    if (!it.waiting.empty()) least = std::min(least.value_or(it.served), it.served);
  return least.value_or(floor_);
}

void fair_queue::add(const waiting_place& place, std::string id) {
  const auto least = least_served();
  auto& tenant = tenants_[name_of(place.tenant)];
  if (tenant.waiting.empty()) tenant.served = std::max(tenant.served, least);
  const bool is_new =
    tenant.waiting.emplace(order_of(place), waiting_request{std::move(id), place.is_bound}).second;
  DI_CHECK(is_new, "arrival {} waits already", place.arrival);
  ++size_;
}

bool fair_queue::remove(const waiting_place& place) {
  const auto found = tenants_.find(name_of(place.tenant));
  if (found == tenants_.end() || found->second.waiting.erase(order_of(place)) == 0) return false;
  --size_;
  forget_idle(found);
  return true;
}

const std::string* fair_queue::next(bool with_bound) const {
  const std::string* best = nullptr;
  std::pair<std::int64_t, std::uint64_t> least;  // served, arrival
  for (const auto& [name, it] : tenants_) {
    const auto first = std::find_if(it.waiting.begin(), it.waiting.end(), [&](const auto& waits) {
      return with_bound || !waits.second.is_bound;
    });
    if (first == it.waiting.end()) continue;
    const std::pair key(it.served, first->first.second);
    if (best && key >= least) continue;
    best = &first->second.id;
    least = key;
  }
  return best;
}

const std::string* fair_queue::last_of_longest(const std::string& tenant) const {
  if (!is_fair_) return nullptr;
  auto longest = tenants_.end();
  for (auto it = tenants_.begin(); it != tenants_.end(); ++it)
    if (longest == tenants_.end() || it->second.waiting.size() > longest->second.waiting.size())
      longest = it;
  if (longest == tenants_.end() || longest->second.waiting.size() <= waiting_of(tenant) + 1)
    return nullptr;
  return &longest->second.waiting.rbegin()->second.id;
}

void fair_queue::enter(const std::string& tenant, std::int64_t tokens) {
  auto& it = tenants_[name_of(tenant)];
  floor_ = std::max(floor_, it.served);
  it.served += tokens;
  ++it.open;
}

void fair_queue::leave(const std::string& tenant, std::int64_t tokens) {
  const auto found = tenants_.find(name_of(tenant));
  DI_CHECK(found != tenants_.end() && found->second.open > 0, "tenant {} is not served", tenant);
  found->second.served -= tokens;
  --found->second.open;
  forget_idle(found);
}

/// A tenant that would be lifted to the floor when it comes back need not be remembered. Of the
/// others the one that has been served least is forgotten first, where there are too many.
void fair_queue::forget_idle(tenant_map::iterator tenant) {
  const auto is_idle = [](const tenant_state& it) { return it.waiting.empty() && it.open == 0; };
  if (!is_idle(tenant->second)) return;
  if (tenant->second.served <= floor_) {
    tenants_.erase(tenant);
    return;
  }
  std::size_t idle = 0;
  auto least = tenant;
  for (auto it = tenants_.begin(); it != tenants_.end(); ++it) {
    if (!is_idle(it->second)) continue;
    ++idle;
    if (it->second.served < least->second.served) least = it;
  }
  if (idle > idle_most || least->second.served <= floor_) tenants_.erase(least);
}

std::size_t fair_queue::waiting_of(const std::string& tenant) const {
  const auto found = tenants_.find(name_of(tenant));
  return found == tenants_.end() ? 0 : found->second.waiting.size();
}

std::int64_t fair_queue::served(const std::string& tenant) const {
  const auto found = tenants_.find(name_of(tenant));
  return found == tenants_.end() ? 0 : found->second.served;
}

}  // namespace deepinfer
