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
