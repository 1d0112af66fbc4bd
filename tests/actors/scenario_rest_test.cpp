// What the player looks at whenever its actors are at rest: each rule is broken here once.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include "actors/scenario/rest_rules.hpp"
#include "actors/scenario/runner.hpp"
#include "actors/scenario/world_rank.hpp"
#include "config/scenario_names.hpp"
#include "runtime/base/file.hpp"
#include "tests/actors/scenario_support.hpp"

using namespace deepinfer;

namespace {

/// A plan of one row of sequence 1, with blocks appended to its table from `first` on.
step_plan plan_of(std::uint64_t step, row_kind kind, std::int32_t width, std::int32_t position,
                  std::int32_t first, std::vector<block_id> blocks, std::uint32_t epoch = 0) {
  step_plan out;
  out.clear();
  out.step = {step};
  out.sequences = {{1}};
  out.epochs = {epoch};
  out.kinds = {kind};
  out.widths = {width};
  out.positions = {position};
  out.table_begin = {first};
  out.block_begin.push_back(static_cast<std::int32_t>(blocks.size()));
  out.blocks = std::move(blocks);
  return out;
}

step_result result_of(std::uint64_t step, std::int32_t tokens, errc code = errc::ok) {
  step_result out;
  out.step = {step};
  out.code = code;
  out.sequences = {{1}};
  out.token_begin = {0, tokens};
  return out;
}

kv_reserve named(std::int32_t block, std::uint64_t pending) {
  kv_reserve out;
  out.publish.blocks = {{block}};
  out.publish.pending = {{pending}};
  return out;
}

/// A rank without actors: the test is the host, and may forget what a host has to do.
struct lazy_host {
  explicit lazy_host(const std::string& body)
    : of(scenario_of(body)),
      it(first_case(of)),
      log(of.requests.size(), 1),
      rank(of, it, 0, 0, log, {}),
      core(scheduler_config_of(of, it, 0), {}),
      pool({{0}, it.engine.num_kv_blocks, it.engine.slots(), it.engine.block_size, 0}) {
    rank.on_start(core, accountant);
    rank.on_pool(pool);
  }

  void submit(std::int32_t request) {
    const auto answers = ask_oracle(of, it);
    sequence_request made;
    made.sequence = sequence_of(request);
    made.prompt = std::make_shared<const std::vector<token_id>>(
      answers[static_cast<std::size_t>(request)].prompt);
    auto params = std::make_shared<sampling_params>();
    params->max_tokens = of.requests[static_cast<std::size_t>(request)].max_tokens;
    made.params = params;
    core.submit(std::move(made), 0);
    exchange();
  }
  void exchange() {
    scheduler_outbox box;
    core.take_outbox(box);
    rank.on_outbox(box, core);
    if (box.has_want()) core.grant(pool.reserve(box.want));
  }
  void launch() {
    step_plan plan;
    REQUIRE(core.plan(plan));
    rank.on_launch(plan, core);
    exchange();
  }
  std::string broken() {
    const auto found = rank.broken_rule(false);
    return found ? found->first : "";
  }

  scenario of;
  scenario_case it;
  audit_log log;
  bubble_accountant accountant;
  played_rank rank;
  scheduler_core core;
  kv_pool pool;
};

const std::string one = "script:\n  - submit: { id: a, prompt_tokens: 5, max_tokens: 4 }\n";

}  // namespace

TEST_CASE("idle_while_runnable: a host that leaves a row and a place in the pipeline alone") {
  lazy_host host("engine: { depth: 2 }\n" + one);
  CHECK(host.broken() == "");
  host.submit(0);
  CHECK(host.broken() == "idle_while_runnable");
  host.core.pause();
  CHECK(host.broken() == "");
  host.core.resume();
  host.rank.on_suspect({7});
  CHECK(host.broken() == "");
  host.rank.on_proven({7});
  CHECK(host.broken() == "idle_while_runnable");
}

TEST_CASE("idle_while_runnable: a decode row that needs no block, and one that lacks some") {
  lazy_host host("engine: { depth: 2, num_kv_blocks: 2 }\n" + one);
  host.submit(0);
  host.launch();
  const auto row = runnable_row(host.core, host.pool, 1);
  REQUIRE(row);
  CHECK(*row == "a decode row of sequence 1 could be planned, with 1 of 2 steps in flight");
  host.launch();
  CHECK_FALSE(runnable_row(host.core, host.pool, 1));  // two are in flight
  lazy_host full("engine: { depth: 2, num_kv_blocks: 2, block_size: 4 }\n"
                 "script:\n  - submit: { id: a, prompt_tokens: 8, max_tokens: 4 }\n");
  full.submit(0);
  full.launch();
  CHECK_FALSE(runnable_row(full.core, full.pool, 1));  // the third block is nowhere
}

TEST_CASE("asleep_with_work_in_flight: a launched step that never reached the device") {
  lazy_host host("engine: { depth: 1 }\n" + one);
  host.submit(0);
  host.launch();
  CHECK(host.broken() == "asleep_with_work_in_flight");
  sleep_view sleep{1, true, true, 1'000'000, 500'000};
  CHECK_FALSE(endless_sleep(sleep));  // a completion may be lost: the watchdog is waited for
  sleep.oldest_age_ns = 1'000'001;
  CHECK(endless_sleep(sleep));
  sleep.is_device_idle = false;
  CHECK_FALSE(endless_sleep(sleep));
}

TEST_CASE("published_unsettled: a name before its block is full, and one that outlives a failure") {
  publish_watch watch(4);
  SUBCASE("named for good at launch") {
    watch.launched(plan_of(1, row_kind::prefill, 8, 0, 0, {{5}, {6}}));
    watch.told(named(5, 1));
    CHECK_FALSE(watch.broken());
    watch.told(named(6, 0));
    CHECK(watch.broken() == "block 6 is named for good, and its positions have not all settled");
  }
  SUBCASE("full with a decode's second token, not with its first") {
    watch.launched(plan_of(1, row_kind::prefill, 6, 0, 0, {{5}, {6}}));
    watch.settled(result_of(1, 1));
    watch.told(named(5, 0));
    watch.launched(plan_of(2, row_kind::decode, 4, 6, 2, {{7}}));
    watch.settled(result_of(2, 1));
    CHECK_FALSE(watch.broken());
    watch.launched(plan_of(3, row_kind::decode, 4, 7, 3, {}));
    watch.settled(result_of(3, 1));
    watch.told(named(6, 0));
    CHECK_FALSE(watch.broken());
    watch.told(named(7, 0));
    CHECK(watch.broken());
  }
  SUBCASE("a failed step's name is taken back, or wrong") {
    watch.launched(plan_of(1, row_kind::prefill, 4, 0, 0, {{5}}));
    watch.told(named(5, 1));
    watch.settled(result_of(1, 0, errc::device_failed));
    CHECK(watch.broken() == "block 5 keeps the name that it got from step 1, which has failed");
    kv_reserve back;
    back.retract = {{1}};
    watch.told(back);
    CHECK_FALSE(watch.broken());
    // What stands on a failed row has not settled either.
    watch.launched(plan_of(2, row_kind::decode, 4, 4, 1, {}));
    watch.settled(result_of(2, 4));
    watch.told(named(5, 0));
    CHECK(watch.broken());
  }
  SUBCASE("a block that was free begins again, one of the cache is as it was") {
    watch.launched(plan_of(1, row_kind::prefill, 4, 0, 0, {{5}}));
    watch.settled(result_of(1, 1));
    const block_id freed[] = {{5}};
    SUBCASE("cached") {
      watch.launched(plan_of(2, row_kind::prefill, 1, 4, 0, {{5}, {6}}, 1));
      watch.told(named(5, 0));
      CHECK_FALSE(watch.broken());
    }
    SUBCASE("free") {
      watch.freed(freed);
      watch.told(named(5, 0));
      CHECK(watch.broken());
    }
    SUBCASE("in a new table") {
      watch.launched(plan_of(2, row_kind::prefill, 4, 0, 0, {{5}}, 1));
      watch.told(named(5, 0));
      CHECK(watch.broken());
    }
  }
}

TEST_CASE("published_unsettled: the player says so, wherever it is told") {
  lazy_host host("engine: { prefix_cache: true }\n" + one);
  scheduler_outbox box;
  box.want.publish.blocks = {{3}};
  box.want.publish.pending = {{0}};
  host.rank.on_outbox(box, host.core);
  CHECK(host.broken() == "published_unsettled");
}

TEST_CASE("counter_negative: any counter of the books") {
  lazy_host host("engine: { depth: 2 }\n" + one);
  host.submit(0);
  host.launch();
  auto counts = counts_of(host.core, host.pool, 1);
  CHECK(counts.size() >= 20);
  CHECK_FALSE(negative_counter(counts));
  for (auto& it : counts) {
    const auto kept = std::exchange(it.value, -1);
    const std::string whose = it.sequence > 0 ? " of sequence 1" : "";
    CHECK(negative_counter(counts) == std::string(it.name) + whose + " = -1");
    it.value = kept;
  }
}

TEST_CASE("every property that a scenario may name is reported by some source") {
  // Of groups and expert placement: files that name them need what can't be played yet.
  const std::set<std::string> unplayed{"collective_mismatch", "mixed_placement",
                                       "empty_step_touched_live", "expert_without_copy"};
  std::string text;
  for (const auto* folder : {"actors/scenario", "runtime/model"})
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(DI_SOURCE_DIR) + "/" + folder))
      if (entry.path().extension() == ".cpp") text += read_file(entry.path().string()).value();
  for (const auto& name : scenario_properties()) {
    CAPTURE(name);
    const bool is_reported = text.find('"' + name + '"') != std::string::npos;
    CHECK(is_reported == !unplayed.contains(name));
  }
  const auto features = supported_features();
  for (const auto feature : {scenario_feature::groups, scenario_feature::eplb})
    CHECK(std::find(features.begin(), features.end(), feature) == features.end());
}
