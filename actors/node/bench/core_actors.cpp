#include "actors/node/bench/core_actors.hpp"

#include <array>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "actors/client_state.hpp"
#include "actors/node/bench/core_result.hpp"
#include "actors/rank_supervisor.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/spin.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 600s;
constexpr auto stats_timeout = 10s;

/// Runs each task at once, on the thread that brings it.
class instant_device final : public device {
public:
  std::string_view name() const override { return "instant"; }
  std::int64_t now_ns() const override { return steady_now_ns(); }
  std::int32_t room(stream_kind) const override { return 64; }
  void enqueue(stream_kind stream, const stream_task& task) override {
    task_context context;
    context.begin_ns = now_ns();
    ++ended_[static_cast<std::size_t>(stream)];
    task.run(task.user, context);
  }
  event_mark record(stream_kind stream) override {
    return {stream, ended_[static_cast<std::size_t>(stream)]};
  }
  void wait(stream_kind, event_mark) override {}
  bool has_ended(event_mark) const override { return true; }
  void abort() override {}
  result<arena> make_arena(memory_kind, std::size_t bytes) override { return arena::map(bytes); }

private:
  std::array<std::uint64_t, device_streams> ended_{};
};

class idle_work final : public device_work {
public:
  step_id step() const override { return plan->step; }
  device_status run(step_phase, const stream_ref&) override { return {}; }

  std::shared_ptr<const step_plan> plan;
};

class idle_runner final : public step_runner {
public:
  explicit idle_runner(const scheduler_config& of) : vocab_size_(of.vocab_size) {
    config_.depth = of.depth;
    config_.num_drafts = of.num_drafts;
    config_.max_num_seqs = of.max_num_seqs;
    config_.num_kv_blocks = of.num_kv_blocks;
    config_.block_size = of.block_size;
  }

  const runner_config& config() const override { return config_; }
  std::int32_t vocab_size() const override { return vocab_size_; }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override {
    auto work = unused();
    work->plan = std::move(plan);
    return work;
  }
  void set_masks(device_work&, std::shared_ptr<const sample_gate>) override {}
  void collect(const device_work& work, step_result& out) override {
    make_result(*static_cast<const idle_work&>(work).plan, config_.num_drafts, out);
  }
  void reset() override {}
  void poison(std::span<const block_id>, std::span<const slot_id>) override {}

private:
  std::shared_ptr<idle_work> unused() {
    for (const auto& it : works_)
      if (it.use_count() == 1) return it;
    return works_.emplace_back(std::make_shared<idle_work>());
  }

  runner_config config_;
  std::int32_t vocab_size_;
  std::vector<std::shared_ptr<idle_work>> works_;
};

/// Takes the time of every window of settled steps, on the scheduler's thread.
class step_clock final : public rank_watch {
public:
  explicit step_clock(const core_bench_sizes& sizes) : sizes_(sizes) {}

  std::future<sample_list> windows() { return done_.get_future(); }

  void on_settle(const step_result& result, const scheduler_core&) override {
    if (std::ssize(result.sequences) != sizes_.rows || steps_ == sizes_.steps) return;
    if (++steps_ < 0 || steps_ % window_steps != 0) return;
    const auto now = steady_now_ns();
    if (steps_ > 0) windows_.add(1e-9 * static_cast<double>(now - begin_ns_) / window_steps);
    begin_ns_ = now;
    if (steps_ == sizes_.steps) done_.set_value(std::move(windows_));
  }

private:
  core_bench_sizes sizes_;
  std::promise<sample_list> done_;
  sample_list windows_;
  std::int64_t begin_ns_ = 0;
  std::int32_t steps_ = -window_steps;  ///< warms up first
};

struct dropping_state {
  static inline const char* name = "dropping_gateway";
};

rank_client_actor::behavior_type
dropping_gateway(rank_client_actor::stateful_pointer<dropping_state> self,
                 const core_bench_sizes& sizes) {
  return {
    [](const chunk_batch&) {},
    [self, sizes](rank_up_atom, const scheduler_actor& rank) {
      tell(self, rank, core_bench_requests(sizes));
    },
    [](rank_down_atom, const std::string&, bool) {},
    [self](stop_atom) { self->quit(); },
  };
}

rank_config rank_of(const core_bench_sizes& sizes, device& on, rank_watch& watch) {
  rank_config out;
  out.scheduler = core_bench_config(sizes);
  out.runner = std::make_shared<idle_runner>(out.scheduler);
  out.on = &on;
  out.watchdog = std::chrono::minutes(1);
  out.hooks.watch = &watch;
  return out;
}

}  // namespace

result<actors_cost> run_core_actors(const core_bench_sizes& sizes) {
  instant_device on;
  step_clock clock(sizes);
  auto windows = clock.windows();
  device_doors doors;
  actor_config settings(std::max(1u, std::thread::hardware_concurrency()));
  caf::actor_system system(settings);
  const auto gateway = system.spawn(dropping_gateway, sizes);
  const auto supervisor = system.spawn(rank_supervisor, rank_of(sizes, on, clock), gateway, &doors);

  actors_cost out;
  const bool have_come = windows.wait_for(patience) == std::future_status::ready;
  auto stats = ask_and_wait<node_stats>(system, supervisor, stats_timeout, stats_atom::value);
  caf::scoped_actor self{system, true};
  self->send(supervisor, stop_atom::value);
  self->wait_for(supervisor);
  self->send(gateway, stop_atom::value);
  self->wait_for(gateway);
  if (!have_come) return fail(errc::deadline_exceeded, "the rank does not make its steps");
  if (!stats) return tl::unexpected<error>(stats.error());
  out.seconds = windows.get();
  out.messages_per_step =
    static_cast<double>(stats->step_messages) / static_cast<double>(stats->steps);
  return out;
}

}  // namespace deepinfer
