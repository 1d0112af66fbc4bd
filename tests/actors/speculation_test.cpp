// Drafts, preemption, aborts and the prefix cache through the whole path change no token: the
// embedded model, greedy and sampled, many requests at once.
#include <doctest/doctest.h>

#include "actors/node.hpp"
#include "runtime/base/json.hpp"
#include "tests/actors/read_answer.hpp"

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

std::unique_ptr<node> load(const step_settings& engine) {
  engine_settings settings;
  settings.engine = engine;
  settings.engine.num_threads = 2;
  settings.engine.max_num_seqs = 8;
  auto loaded = node::load(settings, std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41");
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  return std::move(*loaded);
}

/// Twice: the second time every prompt is in the cache, where there is one.
answers answer_twice(const step_settings& engine) {
  const auto loaded = load(engine);
  const auto client = loaded->connect();
  answers out;
  for (int turn = 0; turn < 2; ++turn) {
    std::vector<stream> open;
    for (const auto& request : requests()) open.push_back(client.generate(request).value());
    for (auto& chunks : open) out.ids.push_back(test::read_answer(chunks, patience).ids);
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

/// What each request gets when nobody else is there.
std::vector<std::vector<token_id>> answer_alone(const step_settings& engine) {
  const auto loaded = load(engine);
  const auto client = loaded->connect();
  std::vector<std::vector<token_id>> out;
  for (const auto& request : requests())
    out.push_back(client.generate_sync(request, patience).value().ids);
  return out;
}

/// The same beside neighbours that are cancelled: before their first token, after it, later.
answers answer_beside_aborted(const step_settings& engine) {
  const auto loaded = load(engine);
  const auto client = loaded->connect();
  const auto all = requests();
  std::vector<stream> open, doomed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto neighbour = all[all.size() - 1 - i];
    neighbour.sampling.max_tokens = 400;  // more than it will get
    neighbour.sampling.seed = 900 + i;
    if (i % 2 == 0) doomed.push_back(client.generate(neighbour).value());
    open.push_back(client.generate(all[i]).value());
  }
  for (std::size_t i = 0; i < doomed.size(); ++i) {
    for (std::size_t chunk = 0; chunk < 3 * i; ++chunk)
      REQUIRE(doomed[i].next(patience).value().has_value());
    CHECK(client.cancel(doomed[i].id()).value());
  }
  for (auto& chunks : doomed) {
    const auto ended = test::read_answer(chunks, patience);
    CHECK(ended.finish.reason == finish_reason::abort);
    CHECK(ended.ids.size() < 400);
  }
  answers out;
  for (auto& chunks : open) out.ids.push_back(test::read_answer(chunks, patience).ids);
  out.stats = client.stats().value();
  return out;
}

}  // namespace

TEST_CASE("neighbours that are aborted change no token of those that stay [I38]") {
  const auto reference = answer_alone(plain());
  for (const std::int32_t depth : {1, 2, 3})
    for (const std::int32_t drafts : {0, 4}) {
      CAPTURE(depth);
      CAPTURE(drafts);
      auto engine = plain();
      engine.depth = depth;
      engine.num_drafts = drafts;
      // A pool that aborted blocks must go round in, and prefixes that may have been theirs.
      engine.block_size = 16;
      engine.num_kv_blocks = 60;
      engine.prefix_cache = true;
      const auto made = answer_beside_aborted(engine);
      CHECK(made.ids == reference);
      CHECK((made.stats.draft_tokens > 0) == (drafts > 0));
    }
}

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
  const auto fixed = answer_twice(engine);
  engine.verify = verify_setting::confidence;
  const auto sized = answer_twice(engine);
  CHECK(sized.ids == answer_twice(plain()).ids);
  // It did leave drafts out: steps of this model take longer the more tokens they have.
  CHECK(sized.stats.draft_tokens > 0);
  CHECK(sized.stats.draft_tokens < fixed.stats.draft_tokens);
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
    CHECK((made.stats.prefix_host_hits > 0) == (host > 0));
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
