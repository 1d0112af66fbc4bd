// Rows whose sampling waits for the host: when their gates open, and with which masks.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/core/scheduler_core.hpp"
#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// Allows one id at a time: 8, 9, 10 and so on, and eos behind `last`.
class count_matcher final : public grammar_matcher {
public:
  explicit count_matcher(token_id last) : last_(last) {}
  bool fill_mask(std::span<std::uint32_t> words) override {
    for (auto& word : words) word = 0;
    words[static_cast<std::size_t>(next_) / 32] |= 1u << (next_ % 32);
    return true;
  }
  bool advance(token_id token) override {
    if (token != next_) return false;
    ++next_;
    return true;
  }
  void rewind(std::int32_t ids) override { next_ -= ids; }
  bool has_ended() const override { return next_ > last_; }

private:
  token_id next_ = 8, last_;
};

class count_grammars final : public grammar_source {
public:
  std::unique_ptr<grammar_matcher> poll(seq_id, const sampling_params&, std::string&) override {
    return std::make_unique<count_matcher>(last);
  }
  token_id last = 63;
};

/// The ids a mask allows; {-1}: all.
std::vector<token_id> allowed(const sample_gate& gate, std::int32_t mask) {
  std::vector<token_id> out;
  for (token_id id = 0; id < vocab; ++id) {
    const auto word = gate.masks[static_cast<std::size_t>(mask * gate.words + id / 32)];
    if ((word >> (id % 32) & 1u) != 0) out.push_back(id);
  }
  return out.size() == vocab ? std::vector<token_id>{-1} : out;
}

/// What a device gives for one row.
struct row_given {
  std::vector<token_id> tokens, drafts;
};

class gate_world {
public:
  explicit gate_world(std::int32_t depth, std::int32_t drafts = 2) {
    auto config = small_config();
    config.depth = depth;
    config.num_drafts = drafts;
    core_ = std::make_unique<scheduler_core>(
      config, scheduler_helpers{.texts = &texts_, .grammars = &grammars});
    kv_grant all;
    for (std::int32_t i = 0; i < 64; ++i) all.blocks.push_back({i});
    for (std::int32_t i = 0; i < 8; ++i) all.slots.push_back({i});
    core_->grant(all);
  }

  seq_id submit(const char* grammar, std::int32_t prompt = 3) {
    sampling_params params;
    params.max_tokens = 40;
    params.grammar = grammar;
    const seq_id id{++ids_};
    core_->submit({id, std::make_shared<const std::vector<token_id>>(prompt, 20),
                   std::make_shared<const sampling_params>(params), 0},
                  0);
    return id;
  }

  /// The sequences of the next step; none: nothing could be planned.
  std::vector<seq_id> launch() {
    step_plan plan;
    if (!core_->plan(plan)) return {};
    plans_.push_back(plan);
    take();
    return plan.sequences;
  }

  /// The oldest step settles; the gates that opens are in `gates`.
  void settle(const std::vector<row_given>& rows) {
    const auto plan = plans_.front();
    plans_.erase(plans_.begin());
    step_result result;
    result.clear();
    result.step = plan.step;
    result.sequences = plan.sequences;
    result.epochs = plan.epochs;
    result.drafts_per_row = core_->config().num_drafts;
    REQUIRE(rows.size() == plan.sequences.size());
    for (const auto& row : rows) {
      result.tokens.insert(result.tokens.end(), row.tokens.begin(), row.tokens.end());
      result.token_begin.push_back(static_cast<std::int32_t>(result.tokens.size()));
      result.drafts.insert(result.drafts.end(), row.drafts.begin(), row.drafts.end());
    }
    core_->settle(result);
    take();
  }

  void abort(seq_id id) {
    core_->abort(id, finish_reason::abort, errc::cancelled, "");
    take();
  }
  void preempt(seq_id id) {
    core_->preempt(id);
    take();
  }

  std::vector<sample_gate> gates;  ///< opened by the last call
  std::vector<sequence_chunk> chunks;
  count_grammars grammars;

private:
  void take() {
    scheduler_outbox box;
    core_->take_outbox(box);
    core_->check_invariants();
    gates = box.gates;
    chunks = box.chunks.chunks;
  }

  letter_texts texts_;
  std::unique_ptr<scheduler_core> core_;
  std::vector<step_plan> plans_;
  std::uint64_t ids_ = 0;
};

}  // namespace

TEST_CASE("a gate opens when every token before its row has settled, and not before [I42][I44]") {
  for (const std::int32_t depth : {2, 3}) {
    CAPTURE(depth);
    gate_world world(depth);
    const auto a = world.submit("count");
    CHECK(world.launch() == std::vector{a});
    REQUIRE(world.gates.size() == 1);  // nothing of it flies before the chunk
    CHECK(world.gates[0].step == step_id{1});
    CHECK(world.gates[0].mask_begin == std::vector<std::int32_t>{0, 1});
    CHECK(allowed(world.gates[0], 0) == std::vector<token_id>{8});
    CHECK(world.launch() == std::vector{a});
    CHECK(world.gates.empty());  // the chunk's token is not known yet
    CHECK(world.launch().empty());
    CHECK(world.gates.empty());
    world.settle({{{8}, {9, 10}}});
    REQUIRE(world.gates.size() == 1);
    CHECK(world.gates[0].step == step_id{2});
    CHECK(world.gates[0].rows == std::vector<std::int32_t>{0});
    CHECK(world.gates[0].mask_begin == std::vector<std::int32_t>{0, 3});
    for (std::int32_t j = 0; j < 3; ++j)
      CHECK(allowed(world.gates[0], j) == std::vector<token_id>{9 + j});
  }
}

TEST_CASE("the grammar stands behind what was accepted, for no draft and for all [I34][I44][I45]") {
  for (std::int32_t accepted = 0; accepted <= 2; ++accepted) {
    CAPTURE(accepted);
    gate_world world(2);
    world.submit("count");
    world.launch();
    world.launch();
    std::vector<token_id> drafts{9, 10};
    if (accepted < 2) drafts[static_cast<std::size_t>(accepted)] = 40;
    world.settle({{{8}, drafts}});
    REQUIRE(world.gates.size() == 1);
    for (std::int32_t j = 0; j < 3; ++j)  // masks behind a refused draft do not matter
      CHECK(allowed(world.gates[0], j) ==
            std::vector<token_id>{j <= accepted ? 9 + j : token_id{-1}});
    world.launch();
    std::vector<token_id> given;
    for (std::int32_t j = 0; j <= accepted; ++j) given.push_back(9 + j);
    world.settle({{given, {10 + accepted, 50}}});
    REQUIRE(world.chunks.size() == 1);
    CHECK(world.chunks[0].tokens == given);
    CHECK_FALSE(world.chunks[0].finish);
    REQUIRE(world.gates.size() == 1);
    CHECK(allowed(world.gates[0], 0) == std::vector<token_id>{10 + accepted});
    CHECK(allowed(world.gates[0], 1) == std::vector<token_id>{11 + accepted});
  }
}

TEST_CASE("an id the grammar does not allow ends its request only, behind what was allowed "
          "[I45]") {
  gate_world world(1);
  const auto a = world.submit("count"), b = world.submit("count");
  world.launch();
  world.settle({{{8}, {9, 10}}, {{8}, {9, 10}}});
  CHECK(world.launch() == std::vector{a, b});
  world.settle({{{9, 10, 12}, {9, 9}}, {{9, 10, 11}, {9, 9}}});
  REQUIRE(world.chunks.size() == 2);
  CHECK(world.chunks[0].tokens == std::vector<token_id>{9, 10});
  REQUIRE(world.chunks[0].finish);
  CHECK(world.chunks[0].finish->code == errc::grammar_failed);
  CHECK(world.chunks[1].tokens == std::vector<token_id>{9, 10, 11});
  CHECK_FALSE(world.chunks[1].finish);
  CHECK(world.launch() == std::vector{b});
  REQUIRE(world.gates.size() == 1);
  CHECK(allowed(world.gates[0], 0) == std::vector<token_id>{12});
}

TEST_CASE("rows without a grammar go on beside one whose gate is closed [I47]") {
  gate_world world(3, 0);
  const auto a = world.submit("count"), b = world.submit("");
  CHECK(world.launch() == std::vector{a, b});
  REQUIRE(world.gates.size() == 1);
  CHECK(world.gates[0].rows == std::vector<std::int32_t>{0});
  CHECK(world.launch() == std::vector{a, b});
  CHECK(world.gates.empty());
  CHECK(world.launch() == std::vector{b});
  world.settle({{{8}, {}}, {{30}, {}}});
  REQUIRE(world.gates.size() == 1);
  CHECK(world.gates[0].rows == std::vector<std::int32_t>{0});
  CHECK(allowed(world.gates[0], 0) == std::vector<token_id>{9});
}

TEST_CASE("a gate that nobody waits for any more opens at once and allows everything [I54]") {
  gate_world world(3);
  const auto a = world.submit("count");
  world.launch();
  world.launch();
  world.abort(a);
  REQUIRE(world.gates.size() == 1);
  CHECK(world.gates[0].step == step_id{2});
  for (std::int32_t j = 0; j < 3; ++j)
    CHECK(allowed(world.gates[0], j) == std::vector<token_id>{-1});
  world.settle({{{8}, {9, 10}}});
  world.settle({{{30}, {9, 10}}});
  CHECK(world.chunks.empty());
  CHECK(world.launch().empty());
}

TEST_CASE("the grammar of a preempted sequence stands where its text is when it comes back "
          "[I45][I53]") {
  gate_world world(2);
  const auto a = world.submit("count");
  world.launch();
  world.launch();
  world.settle({{{8}, {9, 10}}});
  world.preempt(a);  // step 2 still delivers
  CHECK(world.launch().empty());
  world.settle({{{9, 10}, {11, 12}}});
  REQUIRE(world.chunks.size() == 1);
  CHECK(world.chunks[0].tokens == std::vector<token_id>{9, 10});
  CHECK(world.launch() == std::vector{a});
  REQUIRE(world.gates.size() == 1);
  CHECK(allowed(world.gates[0], 0) == std::vector<token_id>{11});
}

TEST_CASE("behind the end of a grammar only what ends the sequence is allowed [I44]") {
  gate_world world(1);
  world.grammars.last = 9;
  world.submit("count");
  world.launch();
  world.settle({{{8}, {9, 10}}});
  world.launch();
  REQUIRE(world.gates.size() == 1);
  CHECK(allowed(world.gates[0], 0) == std::vector<token_id>{9});
  CHECK(allowed(world.gates[0], 1) == std::vector<token_id>{1, 2});
  world.settle({{{9, 1}, {9, 10}}});
  REQUIRE(world.chunks.size() == 1);
  CHECK(world.chunks[0].tokens == std::vector<token_id>{9, 1});
  CHECK(world.chunks[0].finish->reason == finish_reason::stop);
}
