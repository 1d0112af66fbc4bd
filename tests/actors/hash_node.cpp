#include "tests/actors/hash_node.hpp"

#include <doctest/doctest.h>

#include "actors/request_intake.hpp"
#include "actors/tokenizer_texts.hpp"
#include "runtime/device/cpu_device.hpp"

namespace deepinfer {
namespace {

constexpr hash_model_config model{};

}  // namespace

hash_node start_hash_node(const hash_node_options& options) {
  runner_config sizes;
  sizes.depth = options.depth;
  sizes.max_num_seqs = options.max_num_seqs;
  sizes.state_slots = options.max_num_seqs * options.depth;
  sizes.max_num_batched_tokens = options.max_num_batched_tokens;
  sizes.max_model_len = options.max_model_len;
  sizes.num_kv_blocks = options.num_kv_blocks;
  sizes.block_size = options.block_size;

  sizes.prefix_cache = options.prefix_cache;

  hash_node out;
  const auto words =
    tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
  intake_facts facts;
  facts.model_name = "hash";
  facts.vocab_size = model.vocab;
  facts.bos = 16;  // the first id that is a word of the model
  facts.max_model_len = options.max_model_len;
  facts.bos = 2;  // the hash model has no id 0
  const auto intake = std::make_shared<request_intake>(words, facts);
  std::vector<rank_machines> machines;
  for (std::int32_t i = 0; i < options.dp_size; ++i) {
    out.runners.push_back(std::make_shared<hash_runner>(sizes, model));
    rank_machines it;
    it.on = std::make_unique<cpu_device>(cpu_device_config{1, 64});
    it.runner = options.wrap ? options.wrap(out.runners.back()) : out.runners.back();
    it.texts = std::make_shared<tokenizer_texts>(words);
    it.intake = intake;
    it.eos_ids = {hash_stop_id};
    machines.push_back(std::move(it));
  }
  if (!out.runners.empty()) out.runner = out.runners.front();

  engine_settings settings;
  settings.engine.depth = options.depth;
  settings.engine.max_num_seqs = options.max_num_seqs;
  settings.engine.chunk_size = options.chunk_size;
  settings.engine.watchdog = options.watchdog;
  settings.engine.dp_size = options.dp_size;
  settings.server = options.server;
  settings.server.max_queued_requests = options.max_queued_requests;
  auto parts = options.parts;
  if (!parts.counts) parts.counts = std::make_shared<metrics>();
  out.counts = parts.counts;
  out.engine = node::start(settings, std::move(machines), {}, std::move(parts));
  return out;
}

hash_node_options endless() {
  hash_node_options options;
  options.max_num_seqs = 2;
  options.num_kv_blocks = 400'000;
  options.max_model_len = 800'000;
  return options;
}

std::vector<token_id> prompt_ids(const std::string& name, std::int32_t count) {
  return hash_prompt(model, name, count);
}

std::vector<token_id> expected_ids(const std::vector<token_id>& prompt, std::int32_t count) {
  hash_script script;
  script.prompt = prompt;
  return hash_sequence(model, std::move(script), {}).outputs(count);
}

generate_request greedy(std::vector<token_id> prompt, std::int32_t max_tokens) {
  generate_request request;
  request.ids = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = max_tokens;
  return request;
}

void check_at_rest(const hash_node& it) {
  // Aborts and releases are messages: ask until they have arrived. Each turn is a round trip
  // through the rank's actors; the bound is on turns, not on time.
  result<node_stats> stats = fail(errc::internal, "never asked");
  for (int turn = 0; turn < 200'000; ++turn) {
    stats = it.engine->connect().stats();
    if (!stats || stats->slots_total == 0) continue;  // restarting
    if (stats->running == 0 && stats->queued == 0 && stats->inflight_steps == 0 &&
        stats->kv_blocks_free == stats->kv_blocks_total && stats->slots_free == stats->slots_total)
      break;
  }
  REQUIRE(stats.has_value());
  CHECK(stats->running == 0);
  CHECK(stats->queued == 0);
  CHECK(stats->inflight_steps == 0);
  CHECK(stats->deferred_blocks == 0);
  CHECK(stats->kv_blocks_free == stats->kv_blocks_total);
  CHECK(stats->slots_free == stats->slots_total);
  for (const auto& runner : it.runners)
    for (const auto& it_is : runner->canary().errors())
      FAIL_CHECK(it_is.name << ": " << it_is.text);
}

}  // namespace deepinfer
