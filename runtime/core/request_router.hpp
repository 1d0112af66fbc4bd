/// Where each request of a node goes, and when: the queue in front of its replicas.
///
/// A request waits until a replica that it may go to has room, and whose turn it is says
/// `fair_queue`; which replica gets it says `replica_book`. The one whose turn it is waits for room
/// and nobody overtakes it. It waits at most `queue_timeout_us`; at most `max_queued` wait, those
/// among them that a replica was given ahead: no more than half of them, so that shares and
/// priorities have a say. Where so many wait and another tenant has more waiting here, that one's
/// last makes room. One that a replica has started and preempted is running.
///
/// A request is waiting, sent (its replica has it, its first row has not been launched) or started.
/// One that was only sent can wait again, at its old place, if its replica gives it back or refuses
/// it for a reason of its own. Every submitted request leaves exactly once: refused by `submit`,
/// among `take_refused`, by `cancel`, by `ended`, or among what `lose_replica` ends.
///
/// Where no replica is ready, requests wait for one of this node, which comes back; where all are
/// elsewhere, new ones are refused with not_ready.
///
/// A request that another node has sent on goes to replicas of this node alone. It is refused where
/// none of them is ready when it comes, since its sender may still place it elsewhere. One that
/// waits while none is ready holds up nobody; it is refused when the last of them is lost for good.
///
/// Time is an argument. The same calls give the same choices. Errors: queue_full, overloaded (it
/// waited too long), invalid_argument (its id is in use), and where no replica is left what the
/// last one's loss said (not_ready, rank_lost).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/core/fair_queue.hpp"
#include "runtime/core/replica_book.hpp"

namespace deepinfer {

struct router_config {
  replica_rules rules;
  bool fair_shares = true;
  std::int32_t max_queued = 1024;
  std::int64_t queue_timeout_us = 0;  ///< 0: none
};

struct request_route {
  std::string id;
  std::int32_t replica = 0;
};

struct refused_request {
  std::string id;
  error why;
};

class request_router {
public:
  explicit request_router(const router_config& config);

  /// Other rules for requests that come from now on. Those that wait keep their deadlines; fair
  /// shares change when no request is open.
  void set_rules(const router_config& config);

  /// Takes requests from when it is ready on: sequences for its `slots`, and so many `ahead`.
  void add_replica(std::int32_t replica, std::int32_t slots, replica_place at = replica_place::here,
                   std::int32_t ahead = 0);
  void set_slots(std::int32_t replica, std::int32_t slots, std::int32_t ahead) {
    book_.set_slots(replica, slots, ahead);
  }
  void set_ready(std::int32_t replica, bool is_ready) { book_.set_ready(replica, is_ready); }
  /// Gets no request any more; those that it has go on. `why` is told requests that find no
  /// replica.
  void retire_replica(std::int32_t replica, error why);
  /// It is gone, and with it the requests it has started, whose ids are the answer. What it had not
  /// started waits again.
  std::vector<std::string> lose_replica(std::int32_t replica, error why, std::int64_t now_us);

  /// Why `submit` would refuse it, whatever its prompt: nothing has to be known of that.
  result<void> check(const route_request& request) const;
  /// Takes a request; an error ends it. An output_tokens below 0 means as many as others had.
  result<void> submit(route_request request, std::int64_t now_us);
  /// Requests that are to be sent now, in this order.
  std::vector<request_route> take_routes();
  /// Requests that have ended since they could not be sent, in order of their arrival.
  std::vector<refused_request> take_refused(std::int64_t now_us);
  /// A waiting request leaves. False where it does not wait.
  bool cancel(const std::string& id);

  /// Notes of a replica on a request; those of another than has it, or of an unknown request, are
  /// ignored and give false.
  bool started(std::int32_t replica, const std::string& id, std::int32_t cached_tokens);
  bool ended(std::int32_t replica, const std::string& id, std::int64_t outputs);
  /// Not started, and not to be: it waits again.
  bool give_back(std::int32_t replica, const std::string& id, std::int64_t now_us);
  /// The replica has refused it, others may take it: it waits again, for one that has not refused
  /// it. False where none of them is ready: it has ended.
  bool refuse(std::int32_t replica, const std::string& id, std::int64_t now_us);

  void forget_prefixes() { book_.forget_prefixes(); }

  /// When `take_refused` has something to say without another event; -1: never.
  std::int64_t next_deadline_us() const;

  std::size_t waiting() const { return queue_.size(); }
  /// With those that replicas were given ahead: `max_queued` is about these.
  std::size_t waiting_anywhere() const {
    return queue_.size() + static_cast<std::size_t>(book_.waiting());
  }
  std::size_t started() const { return started_; }
  std::size_t open() const { return requests_.size(); }
  /// Of replicas that take requests, or will; without one, nothing comes back by itself.
  std::size_t known() const { return known_.size(); }
  const replica_book& replicas() const { return book_; }
  std::int64_t served(const std::string& tenant) const { return queue_.served(tenant); }

private:
  enum class phase : std::uint8_t { waiting, sent, started };

  struct request_state {
    route_request asked;
    waiting_place place;
    phase is = phase::waiting;
    std::int64_t deadline_us = 0;
    std::int32_t replica = -1;
    std::int64_t tokens = 0;         ///< charged and loaded
    std::int64_t cached_tokens = 0;  ///< of the prompt, when it started
    std::vector<std::int32_t> refused_by;
  };
  using request_map = std::unordered_map<std::string, request_state>;

  request_map::iterator find_at(std::int32_t replica, const std::string& id);
  void wait(request_state& it, std::int64_t now_us);
  void stop_waiting(const request_state& it);
  void take_back(request_state& it, std::int64_t now_us);
  void leave_replica(const request_state& it, std::int64_t spent);
  bool may_find_ready(const route_request& request,
                      const std::vector<std::int32_t>& refused_by) const;
  bool is_ready_here() const;
  bool may_wait() const;
  bool has_place(const route_request& request) const;
  void refuse_placeless();
  void refuse_waiting(const std::string& id, error why);
  bool is_full() const;
  error full() const;

  router_config config_;
  bool shares_change_ = false;  ///< as soon as no request is open
  replica_book book_;
  fair_queue queue_;
  request_map requests_;
  std::set<std::pair<std::int64_t, std::uint64_t>> deadlines_;  ///< with the arrival
  std::unordered_map<std::uint64_t, std::string> by_arrival_;   ///< of those that wait
  std::vector<std::pair<std::uint64_t, refused_request>> refused_;
  std::set<std::int32_t> known_;  ///< replicas that take requests, or will
  bool has_placeless_ = false;    ///< of those that wait, some may have no replica to wait for
  error none_left_;               ///< told where there is no replica
  std::uint64_t arrivals_ = 0;
  std::size_t started_ = 0;
  std::int64_t usual_outputs_;  ///< of requests that have ended, on average
};

}  // namespace deepinfer
