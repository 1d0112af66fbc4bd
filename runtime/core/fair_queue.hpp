/// Requests that wait, and whose turn it is: the tenant that has been served the fewest tokens, and
/// of its requests the one of the highest priority, of these the one that came first.
///
/// A tenant is charged for what it is served, when it is sent away, and what was charged too much
/// comes back (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024: the virtual
/// token counter). Whoever did not wait for a while has saved nothing up: a tenant that comes back
/// counts as served as much as the least served one of those that wait. Among tenants that always
/// wait, what they have been charged differs by at most the largest charge, and what came back.
/// Without fair shares all requests are one tenant's. Pure. Errors: DI_CHECK.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace deepinfer {

struct waiting_place {
  std::string tenant;
  std::int32_t priority = 0;  ///< higher first
  std::uint64_t arrival = 0;  ///< unique
  bool is_bound = false;      ///< to places that may be closed: then others go before it
};

class fair_queue {
public:
  explicit fair_queue(bool is_fair) : is_fair_(is_fair) {}

  void add(const waiting_place& place, std::string id);
  /// False where nobody waits there.
  bool remove(const waiting_place& place);

  /// Whose turn it is, with or without those that are bound; null: nobody waits.
  const std::string* next(bool with_bound = true) const;
  /// The request that would be its tenant's last, of the tenant for which most wait, if that are
  /// more than would wait for `tenant` with one more; null: none.
  const std::string* last_of_longest(const std::string& tenant) const;

  /// A tenant was served so many tokens, or was charged so many too much. `leave` ends what `enter`
  /// began: the tenant is remembered in between.
  void enter(const std::string& tenant, std::int64_t tokens);
  void leave(const std::string& tenant, std::int64_t tokens);

  std::size_t size() const { return size_; }
  std::size_t waiting_of(const std::string& tenant) const;
  /// Tokens, above those of who has never come; 0 for an unknown tenant.
  std::int64_t served(const std::string& tenant) const;
  std::size_t tenants() const { return tenants_.size(); }

private:
  using order = std::pair<std::int64_t, std::uint64_t>;  ///< -priority, arrival

  struct waiting_request {
    std::string id;
    bool is_bound = false;
  };
  using waiting_map = std::map<order, waiting_request>;
  struct tenant_state {
    std::int64_t served = 0;
    std::int32_t open = 0;  ///< requests entered and not left
    waiting_map waiting;
  };
  using tenant_map = std::map<std::string, tenant_state>;

  static order order_of(const waiting_place& place) {
    return {-static_cast<std::int64_t>(place.priority), place.arrival};
  }
  const std::string& name_of(const std::string& tenant) const;
  std::int64_t least_served() const;
  void forget_idle(tenant_map::iterator tenant);

  bool is_fair_;
  tenant_map tenants_;
  std::size_t size_ = 0;
  std::int64_t floor_ = 0;  ///< what the last one whose turn came had been served
};

}  // namespace deepinfer
