// The scheduler over a worker that answers when it is told to: how often the host waits for the
// device, and that what the device may read is not written again.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "actors/kv_allocator.hpp"
#include "actors/release_collector.hpp"
#include "actors/scheduler.hpp"
#include "actors/virtual_actors.hpp"
#include "runtime/device/virtual_device.hpp"

using namespace deepinfer;

namespace {

/// What the played worker has been asked and not answered.
struct desk {
  struct asked {
    plan_ptr plan;
    caf::response_promise promise;
  };
  std::deque<asked> steps;
  std::deque<std::pair<step_id, caf::response_promise>> recoveries;
  std::vector<plan_ptr> kept;  ///< plans that the device may still read
  std::int32_t answers = 0;    ///< to give at the next word
  errc code = errc::ok;
};

result_ptr result_of(const step_plan& plan, errc code) {
  auto out = std::make_shared<step_result>();
  out->clear();
  out->step = plan.step;
  out->code = code;
  if (code != errc::ok) return out;
  out->sequences = plan.sequences;
  out->epochs = plan.epochs;
  for (const auto yields : plan.yields_min) {
    if (yields > 0) out->tokens.push_back(9);
    out->token_begin.push_back(static_cast<std::int32_t>(out->tokens.size()));
  }
  return out;
}

caf::behavior played_worker(caf::event_based_actor* self, desk* on) {
  return {
    [self, on](const plan_ptr& plan) {
      on->steps.push_back({plan, self->make_response_promise()});
      return on->steps.back().promise;
    },
    [self, on](recover_atom, step_id step) {
      on->recoveries.emplace_back(step, self->make_response_promise());
      return on->recoveries.back().second;
    },
    [on](const gate_ptr&) {  // the test's word
      for (; on->answers > 0 && !on->steps.empty(); --on->answers) {
        auto it = std::move(on->steps.front());
        on->steps.pop_front();
        it.promise.deliver(result_of(*it.plan, on->code));
        on->kept.push_back(std::move(it.plan));
      }
      for (; on->answers > 0 && !on->recoveries.empty(); --on->answers) {
        on->recoveries.front().second.deliver(on->recoveries.front().first);
        on->recoveries.pop_front();
      }
    },
  };
}

caf::behavior deaf(caf::event_based_actor* self) {
  self->set_default_handler(caf::drop);
  return {[](wake_atom) {}};
}

class played_rank {
public:
  explicit played_rank(std::int32_t depth) {
    auto& system = actors_.system();
    scheduler_config config;
    config.depth = depth;
    config.max_model_len = 256;
    config.num_kv_blocks = 64;
    config.block_size = 4;
    config.vocab_size = 64;
    scheduler_links links;
    worker_ = system.spawn(played_worker, &desk_);
    links.worker = caf::actor_cast<worker_actor>(worker_);
    const kv_pool_config pool{config.rank, config.num_kv_blocks, config.state_slots};
    links.allocator = system.spawn(kv_allocator, pool, nullptr);
    links.collector = system.spawn(release_collector, config.rank, links.allocator);
    links.gateway = caf::actor_cast<gateway_actor>(system.spawn(deaf));
    links.clock = &clock_;
    links.answer_timeout = std::chrono::hours(1);
    scheduler_ = system.spawn(scheduler, config, links);
  }

  void submit(std::int32_t outputs) {
    sampling_params params;
    params.max_tokens = outputs;
    submit_batch batch;
    batch.push_back({{1},
                     std::make_shared<const std::vector<token_id>>(3, 9),
                     std::make_shared<const sampling_params>(params),
                     0});
    tell_from_outside(scheduler_, std::move(batch));
    actors_.run_all();
  }

  /// The worker answers so many requests, one behind the other before anybody else runs.
  void answer(std::int32_t count, errc code = errc::ok) {
    desk_.answers = count;
    desk_.code = code;
    tell_from_outside(worker_, gate_ptr{});
    actors_.run_all();
  }

  node_stats stats() {
    caf::scoped_actor self{actors_.system()};
    node_stats out;
    auto asked = self->request(scheduler_, std::chrono::minutes(60), stats_atom::value);
    actors_.run_all();
    asked.receive([&](const node_stats& told) { out = told; }, [](caf::error&) { FAIL("gone"); });
    return out;
  }

  desk& worker() { return desk_; }

private:
  virtual_device clock_;
  desk desk_;
  virtual_actors actors_{0};
  caf::actor worker_;
  scheduler_actor scheduler_;
};

}  // namespace

TEST_CASE("the host waits for the device once for each settled step, and not for a result that has "
          "come meanwhile") {
  played_rank single(2);
  single.submit(8);
  for (std::uint64_t step = 1; step <= 8; ++step) {
    REQUIRE(!single.worker().steps.empty());
    CHECK(single.stats().host_waits == step - 1);
    single.answer(1);
    CHECK(single.stats().host_waits == step);
  }
  CHECK(single.worker().steps.empty());

  played_rank pairs(2);
  pairs.submit(8);
  for (std::uint64_t pair = 1; pair <= 4; ++pair) {
    REQUIRE(pairs.worker().steps.size() == 2);
    pairs.answer(2);
    CHECK(pairs.stats().host_waits == pair);  // for two steps
  }
  CHECK(pairs.stats().tokens_out == 8);
}

TEST_CASE(
  "a further wait for the device is counted: a step that was given up is waited for twice") {
  played_rank rank(1);
  rank.submit(8);
  rank.answer(1);
  rank.answer(1);
  CHECK(rank.stats().host_waits == 2);
  rank.answer(1, errc::deadline_exceeded);
  CHECK(rank.stats().steps == 3);
  CHECK(rank.stats().host_waits == 3);
  REQUIRE(rank.worker().recoveries.size() == 1);
  rank.answer(1);
  CHECK(rank.stats().host_waits == 4);  // more than there are steps
}

TEST_CASE("a plan is not written again while anybody who launched it may read it [I22]") {
  played_rank rank(2);
  rank.submit(40);
  for (std::int32_t step = 1; step <= 20; ++step) rank.answer(1);
  auto& kept = rank.worker().kept;  // all of them, as if the device had ended no step
  REQUIRE(kept.size() == 20);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(kept[i]->step.value == i + 1);
    for (std::size_t j = 0; j < i; ++j) CHECK(kept[i] != kept[j]);
  }
  // Once nobody reads them they are what the next plans are written to.
  std::vector<const step_plan*> old;
  for (const auto& plan : kept) old.push_back(plan.get());
  kept.clear();
  for (std::int32_t step = 1; step <= 10; ++step) rank.answer(1);
  for (const auto& plan : kept) CHECK(std::find(old.begin(), old.end(), plan.get()) != old.end());
}
