// Counts calls of operator new: in steady decode a plan makes none.
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>

#include "tests/core/rank_world.hpp"

namespace {

thread_local bool is_counting = false;
thread_local std::int64_t allocations = 0;

void* counted(std::size_t bytes) {
  if (is_counting) ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

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
      allocations = 0;
      is_counting = true;
      const bool planned = core.plan(plan);
      is_counting = false;
      REQUIRE(planned);
      if (step >= 60) steady.push_back(allocations);
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
