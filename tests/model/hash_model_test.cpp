#include <doctest/doctest.h>

#include <set>

#include "runtime/model/hash_model.hpp"

using namespace deepinfer;

namespace {

hash_script request_a(std::int32_t prompt_tokens = 5) {
  hash_script script;
  script.prompt = hash_prompt({}, "a", prompt_tokens);
  return script;
}

std::vector<token_id> outputs(const hash_script& script, hash_sampling sampling,
                              std::int32_t most) {
  return hash_sequence({}, script, sampling).outputs(most);
}

}  // namespace

TEST_CASE("the hash model gives the worked numbers of its definition") {
  CHECK(hash_key("a") == 0x2ac56c71529882fau);
  CHECK(hash_prompt({}, "a", 5) == std::vector<token_id>{925, 55, 946, 793, 582});
  CHECK(hash_chain_start({}) == 0x97c0a30b5a5b6160u);
  hash_sequence truth({}, request_a(), {});
  CHECK(truth.chain(-1) == 0x97c0a30b5a5b6160u);
  CHECK(truth.chain(0) == 0x1e80961e467f400fu);
  CHECK(truth.chain(4) == 0x46c91f1c566a281fu);
  CHECK(truth.outputs(4) == std::vector<token_id>{905, 568, 774, 19});
  hash_sampling seeded;
  seeded.is_greedy = false;
  seeded.seed = 5;
  CHECK(outputs(request_a(), seeded, 1) == std::vector<token_id>{897});
}

TEST_CASE("scripted outputs stand where they are put, and what follows depends on them") {
  auto script = request_a();
  script.tokens = {{2, 44}};
  script.stop_after = 5;
  const auto out = outputs(script, {}, 9);
  const auto plain = outputs(request_a(), {}, 5);
  REQUIRE(out.size() == 5);
  CHECK(out[0] == plain[0]);
  CHECK(out[1] == 44);
  CHECK(out[2] != plain[2]);
  CHECK(out[4] == hash_stop_id);
  hash_sequence truth({}, script, {});
  CHECK(truth.output(6) >= hash_first_word);  // an over-run row goes on
}

TEST_CASE("min_tokens turns an early stop into the hash token, from then on it stands") {
  auto script = request_a();
  script.tokens = {{2, hash_stop_id}};
  script.stop_after = 3;
  hash_sampling sampling;
  sampling.min_tokens = 2;
  const auto out = outputs(script, sampling, 9);
  CHECK(out == std::vector<token_id>{905, 568, hash_stop_id});
  sampling.min_tokens = 1;
  CHECK(outputs(script, sampling, 9) == std::vector<token_id>{905, hash_stop_id});
}

TEST_CASE("a penalty makes every token depend on the outputs before it, not on the prompt") {
  hash_sampling penalized;
  penalized.has_penalty = true;
  const auto with = outputs(request_a(), penalized, 6);
  const auto without = outputs(request_a(), {}, 6);
  CHECK(with[0] == without[0]);  // no outputs before the first
  CHECK(with[1] != without[1]);
  // Output 2 by hand: chain of the prompt and 905, the sum holds mix(905) alone.
  hash_sequence truth({}, request_a(), {});
  CHECK(with[1] == 16 + static_cast<token_id>(hash_mix(truth.chain(5) ^ hash_mix(905)) % 984));
}

TEST_CASE("sampling parameters of the product map onto those of the hash model") {
  sampling_params params;
  params.temperature = 0.0f;
  params.seed = 9;
  CHECK(hash_sampling::of(params).is_greedy);
  CHECK(hash_sampling::of(params).seed == 0);
  CHECK_FALSE(hash_sampling::of(params).has_penalty);
  params.temperature = 1.0f;
  params.frequency_penalty = 0.5f;
  params.min_tokens = 3;
  params.logprobs = 0;
  const auto mapped = hash_sampling::of(params);
  CHECK_FALSE(mapped.is_greedy);
  CHECK(mapped.seed == 9);
  CHECK(mapped.has_penalty);
  CHECK(mapped.has_logprobs);
  CHECK(mapped.min_tokens == 3);
  params.stop_token_ids = {700};
  CHECK_FALSE(hash_sampling::of(params).is_stop(700, 2));
  CHECK(hash_sampling::of(params).is_stop(700, 3));
  CHECK(hash_sampling::of(params).is_stop(hash_stop_id, 3));
  CHECK_FALSE(hash_sampling::of(params).is_stop(701, 3));
  params.ignore_eos = true;
  CHECK_FALSE(hash_sampling::of(params).is_stop(hash_stop_id, 3));
}

TEST_CASE("ids are words of the vocabulary, logprobs lie in [-1, -0.001]") {
  hash_model_config small{18, 7};
  hash_script script;
  script.prompt = hash_prompt(small, "small", 3);
  hash_sequence truth(small, script, {});
  std::set<token_id> seen;
  for (std::int32_t k = 1; k <= 200; ++k) {
    seen.insert(truth.output(k));
    const auto logprob = hash_logprob(truth.chain(k));
    CHECK(logprob <= -0.001f);
    CHECK(logprob >= -1.0f);
  }
  CHECK(seen == std::set<token_id>{16, 17});
}

TEST_CASE("ids 3 to 15 are letters, words are their number and a space, the rest spells nothing") {
  for (const token_id id : {0, 1, 2}) CHECK(hash_text(id).empty());
  CHECK(hash_text(3) == "a");
  CHECK(hash_text(15) == "m");
  CHECK(hash_text(16) == "16 ");
  CHECK(hash_text(999) == "999 ");
}

TEST_CASE("a grammar takes the first allowed word at or above the hash token, then only id 1") {
  auto script = request_a();
  script.grammar = hash_grammar{3, 0};
  const auto out = outputs(script, {}, 9);
  REQUIRE(out.size() == 4);
  CHECK(out[3] == hash_stop_id);
  // Output 1 by hand: 905 mod 7 is 2, wanted is (0 + 1) mod 7.
  CHECK(out[0] == 911);
  std::int32_t sum = 0;
  for (std::int32_t k = 1; k <= 3; ++k) {
    const auto id = out[static_cast<std::size_t>(k - 1)];
    CHECK(id % 7 == (sum + k) % 7);
    sum += id;
  }
}

TEST_CASE("a grammar wraps in the words, and has a dead end where it is told to") {
  auto script = request_a();
  script.grammar = hash_grammar{0, 3};
  script.tokens = {{1, 999}};  // 999 mod 7 is 5
  hash_sequence truth({}, script, {});
  CHECK(truth.output(1) == 22);  // the first word that is 1 mod 7
  CHECK(truth.dead_end() == 0);
  CHECK(truth.outputs(9).size() == 2);
  CHECK(truth.dead_end() == 3);
  CHECK(truth.output(4) >= hash_first_word);  // an over-run row goes on
}

TEST_CASE("with reasoning a grammar starts behind id 2 and counts from there") {
  auto script = request_a();
  script.grammar = hash_grammar{2, 0};
  script.tokens = {{3, hash_end_of_reasoning_id}};
  hash_sampling sampling;
  sampling.has_reasoning = true;
  const auto out = outputs(script, sampling, 20);
  REQUIRE(out.size() == 6);
  CHECK(out[0] == 905);
  CHECK(out[2] == hash_end_of_reasoning_id);
  CHECK(out[3] % 7 == 1);
  CHECK(out[4] % 7 == (out[3] + 2) % 7);
  CHECK(out[5] == hash_stop_id);
}

TEST_CASE("a mask allows the ids that its grammar allows, at every state") {
  for (const std::int32_t vocab : {24, 64, 1000}) {
    const hash_grammar grammar{5, 4};
    hash_grammar_state state;
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(hash_mask_words(vocab)), ~0u);
    for (std::int32_t k = 1; k <= 8; ++k) {
      CAPTURE(k);
      CHECK(hash_fill_mask(grammar, state, vocab, mask) == (k != 4));
      for (token_id id = 0; id < vocab; ++id) {
        const bool is_set = (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
        CHECK(is_set == hash_allows(grammar, state, id));
        CHECK(hash_first_allowed(mask, vocab, id) == hash_first_allowed(grammar, state, vocab, id));
      }
      state.add(16 + k);
    }
    CHECK(hash_first_allowed(mask, vocab, 20) == hash_stop_id);
  }
}

TEST_CASE("experts are affine maps modulo 2^61 - 1, summed over layers and picks") {
  hash_model_config model;
  model.experts = {2, 3, 2, {{0, 2}, {1, 1}}};
  const auto records = hash_experts_of(model.experts);
  REQUIRE(records.size() == 6);
  constexpr std::uint64_t modulus = 2305843009213693951u;
  CHECK(records[4].factor == 1 + hash_mix(4) % (modulus - 1));  // layer 1, expert 1
  CHECK(records[4].offset == hash_mix(records[4].factor) % modulus);
  // The product by doubling, so that nothing is wider than 64 bits.
  const auto apply = [&](const hash_expert& it, std::uint64_t x) {
    std::uint64_t sum = it.offset;
    for (auto a = it.factor; a > 0; a >>= 1, x = x * 2 % modulus)
      if (a % 2 != 0) sum = (sum + x) % modulus;
    return sum;
  };
  const std::uint64_t chain = 0xfedcba9876543210u;
  const auto x = chain % modulus;
  const auto even =
    apply(records[0], x) + apply(records[2], x) + apply(records[3], x) + apply(records[5], x);
  const auto odd = 2 * (apply(records[1], x) + apply(records[4], x));
  CHECK(hash_through_experts(model.experts, records, chain, 6) == hash_mix(chain ^ even));
  CHECK(hash_through_experts(model.experts, {}, chain, 6) == hash_mix(chain ^ even));
  CHECK(hash_through_experts(model.experts, records, chain, 7) == hash_mix(chain ^ odd));
  CHECK(hash_through_experts({}, {}, chain, 6) == chain);
  hash_sequence truth(model, request_a(), {});
  CHECK(truth.chain(0) ==
        hash_through_experts(model.experts, {}, hash_chain_next(hash_chain_start(model), 925), 0));
}
