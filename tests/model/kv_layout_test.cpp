#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "model_fixture.hpp"
#include "runtime/base/file.hpp"
#include "runtime/model/kv_layout.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

runner_config released_sizes() {
  runner_config config;
  config.depth = 2;
  config.num_drafts = 5;
  config.draft_overhang = 5;
  config.state_slots = 4;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 8192;
  config.num_kv_blocks = 10;
  config.block_size = 64;
  return config;
}

model_config released_model() {
  return *parse_model_config(*read_file(DI_SOURCE_DIR "/tests/golden/model/release-config.json"));
}

}  // namespace

TEST_CASE("rings hold depth * (1 + drafts) + overhang positions beyond what is read of them") {
  const auto layout = *make_kv_layout(released_model(), released_sizes(), true);
  CHECK(layout.window_ring == 128 + 2 * 6 + 5);
  CHECK(layout.layers[2].pool_ring == 2 + 2 * 6 + 5);
  CHECK(layout.layers[14].pool_ring == 2 + 2 * 6 + 5);
  CHECK(layout.layers[20].pool_ring == 0);  // ratio 1 pools nothing
  CHECK(layout.layers[3].pool_ring == 0);
  CHECK(layout.table_stride == (8192 + 17 + 63) / 64);
}

TEST_CASE(
  "bytes of the released model in f32: only sources grow, draft rings only when asked for") {
  const auto with = *make_kv_layout(released_model(), released_sizes(), true);
  const auto without = *make_kv_layout(released_model(), released_sizes(), false);
  // Three sources of 32 rows per block of 64 positions, one of 64, and as many index keys.
  CHECK(with.block_bytes() == (3 * 32 + 64) * (512 + 128) * 4 + 64 * 4);
  CHECK(with.window_bytes() == std::int64_t{43} * 145 * 512 * 4);
  CHECK(without.window_bytes() == std::int64_t{40} * 145 * 512 * 4);
  CHECK(with.pooling_bytes() == 3 * 19 * 2 * 512 * 4);
  CHECK(with.total_bytes() == 4 * with.slot_bytes() + 10 * with.block_bytes());
}

TEST_CASE("a prefix cache adds window - 1 rows of every ring to a block, a host tier its places") {
  auto sizes = released_sizes();
  const auto plain = *make_kv_layout(released_model(), sizes, true);
  CHECK(plain.resume_bytes() == 0);
  CHECK(plain.host_bytes() == 0);
  sizes.prefix_cache = true;
  sizes.resume_stride = 4;
  sizes.host_blocks = 3;
  const auto cached = *make_kv_layout(released_model(), sizes, true);
  CHECK(cached.resume_every == 4 * 64);
  CHECK(cached.resume_bytes() == std::int64_t{43} * 127 * 512 * 4);
  CHECK(cached.block_bytes() == plain.block_bytes() + cached.resume_bytes());
  CHECK(cached.host_bytes() == 3 * cached.block_bytes());
  CHECK(cached.slot_bytes() == plain.slot_bytes());
  CHECK(cached.total_bytes() == 4 * cached.slot_bytes() + 13 * cached.block_bytes());
  const auto undrafted = *make_kv_layout(released_model(), sizes, false);
  CHECK(undrafted.resume_bytes() == std::int64_t{40} * 127 * 512 * 4);
}

TEST_CASE("replay remembers where the late layers of a slot begin") {
  auto sizes = released_sizes();
  const auto plain = *make_kv_layout(released_model(), sizes, true);
  sizes.replay = replay_mode::compact;
  sizes.keep_tokens = 140;
  const auto layout = *make_kv_layout(released_model(), sizes, true);
  CHECK(layout.late_layer == 20);
  CHECK(layout.slot_bytes() == plain.slot_bytes() + 4);
}

TEST_CASE("arrays have the sizes of the layout, and poison reaches exactly what was freed") {
  auto sizes = released_sizes();
  sizes.block_size = 16;
  sizes.prefix_cache = true;
  sizes.host_blocks = 2;
  const auto weights = generated_t1();
  kv_state state(*make_kv_layout(weights->config, sizes, true));
  std::int64_t bytes = state.tokens.bytes() + state.tables.bytes() + state.length.bytes() +
                       state.newest.bytes() + state.host.bytes();
  for (const auto& layer : state.layers)
    bytes += layer.window.bytes() + layer.pooling.bytes() + layer.rows.bytes() +
             layer.keys.bytes() + layer.resume.bytes();
  CHECK(bytes == state.layout.total_bytes());

  const block_id block{3};
  const slot_id slot{1};
  state.poison({&block, 1}, {&slot, 1});
  const auto nan_part = [](const lazy_array<float>& array, std::int64_t parts, std::int64_t part) {
    std::int64_t inside = 0, outside = 0;
    const auto each = array.size() / parts;
    for (std::int64_t i = 0; i < array.size(); ++i)
      if (std::isnan(array[i])) ++(i / each == part ? inside : outside);
    return inside == each && outside == 0;
  };
  for (const auto& layer : state.layers) {
    CHECK(nan_part(layer.window, 4, 1));
    if (layer.pooling.size() > 0) CHECK(nan_part(layer.pooling, 4, 1));
    if (layer.rows.size() > 0) CHECK(nan_part(layer.rows, 10, 3));
    if (layer.keys.size() > 0) CHECK(nan_part(layer.keys, 10, 3));
    CHECK(nan_part(layer.resume, 10, 3));
  }
  CHECK(std::count(state.tokens.span().begin(), state.tokens.span().end(), -1) == 16);
}
