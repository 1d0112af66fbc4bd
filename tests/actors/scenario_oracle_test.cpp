#include <doctest/doctest.h>

#include "tests/actors/scenario_support.hpp"

using namespace deepinfer;

namespace {

std::vector<oracle_answer> answers(const std::string& body) {
  const auto of = scenario_of(body);
  return ask_oracle(of, first_case(of));
}

using ids = std::vector<token_id>;

}  // namespace

TEST_CASE("the oracle gives the worked numbers of the language") {
  const auto out = answers("script:\n"
                           "  - submit: { id: a, prompt_tokens: 5, max_tokens: 4 }\n"
                           "  - submit: { id: b, prompt: a, prompt_tokens: 5, sample_seed: 5 }\n");
  CHECK(out[0].prompt == ids{925, 55, 946, 793, 582});
  CHECK(out[0].tokens == ids{905, 568, 774, 19});
  CHECK(out[0].finish == scenario_finish::length);
  CHECK(out[1].tokens.front() == 897);
  CHECK(out[1].tokens.size() == 16);
  REQUIRE(out[0].logprobs.size() == 4);
  // chain(4) = 0x46c91f1c566a281f
  CHECK(out[0].logprobs[0] == -static_cast<float>(1 + (0x46c91f1c566a281fu >> 40) % 1000) / 1000);
}

TEST_CASE("scripted outputs, stop ids, least and most tokens decide where a sequence ends") {
  const auto out = answers(
    "engine: { max_model_len: 16 }\nscript:\n"
    "  - submit: { id: a, prompt_tokens: 5, stop_after: 3 }\n"
    "  - submit: { id: b, prompt_tokens: 5, min_tokens: 4, tokens: { 1: 1, 2: 1, 4: 1, 6: 1 } }\n"
    "  - submit: { id: c, prompt_tokens: 5, tokens: { 3: 9 }, stop_ids: [8, 9] }\n"
    "  - submit: { id: e, prompt_tokens: 12, max_tokens: 100 }\n"
    "  - submit: { id: f, prompt_tokens: 5, max_tokens: 3, stop_after: 3 }\n");
  CHECK(out[0].finish == scenario_finish::stop);
  CHECK(out[0].tokens.size() == 3);
  CHECK(out[0].tokens.back() == 1);
  CHECK(out[1].finish == scenario_finish::stop);
  CHECK(out[1].tokens.size() == 6);
  CHECK(out[2].finish == scenario_finish::stop);
  CHECK(out[2].tokens.size() == 3);
  CHECK(out[3].finish == scenario_finish::length);
  CHECK(out[3].tokens.size() == 4);
  CHECK(out[4].finish == scenario_finish::stop);  // a stop at the last output is a stop
}

TEST_CASE("a stop string ends a sequence with the output that completes it") {
  const auto out = answers(
    "script:\n"
    "  - submit: { id: a, prompt_tokens: 5, tokens: { 3: 3, 4: 4 }, stop: [ab] }\n"
    "  - submit: { id: b, prompt_tokens: 5, max_tokens: 9, tokens: { 3: 3, 5: 4 }, stop: [ab] }\n"
    "  - submit: { id: c, prompt_tokens: 5, max_tokens: 9, min_tokens: 5, tokens: { 3: 3 }, stop: "
    "a }\n"
    "  - submit: { id: e, prompt_tokens: 5, tokens: { 2: 3, 3: 3, 4: 4 }, stop: [aab, zz] }\n"
    "  - submit: { id: f, prompt: a, prompt_tokens: 5, max_tokens: 9, stop: '05 ' }\n");
  CHECK(out[0].tokens.size() == 4);
  CHECK(out[0].finish == scenario_finish::stop);
  CHECK(out[1].tokens.size() == 9);
  CHECK(out[1].finish == scenario_finish::length);
  CHECK(out[2].tokens.size() == 9);
  CHECK(out[3].tokens.size() == 4);
  CHECK(out[4].tokens == ids{905});  // the text of a word is its number and a space
}

TEST_CASE("stop strings apply in reasoning unless policy says otherwise; reasoning is counted") {
  const std::string script =
    "script:\n  - submit: { id: a, prompt_tokens: 5, max_tokens: 50, reasoning: true,\n"
    "      tokens: { 2: 3, 5: 2, 7: 3 }, stop: [a] }\n";
  const auto outside = answers("engine: { policy: { stop_in_reasoning: false } }\n" + script)[0];
  CHECK(outside.tokens.size() == 7);
  CHECK(outside.reasoning_tokens == 5);
  const auto inside = answers(script)[0];
  CHECK(inside.tokens.size() == 2);
  CHECK(inside.reasoning_tokens == 2);
  CHECK(reasoning_tokens_of({}) == 0);
  CHECK(reasoning_tokens_of({2, 30}) == 1);
}

TEST_CASE("a grammar narrows outputs from its start, ends them, or has no way on") {
  const auto out = answers(
    "script:\n"
    "  - submit: { id: g, prompt_tokens: 5, max_tokens: 40, grammar: { ends_after: 9 } }\n"
    "  - submit: { id: h, prompt_tokens: 5, max_tokens: 20, grammar: { dead_end_at: 4 } }\n"
    "  - submit: { id: r, prompt_tokens: 5, max_tokens: 50, reasoning: true, tokens: { 3: 2 },\n"
    "      grammar: { ends_after: 6 } }\n");
  CHECK(out[0].tokens.size() == 10);
  CHECK(out[0].tokens.back() == 1);
  CHECK(out[0].finish == scenario_finish::stop);
  std::int64_t sum = 0;
  for (std::int64_t k = 1; k <= 9; ++k) {
    const auto id = out[0].tokens[static_cast<std::size_t>(k - 1)];
    CHECK(id % 7 == (sum + k) % 7);
    sum += id;
  }
  CHECK(out[1].tokens.size() == 3);
  CHECK(out[1].finish == scenario_finish::error);
  CHECK(out[1].code == errc::grammar_failed);
  CHECK(out[2].tokens.size() == 10);
  CHECK(out[2].reasoning_tokens == 3);
}

TEST_CASE("a continued request begins with prompt and output of the other") {
  const auto out = answers("script:\n"
                           "  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n"
                           "  - submit: { id: b, continues: a, prompt_tokens: 3 }\n"
                           "  - submit: { id: c, continues: a, max_tokens: 2 }\n");
  CHECK(out[1].prompt.size() == 10);
  CHECK(ids(out[1].prompt.begin(), out[1].prompt.begin() + 7) ==
        ids{925, 55, 946, 793, 582, 905, 568});
  CHECK(out[2].tokens == ids{774, 19});
}

TEST_CASE("penalties, experts and seeds change tokens; drafts, depth and blocks do not") {
  const std::string script = "script:\n"
                             "  - submit: { id: a, prompt_tokens: 5, max_tokens: 9 }\n"
                             "  - submit: { id: b, prompt: a, prompt_tokens: 5, max_tokens: 9,\n"
                             "      penalty: true }\n";
  const auto plain = answers(script);
  CHECK(plain[1].tokens[0] == plain[0].tokens[0]);
  CHECK(plain[1].tokens != plain[0].tokens);
  const auto drafted = answers("engine: { num_drafts: 3, depth: 3, block_size: 16 }\n"
                               "model: { accept: [2] }\n" +
                               script);
  CHECK(drafted[0].tokens == plain[0].tokens);
  const auto experts = answers(
    "model: { experts: { layers: 1, experts: 2, top_k: 1, picks: [[0], [1]] } }\n" + script);
  CHECK(experts[0].tokens != plain[0].tokens);
  CHECK(answers("model: { seed: 2 }\n" + script)[0].tokens != plain[0].tokens);
}

TEST_CASE("requests that cannot start have no tokens and say why") {
  const auto out = answers("engine: { ranks: 2, rank_kv_blocks: [16, 6], max_model_len: 40 }\n"
                           "script:\n"
                           "  - submit: { id: empty, prompt_ids: [] }\n"
                           "  - submit: { id: wild, prompt_ids: [20, 1000] }\n"
                           "  - submit: { id: zero, prompt_ids: [20, 0] }\n"
                           "  - submit: { id: long, prompt_tokens: 40 }\n"
                           "  - submit: { id: edge, prompt_tokens: 39 }\n"
                           "  - submit: { id: big, rank: 1, prompt_tokens: 25 }\n"
                           "  - submit: { id: fits, rank: 1, prompt_tokens: 24, max_tokens: 1 }\n"
                           "  - submit: { id: routed, prompt_tokens: 25 }\n");
  for (const std::size_t i : {0u, 1u, 2u}) {
    CHECK(out[i].finish == scenario_finish::rejected);
    CHECK(out[i].code == errc::invalid_argument);
  }
  CHECK(out[3].finish == scenario_finish::rejected);
  CHECK(out[3].code == errc::context_length_exceeded);
  CHECK(out[4].tokens.size() == 1);
  CHECK(out[5].finish == scenario_finish::resource);
  CHECK(out[5].code == errc::no_blocks);
  CHECK(out[6].finish == scenario_finish::length);
  CHECK(out[7].finish == scenario_finish::length);
}

TEST_CASE("every scenario of the tree expects the ends and tokens that the oracle gives") {
  const auto files = scenario_files(DI_SOURCE_DIR "/tests/scenarios");
  REQUIRE(files);
  int checked = 0;
  for (const auto& path : *files) {
    const auto of = load_scenario(path);
    REQUIRE_MESSAGE(of, of.error().message);
    for (const auto& it : cases_of(*of)) {
      const auto oracle = ask_oracle(*of, it);
      for (const auto& expectation : of->expectations) {
        const auto* form = std::get_if<request_form>(&expectation.form);
        if (!form || !holds_for(expectation.only_for, it.settings)) continue;
        const bool ends_itself =
          !form->finish.empty() &&
          std::all_of(form->finish.begin(), form->finish.end(), [](scenario_finish finish) {
            return finish == scenario_finish::stop || finish == scenario_finish::length;
          });
        if (!ends_itself) continue;
        for (const auto request : form->requests) {
          CAPTURE(expectation.place);
          CAPTURE(it.name);
          CAPTURE(of->requests[static_cast<std::size_t>(request)].id);
          const auto& answer = oracle[static_cast<std::size_t>(request)];
          CHECK(std::count(form->finish.begin(), form->finish.end(), answer.finish) == 1);
          CHECK(form->tokens.holds(std::ssize(answer.tokens)));
          if (form->reasoning_tokens) CHECK(*form->reasoning_tokens == answer.reasoning_tokens);
          ++checked;
        }
      }
    }
  }
  CHECK(checked > 1000);
}
