// Drafts, preemption and the prefix cache through the whole path change no token: the embedded
// model, greedy and sampled, many requests at once.
#include <doctest/doctest.h>

#include "actors/node.hpp"
#include "runtime/base/json.hpp"

using namespace deepinfer;

namespace {

constexpr std::chrono::minutes patience{5};

std::vector<generate_request> requests() {
  const auto path = std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41/goldens.json";
  const auto file = read_json_file(path).value();
  std::vector<generate_request> out;
  for (const auto& it : file.at("raw").as_array()) {
    generate_request request;
    request.ids.emplace();
    for (const auto* part : {"prompt_ids", "expected_ids"})  // long enough for some blocks
      for (const auto& id : it.at(part).as_array())
        request.ids->push_back(id.to_number<token_id>());
    const auto i = out.size();
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.top_p = i % 4 == 1 ? 0.9f : 1.0f;
    request.sampling.presence_penalty = i % 3 == 1 ? 0.4f : 0.0f;
    request.sampling.seed = 40 + i;
    request.sampling.max_tokens = static_cast<std::int32_t>(30 + 7 * (i % 5));
    request.sampling.ignore_eos = true;
    out.push_back(std::move(request));
    if (out.size() == 10) break;
  }
  return out;
}

struct answers {
  std::vector<std::vector<token_id>> ids;
  node_stats stats;
};

/// Twice: the second time every prompt is in the cache, where there is one.
answers answer_twice(const step_settings& engine) {
  engine_settings settings;
  settings.engine = engine;
  settings.engine.num_threads = 2;
  settings.engine.max_num_seqs = 8;
  auto loaded = node::load(settings, std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41");
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  const auto client = (*loaded)->connect();
  answers out;
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<stream> open;
    for (const auto& request : requests()) open.push_back(client.generate(request).value());
    for (auto& chunks : open) {
      generate_result answer;
      while (true) {
        const auto chunk = chunks.next(patience);
        REQUIRE(chunk.has_value());
        if (!*chunk) break;
        answer.add(**chunk);
      }
      out.ids.push_back(answer.ids);
    }
  }
  out.stats = client.stats().value();
  return out;
}

step_settings plain() {
  step_settings out;
  out.depth = 1;
  out.prefix_cache = false;
  return out;
}

}  // namespace

TEST_CASE("drafts of either kind, at every depth, change no token [I29][I34][I38]") {
  const auto reference = answer_twice(plain());
  for (const auto drafter : {drafter_setting::dspark, drafter_setting::ngram})
    for (const std::int32_t depth : {1, 2, 3}) {
      auto engine = plain();
      engine.depth = depth;
      engine.num_drafts = 4;
      engine.drafter = drafter;
      const auto made = answer_twice(engine);
      CAPTURE(depth);
      CHECK(made.ids == reference.ids);
      CHECK(made.stats.draft_tokens > 0);
      CHECK(made.stats.accepted_tokens > 0);
    }
}

TEST_CASE("verification sized by confidence changes no token [I38]") {
  auto engine = plain();
  engine.depth = 2;
  engine.num_drafts = 5;
  engine.verify = verify_setting::confidence;
  CHECK(answer_twice(engine).ids == answer_twice(plain()).ids);
}

TEST_CASE("a prefix hit, from the pool or from host memory, changes no token [I48]") {
  const auto reference = answer_twice(plain());
  for (const std::int32_t host : {0, 64}) {
    auto engine = plain();
    engine.depth = 2;
    engine.block_size = 16;
    engine.prefix_cache = true;
    engine.prefix_host_blocks = host;
    engine.num_kv_blocks = host > 0 ? 40 : 400;
    const auto made = answer_twice(engine);
    CAPTURE(host);
    CHECK(made.ids == reference.ids);
    CHECK(made.stats.cached_tokens > 0);
  }
}

TEST_CASE("preemption in a pool that is too small changes no token [I38][I53]") {
  const auto reference = answer_twice(plain());
  for (const auto output : {preempt_setting::deliver, preempt_setting::drop}) {
    auto engine = plain();
    engine.depth = 2;
    engine.num_drafts = 2;
    engine.block_size = 16;
    engine.num_kv_blocks = 14;
    engine.preempt_output = output;
    const auto made = answer_twice(engine);
    CHECK(made.ids == reference.ids);
    CHECK(made.stats.preemptions > 0);
  }
}
