// Random worlds of requests and replicas against a model that keeps books of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/core/request_router.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/seeded_draws.hpp"

using namespace deepinfer;

namespace {

/// What the model knows of an open request.
struct open_request {
  std::string tenant;
  std::int32_t priority = 0;
  std::int32_t sequences = 1;
  int arrival = 0;
  bool is_forwarded = false;
  std::int32_t replica = -1;  ///< -1: it waits
  bool has_started = false;
  std::int64_t deadline_us = 0;
};

class random_router {
public:
  random_router(std::uint64_t seed, route_rule rule, bool is_fair) : draws_(seed) {
    config_.rules.rule = rule;
    config_.rules.imbalance_tokens = 50;
    config_.rules.prefixes_most = 20;
    config_.rules.sessions_most = 4;
    config_.fair_shares = is_fair;
    config_.max_queued = 12;
    config_.queue_timeout_us = 300;
    router_ = std::make_unique<request_router>(config_);
  }

  void run(int events) {
    for (int i = 0; i < events; ++i) {
      now_us_ += draws_.below(20);
      event();
      pump();
      check_books();
    }
    finish();
  }

  int submitted() const { return submitted_; }
  int left() const { return left_; }
  int routed() const { return routed_; }

private:
  void event() {
    const auto what = draws_.below(20);
    if (what < 8) return submit();
    if (what < 15) return progress();
    if (what == 15) return cancel();
    if (what == 16) return flip();
    if (what == 17) return draws_.one_in(3) ? lose() : give_back();
    if (what == 18) return add();
    router_->forget_prefixes();
  }

  std::int32_t some_replica() const {
    auto it = capacities_.begin();
    std::advance(it, draws_.below(static_cast<std::int32_t>(capacities_.size())));
    return it->first;
  }

  void add() {
    if (capacities_.size() == 4) return;
    capacities_[++replicas_] = draws_.between(1, 4);
    ready_[replicas_] = true;
    const auto at = draws_.one_in(3) ? replica_place::elsewhere : replica_place::here;
    if (at == replica_place::here) here_.insert(replicas_);
    const auto ahead = draws_.below(4);
    slots_[replicas_] = capacities_[replicas_];
    capacities_[replicas_] += ahead;
    router_->add_replica(replicas_, slots_[replicas_], at, ahead);
    router_->set_ready(replicas_, true);
  }

  void flip() {
    if (capacities_.empty()) return;
    const auto replica = some_replica();
    ready_[replica] = !ready_[replica];
    router_->set_ready(replica, ready_[replica]);
  }

  void submit() {
    route_request request;
    request.id = "r" + std::to_string(draws_.below(60));
    request.tenant = std::string(1, static_cast<char>('a' + draws_.below(3)));
    if (draws_.one_in(3)) request.session = "s" + std::to_string(draws_.below(6));
    for (int i = draws_.below(4); i > 0; --i)
      request.prefix.push_back(static_cast<std::uint64_t>(draws_.below(10)));
    request.prompt_tokens = draws_.between(1, 40);
    request.output_tokens = draws_.below(5) - 1;
    request.priority = draws_.below(3);
    request.sequences = draws_.one_in(6) ? 3 : 1;
    request.is_forwarded = draws_.one_in(4);
    ++submitted_;
    const auto would_be = router_->check(request);
    const auto taken = router_->submit(request, now_us_);
    const bool is_in_use = requests_.contains(request.id);
    CHECK(would_be.has_value() == taken.has_value());
    if (!taken) {
      CHECK(would_be.error().message == taken.error().message);
      ++left_;
      const auto code = taken.error().code;
      if (is_in_use)
        CHECK(code == errc::invalid_argument);
      else if (capacities_.empty())
        CHECK((code == errc::not_ready || code == errc::rank_lost));
      else if (!may_wait() || (request.is_forwarded && !has_ready_here()))
        CHECK(code == errc::not_ready);
      else
        CHECK(code == errc::queue_full);
      return;
    }
    REQUIRE(!is_in_use);
    REQUIRE(!capacities_.empty());
    CHECK(may_wait());
    CHECK((!request.is_forwarded || has_ready_here()));
    requests_[request.id] = {request.tenant,
                             request.priority,
                             request.sequences,
                             ++arrivals_,
                             request.is_forwarded,
                             -1,
                             false,
                             now_us_ + config_.queue_timeout_us};
  }

  bool may_wait() const {
    return !here_.empty() ||
           std::any_of(ready_.begin(), ready_.end(), [](const auto& it) { return it.second; });
  }
  bool has_ready_here() const {
    return std::any_of(here_.begin(), here_.end(), [&](auto it) { return ready_.at(it); });
  }

  /// A request that is at a replica; null: none is.
  const std::string* some_sent() const {
    std::vector<const std::string*> sent;
    for (const auto& [id, it] : requests_)
      if (it.replica >= 0) sent.push_back(&id);
    if (sent.empty()) return nullptr;
    return sent[static_cast<std::size_t>(draws_.below(static_cast<std::int32_t>(sent.size())))];
  }

  void leave(const std::string& id) {
    REQUIRE(requests_.erase(id) == 1);
    ++left_;
  }

  void progress() {
    const auto* found = some_sent();
    if (!found) return;
    const auto id = *found;
    auto& it = requests_.at(id);
    const auto other = it.replica + 1;
    CHECK_FALSE(router_->ended(other, id, 3));
    if (!it.has_started && draws_.one_in(2)) {
      CHECK(router_->started(it.replica, id, draws_.below(60)));
      it.has_started = true;
      return;
    }
    CHECK(router_->ended(it.replica, id, draws_.below(30)));
    leave(id);
  }

  void cancel() {
    const auto id = "r" + std::to_string(draws_.below(60));
    const auto found = requests_.find(id);
    const bool waits = found != requests_.end() && found->second.replica < 0;
    REQUIRE(router_->cancel(id) == waits);
    if (waits) leave(id);
  }

  void wait_again(open_request& it) {
    it.replica = -1;
    it.deadline_us = now_us_ + config_.queue_timeout_us;
  }

  void give_back() {
    const auto* found = some_sent();
    if (!found) return;
    const auto id = *found;
    auto& it = requests_.at(id);
    if (draws_.one_in(2)) {
      CHECK(router_->give_back(it.replica, id, now_us_) == !it.has_started);
      if (!it.has_started) wait_again(it);
      return;
    }
    const bool is_started = it.has_started;
    const bool goes_on = router_->refuse(it.replica, id, now_us_);
    if (is_started) {
      CHECK_FALSE(goes_on);
    } else if (goes_on) {
      wait_again(it);
    } else {
      leave(id);
    }
  }

  void lose() {
    if (capacities_.empty()) return;
    const auto replica = some_replica();
    capacities_.erase(replica);
    ready_.erase(replica);
    here_.erase(replica);
    std::vector<std::pair<int, std::string>> wanted;
    for (auto& [id, it] : requests_) {
      if (it.replica != replica) continue;
      if (it.has_started)
        wanted.emplace_back(it.arrival, id);
      else
        wait_again(it);
    }
    std::sort(wanted.begin(), wanted.end());
    const auto ended = router_->lose_replica(replica, {errc::rank_lost, "lost", {}}, now_us_);
    REQUIRE(ended.size() == wanted.size());
    for (std::size_t i = 0; i < ended.size(); ++i) {
      CHECK(ended[i] == wanted[i].second);
      leave(ended[i]);
    }
  }

  void pump() {
    for (const auto& refused : router_->take_refused(now_us_)) {
      const auto& it = requests_.at(refused.id);
      CHECK(it.replica == -1);
      if (refused.why.code == errc::overloaded)
        CHECK(it.deadline_us <= now_us_);
      else if (refused.why.code != errc::queue_full)
        CHECK((capacities_.empty() || (it.is_forwarded && here_.empty())));
      leave(refused.id);
    }
    for (const auto& [id, it] : requests_)
      CHECK((it.replica >= 0 || !it.is_forwarded || !here_.empty()));
    for (const auto& route : router_->take_routes()) {
      ++routed_;
      auto& it = requests_.at(route.id);
      REQUIRE(it.replica == -1);
      REQUIRE(ready_.at(route.replica));
      REQUIRE((!it.is_forwarded || here_.contains(route.replica)));
      const auto held = sequences_at(route.replica);
      REQUIRE((held == 0 || held + it.sequences <= capacities_.at(route.replica)));
      check_first_of_tenant(route.id, it);
      it.replica = route.replica;
    }
  }

  std::int32_t sequences_at(std::int32_t replica) const {
    std::int32_t held = 0;
    for (const auto& [id, it] : requests_)
      if (it.replica == replica) held += it.sequences;
    return held;
  }

  void check_first_of_tenant(const std::string& id, const open_request& it) const {
    for (const auto& [other_id, other] : requests_) {
      if (other.replica >= 0 || other_id == id) continue;
      if (config_.fair_shares && other.tenant != it.tenant) continue;
      if (other.is_forwarded && !has_ready_here()) continue;  // it holds up nobody
      CHECK(std::pair(-it.priority, it.arrival) < std::pair(-other.priority, other.arrival));
    }
  }

  void check_books() const {
    std::size_t waiting = 0;
    std::size_t started = 0;
    for (const auto& [id, it] : requests_) {
      waiting += it.replica < 0;
      started += it.has_started;
      if (it.replica < 0) CHECK(it.deadline_us > now_us_);
    }
    CHECK(router_->waiting() == waiting);
    for (const auto& [replica, capacity] : capacities_) {
      const auto unstarted =
        std::count_if(requests_.begin(), requests_.end(), [replica = replica](const auto& it) {
          return it.second.replica == replica && !it.second.has_started;
        });
      const std::int64_t beyond = sequences_at(replica) - slots_.at(replica);
      waiting += static_cast<std::size_t>(std::clamp<std::int64_t>(beyond, 0, unstarted));
    }
    CHECK(router_->waiting_anywhere() == waiting);
    CHECK(router_->started() == started);
    CHECK(router_->open() == requests_.size());
    for (const auto& [replica, capacity] : capacities_) {
      CHECK(router_->replicas().sequences(replica) == sequences_at(replica));
      CHECK((sequences_at(replica) > 0 || router_->replicas().load(replica) == 0));
    }
  }

  /// Everything leaves once there is a replica and nothing more comes.
  void finish() {
    while (here_.empty() && capacities_.size() < 4) add();
    for (auto& [replica, is_ready] : ready_) router_->set_ready(replica, is_ready = true);
    for (int turn = 0; turn < 1000 && !requests_.empty(); ++turn) {
      pump();
      progress();
    }
    CHECK(requests_.empty());
    CHECK(router_->open() == 0);
    CHECK(left_ == submitted_);
  }

  mutable test::seeded_draws draws_;
  router_config config_;
  std::unique_ptr<request_router> router_;
  std::map<std::string, open_request> requests_;
  std::map<std::int32_t, std::int32_t> slots_;
  std::map<std::int32_t, std::int32_t> capacities_;  ///< slots, and what is given ahead
  std::map<std::int32_t, bool> ready_;
  std::set<std::int32_t> here_;  ///< those of this node
  std::int32_t replicas_ = 0;
  std::int64_t now_us_ = 0;
  int arrivals_ = 0;
  int submitted_ = 0;
  int left_ = 0;
  int routed_ = 0;
};

}  // namespace

TEST_CASE("every request leaves a router once, in its tenant's order, and none above capacity") {
  const int worlds = with_effort(60);
  int routed = 0;
  for (int world = 0; world < worlds; ++world) {
    CAPTURE(world);
    random_router it(static_cast<std::uint64_t>(world), static_cast<route_rule>(world % 3),
                     world % 4 != 3);
    it.run(600);
    CHECK(it.left() == it.submitted());
    routed += it.routed();
  }
  CHECK(routed > worlds * 100);
}

TEST_CASE("tenants that always wait are served alike, whatever they ask for and however many") {
  const int worlds = with_effort(20);
  for (int world = 0; world < worlds; ++world) {
    CAPTURE(world);
    test::seeded_draws draws(static_cast<std::uint64_t>(world) + 500);
    router_config config;
    config.max_queued = 1000;
    request_router router(config);
    router.add_replica(0, draws.between(1, 6));
    router.set_ready(0, true);
    const int tenants = draws.between(2, 5);
    std::int64_t largest = 0;
    std::map<std::string, std::int64_t> served;
    std::map<std::string, std::pair<std::string, std::int64_t>> asked;  // by id
    std::vector<std::string> running;
    std::map<std::string, int> waiting;
    int requests = 0;
    for (int turn = 0; turn < 800; ++turn) {
      for (int t = 0; t < tenants; ++t) {
        const std::string tenant(1, static_cast<char>('a' + t));
        // The first has many times as many requests as it can ever be served.
        while (waiting[tenant] < (t == 0 ? 100 : 2)) {
          const auto tokens = draws.between(1, 10 * (1 + t));
          largest = std::max<std::int64_t>(largest, tokens);
          const auto id = std::to_string(++requests);
          REQUIRE(router.submit({id, tenant, {}, {}, tokens, 0, draws.below(2), 1}, 0).has_value());
          asked[id] = {tenant, tokens};
          ++waiting[tenant];
        }
      }
      for (const auto& route : router.take_routes()) {
        const auto& [tenant, tokens] = asked.at(route.id);
        served[tenant] += tokens;
        --waiting[tenant];
        running.push_back(route.id);
      }
      const auto [least, most] =
        std::minmax_element(served.begin(), served.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
      if (turn > 0) CHECK(most->second - least->second <= 2 * largest);
      const auto ends = running.begin() + draws.below(static_cast<std::int32_t>(running.size()));
      REQUIRE(router.started(0, *ends, 0));
      REQUIRE(router.ended(0, *ends, 0));
      running.erase(ends);
    }
    CHECK(served.size() == static_cast<std::size_t>(tenants));
  }
}
