// Two sequences, every interleaving of submit, plan, settle, failure, abort, preemption and late
// messages up to a bounded length, with drafts and with a prefix cache; each is run to its end and
// checked.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// `message`: the oldest of the first channel that has one, and no other; `deliver`: all there are.
enum class move {
  submit_a,
  submit_b,
  launch,
  settle,
  fail,
  abort_a,
  abort_b,
  preempt_a,
  preempt_b,
  message,
  deliver
};

constexpr const char* move_names[] = {"submit a",  "submit b",  "launch",  "settle",
                                      "fail",      "abort a",   "abort b", "preempt a",
                                      "preempt b", "a message", "deliver"};

/// Walks all choice sequences, one run after another: the last choice that can grow grows.
class enumeration {
public:
  std::size_t pick(std::size_t options) {
    if (at_ == path_.size()) path_.push_back({0, options});
    return path_[at_++].chosen;
  }
  bool next() {
    at_ = 0;
    while (!path_.empty() && path_.back().chosen + 1 == path_.back().options) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().chosen;
    return true;
  }

private:
  struct choice {
    std::size_t chosen, options;
  };
  std::vector<choice> path_;
  std::size_t at_ = 0;
};

struct tiny_world {
  std::int32_t depth, chunk, prompt, max_tokens, stop_after;
  std::int32_t blocks, block_size, drafts;
  std::vector<std::int32_t> accept;
  std::int32_t shared;  ///< ids that both prompts begin with; > 0: with a prefix cache
  std::int32_t moves;   ///< longest sequence of choices
  std::int32_t orders;  ///< preemptions, single messages: at most so many of each
};

scheduler_config config_of(const tiny_world& tiny) {
  auto config = small_config();
  config.depth = tiny.depth;
  config.chunk_size = tiny.chunk;
  config.block_size = tiny.block_size;
  config.num_kv_blocks = tiny.blocks;
  config.num_drafts = tiny.drafts;
  config.prefix_cache = tiny.shared > 0;
  if (config.prefix_cache) config.policy.on_step_failure = failure_rule::retry;
  config.max_num_seqs = 2;
  config.state_slots = 2;
  return config;
}

class run {
public:
  explicit run(const tiny_world& tiny) : tiny_(tiny), world_(config_of(tiny)) {
    world_.share_prompts(tiny.shared);
  }

  bool step(enumeration& all) {
    std::vector<move> legal;
    if (submitted_ == 0) legal = {move::submit_a};
    if (submitted_ == 1) legal.push_back(move::submit_b);
    if (can_launch_) legal.push_back(move::launch);
    if (world_.core().in_flight() > 0) legal.push_back(move::settle);
    if (world_.core().in_flight() > 0 && !failed_) legal.push_back(move::fail);
    if (submitted_ >= 1 && !aborted_) legal.push_back(move::abort_a);
    if (submitted_ >= 2 && !aborted_) legal.push_back(move::abort_b);
    if (preempted_ < tiny_.orders && runs({1})) legal.push_back(move::preempt_a);
    if (preempted_ < tiny_.orders && runs({2})) legal.push_back(move::preempt_b);
    if (submitted_ >= 1 && may_deliver_ && messages_ < tiny_.orders) legal.push_back(move::message);
    if (submitted_ >= 1 && may_deliver_) legal.push_back(move::deliver);
    if (legal.empty()) return false;
    apply(legal[all.pick(legal.size())]);
    return world_.faults().empty();
  }

  rank_world& world() { return world_; }
  const std::string& path() const { return path_; }

private:
  bool runs(seq_id id) {
    const auto* sequence = world_.core().find(id);
    return sequence && sequence->phase == sequence_phase::running;
  }

  void submit() {
    sampling_params params;
    params.max_tokens = tiny_.max_tokens;
    const auto id = world_.submit(tiny_.prompt, params, tiny_.stop_after);
    if (!tiny_.accept.empty()) world_.view(id).accept = tiny_.accept;
    ++submitted_;
  }

  void deliver_one() {
    for (std::int32_t channel = 0; channel < 4; ++channel)
      if (world_.deliver(channel)) return;
  }

  // A move that changed nothing is not offered again before something else has happened.
  void apply(move it) {
    path_ += std::string(path_.empty() ? "" : ", ") + move_names[static_cast<std::size_t>(it)];
    const bool delivered = it == move::deliver;
    switch (it) {
    case move::submit_a:
    case move::submit_b: submit(); break;
    case move::launch: can_launch_ = world_.launch(); return void(may_deliver_ = true);
    case move::settle: world_.complete(); break;
    case move::fail:
      failed_ = true;
      // Whoever stands on a cached prefix of the failed step is computed again as well.
      for (auto id = 1; tiny_.shared > 0 && id <= submitted_; ++id)
        world_.view({static_cast<std::uint64_t>(id)}).had_failure = true;
      world_.complete(errc::device_failed);
      break;
    case move::abort_a:
    case move::abort_b:
      aborted_ = true;
      world_.abort({it == move::abort_a ? 1u : 2u});
      break;
    case move::preempt_a:
    case move::preempt_b:
      ++preempted_;
      world_.preempt({it == move::preempt_a ? 1u : 2u});
      break;
    case move::message:
      ++messages_;
      deliver_one();
      break;
    case move::deliver: world_.deliver_all(); break;
    }
    can_launch_ = true;
    may_deliver_ = !delivered;
  }

  const tiny_world& tiny_;
  rank_world world_;
  std::string path_;
  std::int32_t submitted_ = 0, preempted_ = 0, messages_ = 0;
  bool aborted_ = false;
  bool failed_ = false;
  bool can_launch_ = false;
  bool may_deliver_ = false;
};

struct walked {
  std::int64_t runs = 0, moves = 0, steps = 0, preemptions = 0, accepted = 0, cached = 0;

  void add(rank_world& world) {
    const auto s = world.core().stats();
    ++runs;
    steps += static_cast<std::int64_t>(s.steps);
    preemptions += static_cast<std::int64_t>(s.preemptions);
    accepted += static_cast<std::int64_t>(s.accepted_tokens);
    cached += static_cast<std::int64_t>(s.cached_tokens);
  }
};

walked walk(const tiny_world& tiny) {
  enumeration all;
  walked seen;
  do {
    run it(tiny);
    for (std::int32_t i = 0; i < tiny.moves && it.step(all); ++i) ++seen.moves;
    const bool ended = it.world().finish();
    it.world().check_end();
    INFO("depth " << tiny.depth << ", drafts " << tiny.drafts << ", moves: " << it.path());
    REQUIRE(ended);
    REQUIRE_MESSAGE(it.world().faults().empty(), it.world().first_fault());
    seen.add(it.world());
  } while (all.next());
  MESSAGE("depth " << tiny.depth << ", " << tiny.drafts << " drafts, " << tiny.blocks
                   << " blocks: " << seen.runs << " runs, " << seen.moves << " states, "
                   << seen.steps << " steps");
  return seen;
}

}  // namespace

TEST_CASE("every interleaving of two sequences keeps every book and gives the right tokens "
          "[I01][I02][I04][I08][I09][I12][I13][I17][I18][I19][I20][I35][I38][I54][I55][I59]") {
  const tiny_world table[] = {
    {1, 0, 3, 2, 0, 4, 2, 0, {}, 0, 9, 0},  // synchronous
    {2, 2, 3, 3, 0, 4, 2, 0, {}, 0, 9, 0},  // two chunks, foreseen end
    {2, 0, 2, 9, 2, 4, 2, 0, {}, 0, 9, 0},  // a stop while the next step flies
    {3, 0, 2, 9, 2, 4, 2, 0, {}, 0, 9, 0},  // deeper, room for one at a time
  };
  for (const auto& tiny : table) CHECK(walk(tiny).runs > 5000);
}

TEST_CASE("every interleaving with drafts, a preemption and a late message gives the right tokens "
          "[I02][I05][I08][I13][I16][I17][I35][I37][I38][I40]") {
  const tiny_world table[] = {
    {1, 0, 2, 4, 0, 3, 4, 1, {1, 0}, 0, 8, 1},
    {2, 0, 2, 3, 0, 4, 2, 1, {1, 0}, 0, 8, 1},  // accepted drafts bring the end into sight
    {2, 2, 3, 5, 0, 4, 4, 2, {2, 0, 1}, 0, 8, 1},
    {3, 0, 2, 9, 3, 4, 4, 2, {0, 2}, 0, 8, 1},  // a stop inside an accepted run
  };
  walked all;
  for (const auto& tiny : table) {
    const auto seen = walk(tiny);
    CHECK(seen.runs > 5000);
    all.preemptions += seen.preemptions;
    all.accepted += seen.accepted;
  }
  CHECK(all.preemptions > 5000);
  CHECK(all.accepted > 5000);
}

TEST_CASE("every interleaving of two sequences that share a cached prefix gives the right tokens "
          "[I17][I35][I38][I48][I49][I52]") {
  const tiny_world table[] = {
    {2, 0, 4, 2, 0, 4, 2, 0, {}, 3, 9, 1},
    {2, 2, 3, 3, 0, 4, 2, 1, {1, 0}, 3, 8, 1},
  };
  std::int64_t cached = 0;
  for (const auto& tiny : table) {
    const auto seen = walk(tiny);
    CHECK(seen.runs > 5000);
    cached += seen.cached;
  }
  CHECK(cached > 5000);
}
