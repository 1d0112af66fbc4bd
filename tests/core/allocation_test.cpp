// Counts calls of operator new: in steady state a plan makes none, and the rest of the cores none
// but for what they hand over.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/core/rank_world.hpp"
#include "tests/support/counted_allocations.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

TEST_CASE("planning a steady decode step allocates nothing, block boundaries included [I72]") {
  for (const std::int32_t budget : {64, 5}) {  // all rows fit; rows take turns
    auto config = small_config();
    config.max_num_batched_tokens = budget;
    config.max_num_seqs = 8;
    letter_texts texts;
    scheduler_core core(config, {.texts = &texts});
    sampling_params params;
    params.max_tokens = 200;
    const auto shared = std::make_shared<const sampling_params>(params);
    const auto prompt = std::make_shared<const std::vector<token_id>>(5, 9);
    for (std::uint64_t id = 1; id <= 8; ++id) core.submit({{id}, prompt, shared, 0}, 0);
    kv_grant grant;
    for (std::int32_t i = 0; i < 1000; ++i) grant.blocks.push_back({i});
    for (std::int32_t i = 0; i < 8; ++i) grant.slots.push_back({i});
    core.grant(grant);

    step_plan plan;
    step_result result;
    std::vector<std::int64_t> steady;
    for (std::int32_t step = 0; step < 120; ++step) {
      bool planned = false;
      const auto count = allocations_of([&] { planned = core.plan(plan); });
      REQUIRE(planned);
      if (step >= 60) steady.push_back(count);
      result.clear();
      result.step = plan.step;
      result.sequences = plan.sequences;
      result.epochs = plan.epochs;
      for (const auto yields : plan.yields_min) {
        if (yields > 0) result.tokens.push_back(9);
        result.token_begin.push_back(static_cast<std::int32_t>(result.tokens.size()));
      }
      core.settle(result);
    }
    CAPTURE(budget);
    CHECK(plan.kind == step_kind::decode);
    CHECK(plan.rows() == std::min(budget, 8));
    CHECK(core.stats().table_blocks > 8 * 4);  // boundaries were crossed
    for (const auto count : steady) CHECK(count == 0);
  }
}

namespace {

/// What a device gives: every row its first token and, in every other step, one accepted draft.
void fill_result(const step_plan& plan, std::int32_t drafts, step_result& out) {
  out.clear();
  out.step = plan.step;
  out.sequences = plan.sequences;
  out.epochs = plan.epochs;
  out.widths = plan.widths;
  out.drafts_per_row = drafts;
  for (std::size_t i = 0; i < plan.yields_min.size(); ++i) {
    const auto more = plan.step.value % 2 == 0 ? 1 : 0;
    const auto given = std::min(plan.yields_max[i], plan.yields_min[i] + more);
    out.tokens.insert(out.tokens.end(), static_cast<std::size_t>(given), 9);
    out.token_begin.push_back(static_cast<std::int32_t>(out.tokens.size()));
    out.drafts.insert(out.drafts.end(), static_cast<std::size_t>(drafts), given > 0 ? 9 : -1);
    out.confidences.insert(out.confidences.end(), static_cast<std::size_t>(drafts), 0.5f);
  }
}

std::int64_t vectors_of(const kv_grant& it) {
  return std::int64_t{!it.blocks.empty()} + !it.slots.empty() + !it.hits.empty() +
         !it.moves.empty();
}

}  // namespace

// Not counted against the cores is what they hand over and never see again: the tokens of each
// chunk (the gateway keeps them), the blocks of each lease that comes back, and the columns of the
// grants and releases that pool and collector return. The outbox keeps its columns here, as their
// capacity; an actor that sends them by moving pays for them once a message.
TEST_CASE("settling, the outbox, the pool and the collector allocate nothing but what they hand "
          "over, with drafts and a prefix cache [I72]") {
  for (const std::int32_t depth : {1, 2, 3}) {
    auto config = small_config();
    config.depth = depth;
    config.num_drafts = 2;
    config.prefix_cache = true;
    config.max_model_len = 1024;
    config.num_kv_blocks = 4096;
    letter_texts texts;
    scheduler_core core(config, {.texts = &texts});
    kv_pool pool({.rank = config.rank,
                  .num_kv_blocks = config.num_kv_blocks,
                  .state_slots = config.state_slots,
                  .block_size = config.block_size});
    release_queue collector(config.rank);
    sampling_params params;
    params.max_tokens = 900;
    const auto shared = std::make_shared<const sampling_params>(params);
    for (std::uint64_t id = 1; id <= 8; ++id)
      core.submit({{id},
                   std::make_shared<const std::vector<token_id>>(5, 8 + static_cast<token_id>(id)),
                   shared,
                   0},
                  0);
    std::vector<step_plan> flying(static_cast<std::size_t>(depth) + 1);
    scheduler_outbox box;
    step_result result;
    std::uint64_t settled = 0, published = 0, grants = 0;
    bool is_steady = false;
    const auto exchange = [&] {
      const auto taken = allocations_of([&] { core.take_outbox(box); });
      if (is_steady) CHECK(taken == 0);
      kv_grant granted, more;
      kv_release freed;
      auto leases = box.leases;  // as a message carries them
      const auto asked = allocations_of([&] { granted = pool.reserve(box.want); });
      const auto parked = allocations_of([&] { freed = collector.take(std::move(leases)); });
      const auto released = allocations_of([&] { more = pool.release(freed); });
      if (is_steady) {
        CHECK(asked == vectors_of(granted));
        CHECK(parked == !freed.blocks.empty() + !freed.slots.empty());
        CHECK(released == vectors_of(more));
        published += box.want.publish.blocks.size();
        grants += std::uint64_t{!granted.blocks.empty()};
      }
      for (const auto* it : {&granted, &more})
        if (!it->is_empty()) core.grant(*it);
    };
    exchange();
    for (std::int32_t turn = 0; turn < 240; ++turn) {
      is_steady = turn >= 120;
      while (core.in_flight() < depth) {
        auto& plan = flying[(core.newest_launched().value + 1) % flying.size()];
        bool planned = false;
        const auto count = allocations_of([&] { planned = core.plan(plan); });
        if (is_steady) CHECK(count == 0);
        if (!planned) break;
        exchange();
      }
      REQUIRE(core.in_flight() > 0);
      fill_result(flying[++settled % flying.size()], config.num_drafts, result);
      const auto count = allocations_of([&] { core.settle(result); });
      const auto& told = core.gathered();
      if (is_steady)
        CHECK(count == std::ssize(told.chunks.chunks) + std::ssize(told.leases.entries));
      exchange();
    }
    CAPTURE(depth);
    CHECK(core.stats().accepted_tokens > 100);
    CHECK(published > 100);
    CHECK(grants > 10);
  }
}

TEST_CASE("sequences that come and go leave nothing to allocate in the pool and the collector "
          "but what they hand over [I72]") {
  kv_pool pool({.rank = {}, .num_kv_blocks = 64, .state_slots = 16, .block_size = 0});
  release_queue collector({});
  for (std::uint64_t step = 1; step <= 400; ++step) {
    kv_reserve want;
    want.blocks = 3;
    want.slots = 1;
    kv_grant granted, more;
    kv_release freed;
    const auto asked = allocations_of([&] { granted = pool.reserve(want); });
    lease_return back;
    back.settled = {step};
    back.entries.push_back({{step + 2}, granted.blocks, granted.slots});
    const auto parked = allocations_of([&] { freed = collector.take(std::move(back)); });
    const auto released = allocations_of([&] { more = pool.release(freed); });
    REQUIRE(granted.blocks.size() == 3);
    if (step < 20) continue;
    CHECK(asked == 2);
    CHECK(parked == 2);
    CHECK(released == 0);
  }
}
