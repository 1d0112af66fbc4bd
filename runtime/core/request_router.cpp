#include "runtime/core/request_router.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

/// What a request without max_tokens is taken for while none has ended.
constexpr std::int64_t outputs_at_first = 256;

/// What another node has sent on stays in this one.
bool may_have(const replica_book& book, const route_request& request, std::int32_t replica) {
  return !request.is_forwarded || book.is_here(replica);
}

replica_rules rules_of(const router_config& config) {
  auto out = config.rules;
  out.ahead_most = std::min(out.ahead_most, config.max_queued / 2);
  return out;
}

error not_here(const std::string& why) {
  return {errc::not_ready, "another node has sent the request on, and " + why, {}};
}

}  // namespace

request_router::request_router(const router_config& config)
  : config_(config),
    book_(rules_of(config)),
    queue_(config.fair_shares),
    none_left_{errc::not_ready, "there is no replica to send requests to", {}},
    usual_outputs_(outputs_at_first) {}

void request_router::set_rules(const router_config& config) {
  book_.set_rule(config.rules.rule);
  book_.set_ahead_most(rules_of(config).ahead_most);
  config_.max_queued = config.max_queued;
  config_.queue_timeout_us = config.queue_timeout_us;
  shares_change_ = shares_change_ || config.fair_shares != config_.fair_shares;
  config_.fair_shares = config.fair_shares;
}

void request_router::add_replica(std::int32_t replica, std::int32_t slots, replica_place at,
                                 std::int32_t ahead) {
  book_.add(replica, slots, at, ahead);
  known_.insert(replica);
}

void request_router::retire_replica(std::int32_t replica, error why) {
  book_.retire(replica);
  if (known_.erase(replica) == 0) return;
  none_left_ = std::move(why);
  has_placeless_ = true;
}

std::vector<std::string> request_router::lose_replica(std::int32_t replica, error why,
                                                      std::int64_t now_us) {
  std::vector<std::pair<std::uint64_t, std::string>> lost;
  std::vector<std::string> unstarted;
  for (const auto& [id, it] : requests_) {
    if (it.replica != replica || it.is == phase::waiting) continue;
    if (it.is == phase::started)
      lost.emplace_back(it.place.arrival, id);
    else
      unstarted.push_back(id);
  }
  std::sort(lost.begin(), lost.end());
  for (const auto& id : unstarted) give_back(replica, id, now_us);
  std::vector<std::string> ids;
  for (auto& [arrival, id] : lost) {
    ended(replica, id, 0);
    ids.push_back(std::move(id));
  }
  retire_replica(replica, std::move(why));
  return ids;
}

bool request_router::is_full() const {
  return waiting_anywhere() >= static_cast<std::size_t>(config_.max_queued);
}

error request_router::full() const {
  return {errc::queue_full,
          fmt::format("{} requests wait, at most {} may", waiting_anywhere(), config_.max_queued),
          {}};
}

result<void> request_router::check(const route_request& request) const {
  if (requests_.contains(request.id))
    return fail(errc::invalid_argument, fmt::format("request_id: {} is in use", request.id),
                "request_id");
  if (known_.empty()) return tl::unexpected<error>(none_left_);
  if (!may_wait())
    return fail(errc::not_ready, "none of the nodes that are known takes requests now");
  if (request.is_forwarded && !is_ready_here())
    return tl::unexpected<error>(not_here("no replica of this one is ready"));
  if (is_full() && !queue_.last_of_longest(request.tenant)) return tl::unexpected<error>(full());
  return {};
}

result<void> request_router::submit(route_request request, std::int64_t now_us) {
  DI_TRY_VOID(check(request));
  if (is_full()) refuse_waiting(std::string(*queue_.last_of_longest(request.tenant)), full());
  if (requests_.empty() && std::exchange(shares_change_, false))
    queue_ = fair_queue(config_.fair_shares);
  if (request.output_tokens < 0) request.output_tokens = usual_outputs_ * request.sequences;
  request_state it;
  it.place = {request.tenant, request.priority, ++arrivals_, request.is_forwarded};
  it.tokens = request.prompt_tokens + request.output_tokens;
  it.asked = std::move(request);
  wait(it, now_us);
  const auto id = it.asked.id;
  requests_.emplace(id, std::move(it));
  return {};
}

void request_router::wait(request_state& it, std::int64_t now_us) {
  it.is = phase::waiting;
  it.replica = -1;
  queue_.add(it.place, it.asked.id);
  by_arrival_.emplace(it.place.arrival, it.asked.id);
  has_placeless_ = has_placeless_ || !has_place(it.asked);
  if (config_.queue_timeout_us <= 0) return;
  it.deadline_us = now_us + config_.queue_timeout_us;
  deadlines_.emplace(it.deadline_us, it.place.arrival);
}

void request_router::stop_waiting(const request_state& it) {
  const bool did_wait = queue_.remove(it.place);
  DI_CHECK(did_wait, "request {} does not wait", it.asked.id);
  by_arrival_.erase(it.place.arrival);
  deadlines_.erase({it.deadline_us, it.place.arrival});
}

std::vector<request_route> request_router::take_routes() {
  std::vector<request_route> out;
  const bool with_bound = is_ready_here();
  while (const auto* id = queue_.next(with_bound)) {
    auto& it = requests_.at(*id);
    if (!may_find_ready(it.asked, it.refused_by))
      it.refused_by.clear();  // or it would be in the way of the others
    const auto replica = book_.choose(it.asked, it.refused_by);
    if (!replica) break;
    out.push_back({*id, *replica});
    stop_waiting(it);
    queue_.enter(it.place.tenant, it.tokens);
    book_.enter(*replica, it.asked, it.tokens);
    it.is = phase::sent;
    it.replica = *replica;
  }
  return out;
}

void request_router::refuse_waiting(const std::string& id, error why) {
  const auto found = requests_.find(id);
  const auto arrival = found->second.place.arrival;
  stop_waiting(found->second);
  refused_.emplace_back(arrival, refused_request{found->first, std::move(why)});
  requests_.erase(found);
}

std::vector<refused_request> request_router::take_refused(std::int64_t now_us) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const auto id = by_arrival_.at(deadlines_.begin()->second);
    refuse_waiting(id, {errc::overloaded,
                        fmt::format("no replica had room for the request within {} ms; {} wait",
                                    config_.queue_timeout_us / 1000, queue_.size() - 1),
                        {}});
  }
  refuse_placeless();
  std::sort(refused_.begin(), refused_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<refused_request> out;
  for (auto& [arrival, it] : std::exchange(refused_, {})) out.push_back(std::move(it));
  return out;
}

bool request_router::cancel(const std::string& id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.is != phase::waiting) return false;
  stop_waiting(found->second);
  requests_.erase(found);
  return true;
}

request_router::request_map::iterator request_router::find_at(std::int32_t replica,
                                                              const std::string& id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.is == phase::waiting ||
      found->second.replica != replica)
    return requests_.end();
  return found;
}

bool request_router::started(std::int32_t replica, const std::string& id,
                             std::int32_t cached_tokens) {
  const auto found = find_at(replica, id);
  if (found == requests_.end() || found->second.is == phase::started) return false;
  auto& it = found->second;
  it.is = phase::started;
  it.cached_tokens = std::clamp<std::int64_t>(cached_tokens, 0, it.asked.prompt_tokens);
  book_.start(replica, it.cached_tokens);
  ++started_;
  return true;
}

/// The tenant pays what was spent; the replica's load loses all that was left of the request's.
void request_router::leave_replica(const request_state& it, std::int64_t spent) {
  book_.leave(it.replica, it.asked.sequences, it.tokens - it.cached_tokens,
              it.is == phase::started);
  queue_.leave(it.place.tenant, it.tokens - spent);
}

bool request_router::ended(std::int32_t replica, const std::string& id, std::int64_t outputs) {
  const auto found = find_at(replica, id);
  if (found == requests_.end()) return false;
  const auto& it = found->second;
  if (it.is == phase::started) {
    --started_;
    leave_replica(it, it.asked.prompt_tokens - it.cached_tokens + outputs);
    usual_outputs_ += (outputs / it.asked.sequences - usual_outputs_) / 16;
  } else {
    leave_replica(it, 0);
  }
  requests_.erase(found);
  return true;
}

void request_router::take_back(request_state& it, std::int64_t now_us) {
  leave_replica(it, 0);
  wait(it, now_us);
}

bool request_router::give_back(std::int32_t replica, const std::string& id, std::int64_t now_us) {
  const auto found = find_at(replica, id);
  if (found == requests_.end() || found->second.is == phase::started) return false;
  take_back(found->second, now_us);
  return true;
}

/// Is a replica ready that may have it and has not refused it?
bool request_router::may_find_ready(const route_request& request,
                                    const std::vector<std::int32_t>& refused_by) const {
  return std::any_of(known_.begin(), known_.end(), [&](std::int32_t replica) {
    return book_.is_ready(replica) && may_have(book_, request, replica) &&
           std::find(refused_by.begin(), refused_by.end(), replica) == refused_by.end();
  });
}

bool request_router::is_ready_here() const {
  return std::any_of(known_.begin(), known_.end(), [&](std::int32_t replica) {
    return book_.is_ready(replica) && book_.is_here(replica);
  });
}

/// A replica of this node comes back in a moment; whether a node elsewhere does nobody knows, and a
/// client may have other ways.
bool request_router::may_wait() const {
  return book_.ready() > 0 || std::any_of(known_.begin(), known_.end(),
                                          [this](std::int32_t it) { return book_.is_here(it); });
}

/// Is there a replica, ready or not, where it may go?
bool request_router::has_place(const route_request& request) const {
  return std::any_of(known_.begin(), known_.end(),
                     [&](std::int32_t replica) { return may_have(book_, request, replica); });
}

/// What waits for replicas that are all lost for good waits no longer.
void request_router::refuse_placeless() {
  if (!std::exchange(has_placeless_, false)) return;
  std::vector<std::string> placeless;
  for (const auto& [arrival, id] : by_arrival_)
    if (!has_place(requests_.at(id).asked)) placeless.push_back(id);
  for (const auto& id : placeless)
    refuse_waiting(id, known_.empty() ? none_left_ : not_here("this one has no replica left"));
}

bool request_router::refuse(std::int32_t replica, const std::string& id, std::int64_t now_us) {
  const auto found = find_at(replica, id);
  if (found == requests_.end() || found->second.is == phase::started) return false;
  auto& it = found->second;
  it.refused_by.push_back(replica);
  if (may_find_ready(it.asked, it.refused_by)) {
    take_back(it, now_us);
    return true;
  }
  leave_replica(it, 0);
  requests_.erase(found);
  return false;
}

std::int64_t request_router::next_deadline_us() const {
  return deadlines_.empty() ? -1 : deadlines_.begin()->first;
}

}  // namespace deepinfer
