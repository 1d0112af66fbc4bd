// Counts heap allocations of this binary: the phases of a step make none once a runner is warm.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "runner_fixture.hpp"

namespace {

std::atomic<std::int64_t> allocations{0};

}  // namespace

// Sanitizers bring their own operators, all forms of them: there nothing is counted.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DI_HAS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DI_HAS_SANITIZER
#endif
#endif

#if defined(DI_HAS_SANITIZER)
constexpr bool counts_allocations = false;
#else
constexpr bool counts_allocations = true;

void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// Passes calls on and counts what the phases of its steps allocate after the first `warm` steps.
class counting_runner final : public step_runner {
public:
  counting_runner(step_runner& inner, std::int64_t warm) : inner_(inner), warm_(warm) {}
  const runner_config& config() const override { return inner_.config(); }
  std::int32_t vocab_size() const override { return inner_.vocab_size(); }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override {
    return std::make_shared<counted_work>(*this, inner_.stage(std::move(plan)));
  }
  void collect(const device_work& work, step_result& out) override {
    inner_.collect(*static_cast<const counted_work&>(work).inner, out);
  }
  void set_masks(device_work& work, std::shared_ptr<const sample_gate> masks) override {
    inner_.set_masks(*static_cast<counted_work&>(work).inner, std::move(masks));
  }
  void reset() override { inner_.reset(); }
  void poison(std::span<const block_id> blocks, std::span<const slot_id> slots) override {
    inner_.poison(blocks, slots);
  }

  std::int64_t phases = 0, counted = 0;

private:
  struct counted_work final : device_work {
    counted_work(counting_runner& by, std::shared_ptr<device_work> work)
      : owner(by),
        inner(std::move(work)) {}
    step_id step() const override { return inner->step(); }
    bool is_gated() const override { return inner->is_gated(); }
    device_status run(step_phase phase, const stream_ref& stream) override {
      const auto before = allocations.load();
      const auto status = inner->run(phase, stream);
      if (++owner.phases > owner.warm_ * static_cast<std::int64_t>(step_phases))
        owner.counted += allocations.load() - before;
      return status;
    }
    counting_runner& owner;
    std::shared_ptr<device_work> inner;
  };

  step_runner& inner_;
  std::int64_t warm_;
};

}  // namespace

TEST_CASE("the phases of a warm runner allocate nothing: chunks, drafts, sampling, logprobs") {
  const auto weights = generated_t1();
  std::vector<drive_request> requests;
  for (std::int32_t i = 0; i < 6; ++i) {
    drive_request it{random_ids(static_cast<std::uint64_t>(i) + 1, 9 + 7 * i, 128), 12, {}, i};
    it.params.repetition_penalty = 1.2f;
    it.params.frequency_penalty = 0.3f;
    it.params.top_p = 0.9f;
    it.params.logprobs = 5;
    it.is_gated = i % 3 == 0;
    requests.push_back(std::move(it));
  }
  for (const auto drafter : {drafter_kind::none, drafter_kind::dspark, drafter_kind::ngram})
    for (const auto rule : {acceptance_rule::coupled, acceptance_rule::rejection}) {
      CAPTURE(static_cast<int>(drafter));
      CAPTURE(static_cast<int>(rule));
      drive_options options;
      const bool replays = drafter == drafter_kind::ngram;  // not together with a cache
      options.prefix_cache = !replays;
      options.replay = replays ? replay_mode::compact : replay_mode::off;
      options.keep_tokens = replays ? 9 : 0;
      options.block_size = 4;
      options.depth = 2;
      options.chunk = 8;
      options.num_drafts = 3;
      options.drafter = drafter;
      options.acceptance = rule;
      options.stop_mask = true;
      options.split_seed = 1;
      const auto runner = make_runner(weights, options);
      counting_runner counting(*runner, 4);  // the first drafts make their scratch memory
      const auto before = allocations.load();
      const auto outputs = drive(counting, requests, options);
      CHECK((allocations.load() > before) == counts_allocations);
      CHECK(outputs.back().tokens.size() == 12);
      CHECK(counting.phases > 40);
      CHECK(counting.counted == 0);
    }
}
