// Whose cached prefixes a request may use: the salt's way from the client to the pool.
#include <doctest/doctest.h>

#include "actors/node.hpp"

using namespace deepinfer;

namespace {

constexpr std::chrono::minutes patience{5};

/// Prompt tokens of a request of this salt that came from the cache.
std::int32_t cached_tokens(const node& engine, std::optional<std::string> salt) {
  generate_request request;
  request.ids.emplace();
  for (token_id id = 0; id < 70; ++id) request.ids->push_back(3 + id);
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 2;
  request.cache_salt = std::move(salt);
  const auto answer = engine.connect().generate_sync(request, patience);
  REQUIRE_MESSAGE(answer.has_value(), answer.error().message);
  return answer->finish.usage.cached_tokens;
}

}  // namespace

TEST_CASE("requests share cached prefixes with those of their salt, or of none, alone") {
  engine_settings settings;
  settings.engine.num_threads = 1;
  settings.engine.block_size = 16;
  settings.engine.num_kv_blocks = 64;
  const auto path = std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41";
  const auto engine = node::load(settings, path).value();
  using salt = std::optional<std::string>;
  for (const auto& it : {salt(), salt("a"), salt("b"), salt(std::string("b\0", 2))}) {
    CAPTURE(it.value_or("none"));
    CHECK(cached_tokens(*engine, it) == 0);
    CHECK(cached_tokens(*engine, it) == 64);
  }
  // Each still finds its own.
  CHECK(cached_tokens(*engine, salt()) == 64);
  CHECK(cached_tokens(*engine, salt("a")) == 64);
}
