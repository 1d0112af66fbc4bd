/// Replicas as a router sees them: who is ready, what each has been given, which prefixes and
/// sessions it knows, and which of them gets a request.
///
/// A replica's load is the tokens of its open requests that are still to be computed: prompts, less
/// what its cache had, and the outputs they may have. Rules: `least_load`; `prefix`, the replica
/// that has been given most of the request's beginning among those whose load is above the least by
/// no more than a bound, which with no such beginning is the least loaded one; `round_robin`. A
/// session goes to the replica that had its last request, whatever the rule, where that one has
/// room. Ties go to the fewer sequences, then to the smaller number. A request that another node
/// has sent on goes to no replica elsewhere, or two nodes would hand it to each other.
///
/// A replica runs `slots` sequences at a time and is given some ahead, so that it never waits for
/// the router. What it was given ahead waits as well as what the router keeps: `waiting` counts it.
/// Pure. Errors: DI_CHECK.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/bounded_table.hpp"

namespace deepinfer {

/// In the order of the setting.
enum class route_rule : std::uint8_t { prefix, least_load, round_robin };

struct replica_rules {
  route_rule rule = route_rule::prefix;
  std::int64_t imbalance_tokens = 8192;  ///< above the least load, for a prefix
  std::size_t prefixes_most = 32'768;    ///< fingerprints remembered of each replica
  std::size_t sessions_most = 16'384;
  std::int32_t ahead_most = 1 << 20;  ///< sequences that any replica is given beyond its slots
};

/// What the choice looks at of a request.
struct route_request {
  std::string id;
  std::string tenant;
  std::string session;                ///< empty: none
  std::vector<std::uint64_t> prefix;  ///< see prompt_outline
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;  ///< all its answers may have, or are expected to
  std::int32_t priority = 0;       ///< higher first
  std::int32_t sequences = 1;
  bool is_forwarded = false;  ///< by another node: only replicas of this one may have it
};

/// Where a replica is: in this node, or it is a node elsewhere.
enum class replica_place : std::uint8_t { here, elsewhere };

/// How many a replica of `slots` is given ahead. What its own queue holds has had its turn, so that
/// it delays the shares of others; but the places of sequences that end together must not wait for
/// the router. Half as many are enough for that, also where all end in the same steps; of many
/// places a quarter.
std::int32_t ahead_of(std::int32_t slots);

class replica_book {
public:
  explicit replica_book(const replica_rules& rules);

  /// Chooses by another rule from now on; what is known of sessions and prefixes stays.
  void set_rule(route_rule rule) { rules_.rule = rule; }
  void set_ahead_most(std::int32_t sequences) { rules_.ahead_most = sequences; }

  /// Runs `slots` sequences at a time, and is given so many more `ahead`.
  void add(std::int32_t replica, std::int32_t slots, replica_place at = replica_place::here,
           std::int32_t ahead = 0);
  /// What it runs is told again: a node elsewhere says so when it is there.
  void set_slots(std::int32_t replica, std::int32_t slots, std::int32_t ahead);
  /// One that is not ready is chosen for nothing; what it knew it has lost.
  void set_ready(std::int32_t replica, bool is_ready);
  /// Chosen no more, and gone when its last sequence has left.
  void retire(std::int32_t replica);

  /// Nothing: no replica that is ready, may have the request and is not among `refused` has room.
  /// One without a sequence has room for any request, others up to their capacity.
  std::optional<std::int32_t> choose(const route_request& request,
                                     std::span<const std::int32_t> refused) const;

  /// The replica has been given a request that is to cost so many tokens; it has started, and costs
  /// so many less; a request that cost so much in the end has left it, and had started or not.
  void enter(std::int32_t replica, const route_request& request, std::int64_t tokens);
  void start(std::int32_t replica, std::int64_t tokens_less);
  void leave(std::int32_t replica, std::int32_t sequences, std::int64_t tokens, bool has_started);

  /// Requests that replicas have been given and that wait there for a slot. One that finds a slot
  /// starts in a moment, so it does not count before either.
  std::int32_t waiting() const;

  /// Every replica's cache is empty.
  void forget_prefixes();

  bool has(std::int32_t replica) const { return replicas_.contains(replica); }
  bool is_ready(std::int32_t replica) const;
  bool is_here(std::int32_t replica) const;
  bool is_retired(std::int32_t replica) const;
  std::size_t replicas() const;  ///< retired ones apart
  std::int32_t ready() const;
  std::int64_t load(std::int32_t replica) const { return replicas_.at(replica).load; }
  std::int32_t sequences(std::int32_t replica) const { return replicas_.at(replica).sequences; }

private:
  struct replica_state {
    std::int32_t slots = 0;  ///< sequences that it runs
    std::int32_t ahead = 0;  ///< sequences beyond these
    replica_place at = replica_place::here;
    bool is_ready = false;
    bool is_retired = false;
    std::int32_t sequences = 0;
    std::int32_t unstarted = 0;  ///< requests
    std::int64_t load = 0;
    bounded_table<std::uint64_t, bool> prefixes;
  };
  using replica_map = std::map<std::int32_t, replica_state>;
  using candidates = std::vector<const replica_map::value_type*>;

  candidates with_room(const route_request& request, std::span<const std::int32_t> refused) const;
  std::int32_t by_prefix(const candidates& among, const route_request& request) const;

  replica_rules rules_;
  replica_map replicas_;
  bounded_table<std::string, std::int32_t> sessions_;
  std::int32_t last_ = -1;  ///< given a request last
};

}  // namespace deepinfer
