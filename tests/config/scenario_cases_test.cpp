#include <doctest/doctest.h>

#include "config/scenario_cases.hpp"
#include "config/scenario_load.hpp"

using namespace deepinfer;

namespace {

scenario parsed(const std::string& body) {
  auto out = parse_scenario("# It holds.\nname: f\n" + body, "f.yaml");
  REQUIRE_MESSAGE(out, out.error().message);
  return *std::move(out);
}

std::vector<std::string> names_of(const std::vector<scenario_case>& cases) {
  std::vector<std::string> out;
  for (const auto& it : cases) out.push_back(it.name);
  return out;
}

}  // namespace

TEST_CASE("cases are the product of the matrix, keys as written, the last one fastest") {
  const auto it = parsed("model: { accept: 1 }\n"
                         "matrix: { preempt_output: [deliver, drop], seeds: 3, depth: [1, 2, 3],\n"
                         "  interleavings: 20 }\n");
  const auto cases = cases_of(it);
  CHECK(names_of(cases) ==
        std::vector<std::string>{"preempt_output=deliver depth=1", "preempt_output=deliver depth=2",
                                 "preempt_output=deliver depth=3", "preempt_output=drop depth=1",
                                 "preempt_output=drop depth=2", "preempt_output=drop depth=3"});
  CHECK(cases[4].engine.depth == 2);
  CHECK(cases[4].engine.policy.preempt_output == scenario_preempt_output::drop);
  CHECK(cases[2].engine.policy.preempt_output == scenario_preempt_output::deliver);
  CHECK(it.seeds == 3);
  CHECK(it.interleavings == 20);
  const auto plain = cases_of(parsed("engine: { depth: 3 }\n"));
  REQUIRE(plain.size() == 1);
  CHECK(plain[0].name.empty());
  CHECK(plain[0].engine.depth == 3);
}

TEST_CASE("every key of the matrix replaces the field of its name") {
  const auto it = parsed(
    "matrix: { depth: 1, ranks: 2, num_drafts: 3, draft_overhang: 4, block_size: 5,\n"
    "  chunk_size: 6, max_num_batched_tokens: 7, num_kv_blocks: 8, prefix_cache: true,\n"
    "  mixed_steps: true, verify: confidence, preempt_output: drop, victim: lowest_priority,\n"
    "  quorum: 0.25, min_decode_gap: 9, jitter: 10us, step_time: 11ms, accept: [[2, 0]] }\n");
  const auto cases = cases_of(it);
  REQUIRE(cases.size() == 1);
  CHECK(cases[0].name ==
        "depth=1 ranks=2 num_drafts=3 draft_overhang=4 block_size=5 chunk_size=6 "
        "max_num_batched_tokens=7 num_kv_blocks=8 prefix_cache=true mixed_steps=true "
        "verify=confidence preempt_output=drop victim=lowest_priority quorum=0.25 "
        "min_decode_gap=9 jitter=10us step_time=11ms accept=[2,0]");
  scenario_engine engine;
  engine.depth = 1;
  engine.ranks = 2;
  engine.num_drafts = 3;
  engine.draft_overhang = 4;
  engine.block_size = 5;
  engine.chunk_size = 6;
  engine.max_num_batched_tokens = 7;
  engine.num_kv_blocks = 8;
  engine.prefix_cache = engine.mixed_steps = true;
  engine.verify = scenario_verify::confidence;
  engine.policy.preempt_output = scenario_preempt_output::drop;
  engine.policy.victim = scenario_victim::lowest_priority;
  engine.vote.quorum = 0.25;
  engine.vote.min_decode_gap = 9;
  CHECK(cases[0].engine == engine);
  CHECK(cases[0].device.jitter_us == 10);
  CHECK(cases[0].device.step_time_us == 11'000);
  CHECK(cases[0].model.accept == std::vector<std::int32_t>{2, 0});
}

TEST_CASE("a list of lists is a matrix of accept patterns") {
  const auto it = parsed("engine: { num_drafts: 2 }\nmatrix: { accept: [[2], [0, 1]] }\n");
  const auto cases = cases_of(it);
  CHECK(names_of(cases) == std::vector<std::string>{"accept=[2]", "accept=[0,1]"});
  CHECK(cases[1].model.accept == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("a shadow is the case with other settings, and never the case itself") {
  const auto it = parsed("model: { accept: 1 }\nmatrix: { depth: [1, 2], num_drafts: [0, 3] }\n"
                         "same_tokens_as: [{ depth: 1 }, { num_drafts: 0, num_kv_blocks: 64 }]\n");
  const auto cases = cases_of(it);
  const auto of_first = shadows_of(it, cases[0]);
  REQUIRE(of_first.size() == 1);
  CHECK(of_first[0].engine.num_kv_blocks == 64);
  const auto of_last = shadows_of(it, cases[3]);
  REQUIRE(of_last.size() == 2);
  CHECK(of_last[0].engine.depth == 1);
  CHECK(of_last[0].engine.num_drafts == 3);
  CHECK(of_last[1].engine.depth == 2);
  CHECK(of_last[1].engine.num_drafts == 0);
  CHECK(of_last[1].settings.num_kv_blocks == 64);
}

TEST_CASE("an expectation for some values holds in the cases that have all of them") {
  const auto cases = cases_of(parsed("model: { accept: 1 }\n"
                                     "matrix: { depth: [1, 2], num_drafts: [0, 3] }\n"));
  case_settings both;
  both.depth = 2;
  both.num_drafts = 3;
  case_settings one;
  one.depth = 2;
  std::vector<bool> holds_both, holds_one, holds_none;
  for (const auto& it : cases) {
    holds_both.push_back(holds_for(both, it.settings));
    holds_one.push_back(holds_for(one, it.settings));
    holds_none.push_back(holds_for({}, it.settings));
  }
  CHECK(holds_both == std::vector<bool>{false, false, false, true});
  CHECK(holds_one == std::vector<bool>{false, false, true, true});
  CHECK(holds_none == std::vector<bool>{true, true, true, true});
}

TEST_CASE("a case is picked by any of its settings") {
  CHECK(matches_case("", "depth=2 num_drafts=3"));
  CHECK(matches_case("num_drafts=3", "depth=2 num_drafts=3"));
  CHECK(matches_case("num_drafts=3,depth=2", "depth=2 num_drafts=3"));
  CHECK(!matches_case("depth=1", "depth=2 num_drafts=3"));
  CHECK(!matches_case("depth=2,num_drafts=0", "depth=2 num_drafts=3"));
  CHECK(!matches_case("num_drafts=3", "depth=2 num_drafts=30"));
  CHECK(matches_case("accept=[2,0],depth=1", "accept=[2,0] depth=1"));
  CHECK(!matches_case("accept=[2]", "accept=[2,0] depth=1"));
}

TEST_CASE("seeds shift the model's seed, the scenario's own leaves it") {
  const auto it = parsed("seed: 5\nmodel: { seed: 40 }\n");
  CHECK(seeded(it, cases_of(it)[0], 5).model.seed == 40);
  CHECK(seeded(it, cases_of(it)[0], 7).model.seed == 42);
}
