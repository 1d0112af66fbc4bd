// Random worlds: arrivals, aborts, stops, failures, late messages, tiny pools, depth 1..3, changed
// while running. rank_world checks every invariant after every event; a fault names its seed.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/core/rank_world.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/seeded_draws.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

struct world_kind {
  bool aborts = true;
  bool failures = true;
  bool late_messages = true;
  bool depth_changes = true;
  bool preempts = true;
  bool holds = false;
  bool is_tight = false;  ///< few blocks and a host tier: cached prefixes move
};

scheduler_config random_config(seeded_draws& draw) {
  auto c = small_config();
  c.depth = 1 + draw.below(3);
  c.max_num_seqs = 1 + draw.below(4);
  c.state_slots = c.max_num_seqs + draw.below(c.max_num_seqs * c.depth);
  c.max_num_batched_tokens = 1 + draw.below(draw.one_in(2) ? 6 : 40);
  c.chunk_size = draw.one_in(2) ? 0 : 1 + draw.below(9);
  c.max_model_len = 8 + draw.below(40);
  c.block_size = 1 + draw.below(6);
  c.num_kv_blocks = 4 + draw.below(draw.one_in(2) ? 20 : 80);
  c.draft_overhang = draw.one_in(3) ? draw.below(4) : 0;
  c.num_drafts = draw.one_in(2) ? draw.below(4) : 0;
  c.max_num_batched_tokens = std::max(c.max_num_batched_tokens, 1 + c.num_drafts);
  c.draft_trim = draw.one_in(3) ? trim_rule::max_tokens : trim_rule::length_limit;
  c.mixed_steps = draw.one_in(3);
  c.prefix_cache = draw.one_in(2);
  c.resume_stride = draw.one_in(4) ? 2 : 1;
  auto& policy = c.policy;
  policy.victim = static_cast<victim_rule>(draw.below(4));
  policy.preempt_output = static_cast<preempt_rule>(draw.below(2));
  policy.on_step_failure = static_cast<failure_rule>(draw.below(2));
  policy.priority_preempts = draw.one_in(3);
  policy.min_decode_gap = draw.one_in(3) ? draw.below(4) : 0;
  policy.max_prefill_run = draw.one_in(3) ? 1 + draw.below(2) : 0;
  return c;
}

sampling_params random_params(seeded_draws& draw) {
  sampling_params p;
  p.max_tokens = draw.one_in(5) ? -1 : 1 + draw.below(14);
  p.min_tokens = draw.one_in(4) ? draw.below(5) : 0;
  p.ignore_eos = draw.one_in(6);
  p.skip_special_tokens = !draw.one_in(3);
  if (draw.one_in(4)) p.stop_token_ids = {8 + draw.below(vocab - 8), 8 + draw.below(vocab - 8)};
  const char* const stops[] = {"abca", "bb", "cacab", "aaa", "ccbb", "b", ""};
  while (draw.one_in(3)) p.stop.emplace_back(stops[draw.below(7)]);
  return p;
}

void submit_random(rank_world& world, seeded_draws& draw, std::int32_t max_model_len) {
  const auto prompt = 1 + draw.below(max_model_len - 1);
  const auto stop_after = draw.one_in(2) ? 1 + draw.below(8) : 0;
  const auto id = world.submit(prompt, random_params(draw), stop_after, draw.below(3) - 1);
  if (!draw.one_in(10)) return;
  auto& view = world.view(id);
  view.fails_at = 1 + draw.below(6);
  view.fails_with = static_cast<row_error>(1 + draw.below(3));
}

void random_event(rank_world& world, seeded_draws& draw, const world_kind& kind,
                  const scheduler_config& config) {
  const auto& views = world.views();
  if (kind.holds && draw.one_in(6))
    return world.hold({static_cast<std::uint64_t>(draw.below(14))}, draw.one_in(2));
  switch (draw.below(10)) {
  case 0:
    if (views.size() < 12) submit_random(world, draw, config.max_model_len);
    return;
  case 1:
  case 2:
  case 3: world.launch(); return;
  case 4:
  case 5:
    if (world.core().in_flight() > 0)
      world.complete(kind.failures && draw.one_in(kind.is_tight ? 8 : 25) ? errc::device_failed
                                                                          : errc::ok);
    return;
  case 6:
    if (kind.aborts && draw.one_in(3))
      world.abort({static_cast<std::uint64_t>(draw.below(14))});  // may be unknown or ended
    else if (kind.preempts)
      world.preempt({static_cast<std::uint64_t>(draw.below(14))});
    return;
  case 7:
    if (kind.depth_changes && draw.one_in(8)) world.core().set_depth(1 + draw.below(config.depth));
    if (draw.one_in(20)) world.core().pause();
    if (draw.one_in(5)) world.core().resume();
    return;
  default:
    if (kind.late_messages)
      world.deliver(draw.below(4));
    else
      world.deliver_all();
  }
}

/// What a sweep has met, so that a test can tell it was not an empty one.
struct coverage {
  std::uint64_t steps = 0, tokens = 0, overrun_rows = 0, failed_steps = 0, late = 0;
  std::uint64_t preemptions = 0, hits = 0, accepted = 0;
  std::int64_t moves = 0, moves_failed = 0, host_hits = 0;
  std::uint64_t aborted = 0, stopped = 0, by_string = 0, by_length = 0, refused = 0;
  std::uint64_t failed_rows = 0;

  void add(rank_world& world) {
    const auto s = world.core().stats();
    steps += s.steps;
    tokens += s.emitted_tokens;
    overrun_rows += s.overrun_rows;
    failed_steps += s.failed_steps;
    late += s.late_messages;
    preemptions += s.preemptions;
    hits += s.cached_tokens;
    accepted += s.accepted_tokens;
    moves += world.moves_run;
    moves_failed += world.moves_failed;
    host_hits += world.pool().counters().host_hits;
    for (const auto& [id, view] : world.views()) {
      const auto reason = view.finish.reason;
      aborted += view.was_aborted && !view.got.empty();
      stopped += reason == finish_reason::stop;
      by_string += view.finish.stop_bytes >= 0;
      by_length += reason == finish_reason::length;
      refused += reason == finish_reason::resource;
      failed_rows += reason == finish_reason::error && !view.had_failure && view.launches > 0;
    }
  }
};

std::string run_random(std::uint64_t seed, const world_kind& kind, coverage& seen) {
  seeded_draws draw(seed);
  auto config = random_config(draw);
  if (kind.is_tight) {
    config.prefix_cache = true;
    config.num_kv_blocks = config.max_model_len / config.block_size + 1 + draw.below(6);
  }
  const bool has_host = config.prefix_cache && (kind.is_tight || draw.one_in(2));
  rank_world world(config, seed, has_host ? 1 + draw.below(12) : 0);
  world.share_prompts(kind.is_tight || draw.one_in(2) ? 1 + draw.below(30) : 0);
  for (std::int32_t i = 0; i < 250; ++i) {
    random_event(world, draw, kind, config);
    if (!world.faults().empty()) return world.first_fault();
  }
  if (kind.holds && !world.finish_the_others()) return "somebody waits for who is held";
  if (!world.finish()) return "something waits for ever";
  world.check_end();
  seen.add(world);
  return world.first_fault();
}

coverage sweep(std::uint64_t first, std::uint64_t count, const world_kind& kind) {
  coverage seen;
  for (auto seed = first; seed < first + with_effort(count); ++seed) {
    const auto fault = run_random(seed, kind, seen);
    INFO("seed " << seed);
    REQUIRE_MESSAGE(fault.empty(), fault);
  }
  return seen;
}

}  // namespace

TEST_CASE("random worlds keep every book and give every token once, in order, as the synchronous "
          "engine would [I01][I02][I03][I05][I06][I07][I08][I09][I10][I11][I12][I13][I15][I17]"
          "[I18][I19][I20][I25][I35][I36][I37][I38][I39][I40][I41][I54][I55][I58][I59][I76]") {
  const auto seen = sweep(1, 4000, {});
  CHECK(seen.steps > 100000);
  CHECK(seen.tokens > 100000);
  CHECK(seen.overrun_rows > 2000);
  CHECK(seen.failed_steps > 1000);
  CHECK(seen.late > 1000);
  CHECK(seen.preemptions > 2000);
  CHECK(seen.hits > 10000);
  CHECK(seen.accepted > 10000);
  CHECK(seen.aborted > 500);
  CHECK(seen.stopped > 5000);
  CHECK(seen.by_string > 1000);
  CHECK(seen.by_length > 5000);
  CHECK(seen.refused > 1000);
  CHECK(seen.failed_rows > 500);
  CHECK(seen.moves > 1000);
}

TEST_CASE("worlds of few blocks and a host tier hit what was moved, and never what a failed step "
          "moved [I48][I50]") {
  const auto seen = sweep(300001, 6000, {.is_tight = true});
  CHECK(seen.moves > 3000);
  CHECK(seen.moves_failed > 40);
  CHECK(seen.host_hits > 300);
  MESSAGE(seen.moves << " moves, " << seen.moves_failed << " of failed steps, " << seen.host_hits
                     << " blocks back from the host tier");
}

TEST_CASE("worlds whose clients stop and go on keep every book, and nobody waits for who is held "
          "[I02][I12][I17][I35][I54][I56]") {
  const auto seen = sweep(400001, 3000, {.holds = true});
  CHECK(seen.preemptions > 1000);
  CHECK(seen.by_length > 2000);
  sweep(500001, 2000, {.holds = true, .is_tight = true});
}

TEST_CASE("undisturbed worlds end every request with all its tokens [I35][I38][I40][I41]") {
  sweep(100001, 500,
        {.aborts = false, .failures = false, .late_messages = true, .depth_changes = true});
}

TEST_CASE("worlds with prompt messages leave nothing behind [I12][I20]") {
  sweep(200001, 300,
        {.aborts = true, .failures = false, .late_messages = false, .depth_changes = false});
}

TEST_CASE("depth 1, 2 and 3 give the same tokens and ends [I38]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::vector<std::vector<token_id>> tokens[3];
    std::vector<finish_reason> reasons[3];
    for (std::int32_t depth = 1; depth <= 3; ++depth) {
      seeded_draws draw(seed);
      auto config = random_config(draw);
      config.num_kv_blocks = 100;  // nobody ends for want of room
      config.depth = depth;
      config.state_slots = 16;
      rank_world world(config, seed);
      for (std::int32_t i = 0; i < 6; ++i) submit_random(world, draw, config.max_model_len);
      REQUIRE(world.finish());
      world.check_end();
      REQUIRE_MESSAGE(world.faults().empty(), world.first_fault());
      for (const auto& [id, view] : world.views()) {
        tokens[depth - 1].push_back(view.got);
        reasons[depth - 1].push_back(view.finish.reason);
      }
    }
    CAPTURE(seed);
    CHECK(tokens[0] == tokens[1]);
    CHECK(tokens[0] == tokens[2]);
    CHECK(reasons[0] == reasons[1]);
    CHECK(reasons[0] == reasons[2]);
  }
}
