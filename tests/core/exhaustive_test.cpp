// Two sequences, every interleaving of submit, plan, settle, failure, abort and late messages up to
// a bounded length; each is run to its end and checked.
#include <doctest/doctest.h>

#include <vector>

#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

enum class move { submit_a, submit_b, launch, settle, fail, abort_a, abort_b, deliver };

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
  std::int32_t depth, chunk, prompt, max_tokens, stop_after, blocks, moves;
};

class run {
public:
  run(const tiny_world& tiny, scheduler_config config) : tiny_(tiny), world_(std::move(config)) {}

  bool step(enumeration& all) {
    std::vector<move> legal;
    if (submitted_ == 0) legal = {move::submit_a};
    if (submitted_ == 1) legal.push_back(move::submit_b);
    if (can_launch_) legal.push_back(move::launch);
    if (world_.core().in_flight() > 0) legal.push_back(move::settle);
    if (world_.core().in_flight() > 0 && !failed_) legal.push_back(move::fail);
    if (submitted_ >= 1 && !aborted_[0]) legal.push_back(move::abort_a);
    if (submitted_ >= 2 && !aborted_[1]) legal.push_back(move::abort_b);
    if (submitted_ >= 1 && may_deliver_) legal.push_back(move::deliver);
    if (legal.empty()) return false;
    apply(legal[all.pick(legal.size())]);
    return world_.faults().empty();
  }

  rank_world& world() { return world_; }

private:
  // A move that changed nothing is not offered again before something else has happened.
  void apply(move it) {
    const bool delivered = it == move::deliver;
    switch (it) {
    case move::submit_a:
    case move::submit_b: {
      sampling_params params;
      params.max_tokens = tiny_.max_tokens;
      world_.submit(tiny_.prompt, params, tiny_.stop_after);
      ++submitted_;
      break;
    }
    case move::launch: can_launch_ = world_.launch(); return void(may_deliver_ = true);
    case move::settle: world_.complete(); break;
    case move::fail:
      failed_ = true;
      world_.complete(errc::device_failed);
      break;
    case move::abort_a:
      aborted_[0] = true;
      world_.abort({1});
      break;
    case move::abort_b:
      aborted_[1] = true;
      world_.abort({2});
      break;
    case move::deliver: world_.deliver_all(); break;
    }
    can_launch_ = true;
    may_deliver_ = !delivered;
  }

  tiny_world tiny_;
  rank_world world_;
  std::int32_t submitted_ = 0;
  bool aborted_[2] = {false, false};
  bool failed_ = false;
  bool can_launch_ = false;
  bool may_deliver_ = false;
};

}  // namespace

TEST_CASE("every interleaving of two sequences keeps every book and gives the right tokens "
          "[I01][I02][I04][I08][I09][I12][I13][I17][I18][I19][I20][I35][I38][I54][I55][I59]") {
  const tiny_world table[] = {
    {1, 0, 3, 2, 0, 4, 10},  // synchronous
    {2, 2, 3, 3, 0, 6, 10},  // two chunks, foreseen end
    {2, 0, 2, 9, 2, 8, 10},  // a stop while the next step flies
    {3, 0, 2, 9, 2, 7, 10},  // deeper, room for one at a time
  };
  for (const auto& tiny : table) {
    auto config = small_config();
    config.depth = tiny.depth;
    config.chunk_size = tiny.chunk;
    config.block_size = 2;
    config.num_kv_blocks = tiny.blocks;
    config.max_num_seqs = 2;
    config.state_slots = 2;
    enumeration all;
    std::int64_t runs = 0;
    do {
      run it(tiny, config);
      for (std::int32_t i = 0; i < tiny.moves && it.step(all); ++i) {
      }
      const bool ended = it.world().finish();
      it.world().check_end();
      CAPTURE(tiny.depth);
      CAPTURE(runs);
      REQUIRE(ended);
      REQUIRE_MESSAGE(it.world().faults().empty(), it.world().first_fault());
      ++runs;
    } while (all.next());
    CHECK(runs > 10000);
  }
}
