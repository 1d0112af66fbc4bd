#include "runtime/model/memory_plan.hpp"

#include <doctest/doctest.h>

#include "runtime/base/file.hpp"
#include "runtime/model/kv_layout.hpp"

using namespace deepinfer;

namespace {

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

model_config release_config() {
  return parse_model_config(
           read_file(DI_SOURCE_DIR "/tests/golden/model/release-config.json").value())
    .value();
}

std::int64_t bytes_of(const memory_plan& plan, tensor_kind kind) {
  for (const auto& part : plan.weights)
    if (part.kind == kind) return part.bytes;
  return -1;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("state of the release has the specification's bytes per token, row and ring") {
  auto config = release_config();
  // One step of six rows in flight: the ring of 134 rows of which the specification gives the sum.
  plan_request request{.depth = 1, .num_drafts = 5};
  const auto released = state_bytes_of(config, request);
  CHECK(released.per_token == 890);
  CHECK(released.block() == 64 * 890);
  CHECK(released.block_rows == 64 * 720);
  CHECK(released.block_keys == 64 * 170);
  CHECK(released.window_rows == 134);
  CHECK(released.window == 3'042'336);
  CHECK(released.pooling == 3 * 8 * 2 * 512 * 4);
  config.fp4_sparse_kv = false;
  CHECK(state_bytes_of(config, request).per_token == 1490);
  request.format = state_format::bf16;
  CHECK(state_bytes_of(config, request).per_token == 3200);
}

TEST_CASE("rings grow with the positions that launched steps and drafts may write ahead") {
  const auto config = release_config();
  for (const std::int32_t depth : {1, 2, 3})
    for (const std::int32_t drafts : {0, 5})
      for (const std::int32_t overhang : {0, 5}) {
        const auto state = state_bytes_of(
          config, {.depth = depth, .num_drafts = drafts, .draft_overhang = overhang});
        CHECK(state.window_rows == 128 + depth * (1 + drafts) + overhang);
      }
}

TEST_CASE("in f32 a slot and a block cost what the engine's own layout reserves for them") {
  for (const std::string name : {"examples/models/tiny-v41", "tests/golden/model/v41-a-plain"}) {
    CAPTURE(name);
    const auto config = load_model_config(DI_SOURCE_DIR "/" + name).value();
    const runner_config runner{.depth = 2,
                               .num_drafts = 5,
                               .draft_overhang = 5,
                               .max_model_len = 512,
                               .num_kv_blocks = 4,
                               .block_size = 64};
    const auto layout = make_kv_layout(config, runner, true).value();
    const auto state = state_bytes_of(
      config, {.format = state_format::f32, .depth = 2, .num_drafts = 5, .draft_overhang = 5});
    CHECK(state.window_rows == layout.window_ring);
    CHECK(state.window == layout.window_bytes());
    CHECK(state.pooling == layout.pooling_bytes());
    // The layout adds the ids of the block's tokens.
    CHECK(state.block() + 64 * 4 == layout.block_bytes());
    auto with_cache = runner;
    with_cache.prefix_cache = true;
    const auto cached = make_kv_layout(config, with_cache, true).value();
    CHECK(state.resume_point == cached.resume_bytes());
    CHECK(state.block() + 64 * 4 + state.resume_point == cached.block_bytes());
  }
}

TEST_CASE("a resume point is window - 1 rows of every ring, in each block of a prefix cache") {
  const auto config = release_config();
  const plan_request without{.ranks = 64, .device_memory = 141 * gibibyte};
  auto with = without;
  with.prefix_cache = true;
  with.host_blocks = 1000;
  const auto plain = plan_memory(config, without).value();
  const auto plan = plan_memory(config, with).value();
  CHECK(plain.state.resume_point == 43 * 127 * 528);
  CHECK(plain.state.block() == 64 * 890);
  CHECK(plain.resume_bytes == 0);
  CHECK(has(to_table(plain), "a resume point                   2.88 MB  of a block"));
  CHECK(plan.state.block() == 64 * 890 + 43 * 127 * 528);
  CHECK(plan.state.per_token == 890);
  CHECK(plan.tokens == plan.free_bytes / plan.state.block() * 64);
  CHECK(plan.resume_bytes == plan.tokens / 64 * 43 * 127 * 528);
  CHECK(plan.host_bytes == 1000 * plan.state.block());
  const auto table = to_table(plan);
  CHECK(has(table, "host tier                        2.94 GB  1,000 blocks, in host memory"));
  CHECK(has(table, "their resume points "));
  const auto object = to_json(plan);
  CHECK(object.at("resume_bytes") == plan.resume_bytes);
  CHECK(object.at("host_bytes") == plan.host_bytes);
  CHECK(object.at("state").at("resume_point_bytes") == 43 * 127 * 528);
}

TEST_CASE("weights of the whole release have the specification's sizes") {
  const auto plan = plan_memory(release_config(), {.device_memory = 0}).value();
  CHECK(plan.bytes_per_expert == 18'800'640);
  CHECK(plan.experts_per_rank == 384);
  CHECK(bytes_of(plan, tensor_kind::experts) == std::int64_t{18'800'640} * 384 * 40);
  CHECK(bytes_of(plan, tensor_kind::draft_experts) == std::int64_t{18'800'640} * 128 * 3);
  CHECK(plan.all_weight_bytes > 509'000'000'000);
  CHECK(plan.all_weight_bytes < 510'286'023'000);  // the release, its vision part included
  // One padded to a multiple of 256 rows each, 256 bytes and 8 scales a row.
  const auto tables = bytes_of(plan, tensor_kind::engram_tables);
  CHECK(tables == (384'006'400 + 384'016'896) * std::int64_t{264});
}

TEST_CASE(
  "64 ranks share experts and tables, repeat the rest, and fill 141 GiB as computed by hand") {
  const auto config = release_config();
  const plan_request request{.ranks = 64, .device_memory = 141 * gibibyte};
  const auto plan = plan_memory(config, request).value();
  const auto whole = plan_memory(config, {}).value();
  CHECK(plan.experts_per_rank == 6);
  CHECK(bytes_of(plan, tensor_kind::experts) == std::int64_t{18'800'640} * 6 * 40);
  CHECK(bytes_of(plan, tensor_kind::draft_experts) == std::int64_t{18'800'640} * 2 * 3);
  CHECK(bytes_of(plan, tensor_kind::engram_tables) == (6'000'100 + 6'000'264) * std::int64_t{264});
  for (const auto kind :
       {tensor_kind::embeddings, tensor_kind::attention, tensor_kind::mixing, tensor_kind::routers,
        tensor_kind::shared_experts, tensor_kind::engram, tensor_kind::draft})
    CHECK(bytes_of(plan, kind) == bytes_of(whole, kind));
  std::int64_t sum = 0;
  for (const auto& part : plan.weights) sum += part.bytes;
  CHECK(plan.weight_bytes == sum);
  CHECK(plan.free_bytes == 136'257'837'465 - sum);  // floor(0.9 * 141 GiB) less the weights
  CHECK(plan.tokens == plan.free_bytes / 56'960 * 64);
  CHECK(plan.max_model_len == 1'048'576);
}

TEST_CASE("what a plan says fits does fit, and one sequence more does not") {
  const auto config = release_config();
  for (const std::int32_t ranks : {8, 16, 48, 64, 128}) {
    CAPTURE(ranks);
    const auto plan =
      plan_memory(config, {.ranks = ranks, .device_memory = 141 * gibibyte}).value();
    REQUIRE(plan.free_bytes > 0);
    REQUIRE(plan.fits.size() == 4);
    for (const auto& fit : plan.fits) {
      const auto blocks = (fit.tokens_each + 63) / 64;
      const auto each = plan.state.sequence() + blocks * plan.state.block();
      CHECK(fit.sequences * each <= plan.free_bytes);
      CHECK((fit.sequences + 1) * each > plan.free_bytes);
    }
    CHECK(plan.fits.back().tokens_each == 1'048'576);
  }
}

TEST_CASE("an uneven split is planned for the fullest rank, spares included") {
  const auto config = release_config();
  const std::pair<std::int32_t, std::int64_t> splits[] = {{1, 384}, {5, 77}, {383, 2}, {384, 1}};
  for (const auto& [ranks, experts] : splits)
    CHECK(plan_memory(config, {.ranks = ranks})->experts_per_rank == experts);
  CHECK(plan_memory(config, {.ranks = 64, .spare_experts = 64})->experts_per_rank == 7);
}

TEST_CASE("tables in host memory do not count, and weights that do not fit are said to") {
  const auto config = release_config();
  const auto on = plan_memory(config, {.ranks = 8, .device_memory = 80 * gibibyte}).value();
  const auto off =
    plan_memory(config, {.ranks = 8, .device_memory = 80 * gibibyte, .engram_on_device = false})
      .value();
  CHECK(on.weight_bytes - off.weight_bytes == bytes_of(on, tensor_kind::engram_tables));
  CHECK(has(to_table(off), "in host memory, not counted"));
  const auto small = plan_memory(config, {.ranks = 1, .device_memory = 141 * gibibyte}).value();
  CHECK(small.free_bytes < 0);
  CHECK(small.tokens == 0);
  CHECK(has(to_table(small), "the weights do not fit"));
}

TEST_CASE("a request outside its limits is refused by the name of its field") {
  const auto config = release_config();
  const std::pair<plan_request, const char*> table[] = {
    {{.ranks = 0}, "ep_size: found 0, expected 1 to 1048576"},
    {{.device_memory = -1}, "device_memory: found -1"},
    {{.headroom = 1}, "headroom: found 1, expected 0 to below 1"},
    {{.spare_experts = -1}, "spare_experts: found -1"},
    {{.depth = 0}, "depth: found 0"},
    {{.block_size = 63}, "block_size: found 63, expected a multiple of the ratio 2"},
    {{.max_model_len = -1}, "max_model_len: found -1"},
    {{.host_blocks = 1}, "prefix_host_blocks: found 1, expected 0 to 0"},
    {{.prefix_cache = true, .host_blocks = -1},
     "prefix_host_blocks: found -1, expected 0 to 1048576"},
  };
  for (const auto& [request, message] : table) {
    const auto plan = plan_memory(config, request);
    REQUIRE_FALSE(plan.has_value());
    CHECK(plan.error().code == errc::invalid_argument);
    CHECK(has(plan.error().message, message));
  }
}

TEST_CASE("table and JSON show the same plan") {
  const auto plan =
    plan_memory(release_config(), {.ranks = 64, .device_memory = 141 * gibibyte}).value();
  const auto table = to_table(plan);
  CHECK(has(table, "weights of one rank of 64"));
  CHECK(has(table, "6 of each layer, 18.80 MB each"));
  CHECK(has(table, "890 B"));
  CHECK(has(table, "of 1,048,576 tokens each"));
  CHECK(has(table, "device memory 151.40 GB, 10 % left as headroom"));
  const auto object = to_json(plan);
  CHECK(object.at("state").at("bytes_per_token") == 890.0);
  CHECK(object.at("weight_bytes") == plan.weight_bytes);
  CHECK(object.at("fits").as_array().size() == plan.fits.size());
  CHECK(bytes_text(999) == "999 B");
  CHECK(bytes_text(999'999) == "1.00 MB");
  CHECK(bytes_text(18'800'640) == "18.80 MB");
  CHECK(bytes_text(-1'500) == "-1.50 kB");
}
