#include <doctest/doctest.h>

#include "tests/core/rank_world.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// The golden loop: launch the newest, then settle the oldest when `depth` are in flight.
void golden_loop(rank_world& world, std::int32_t depth) {
  for (bool alive = true; alive;) {
    world.deliver_all();
    const bool launched = world.launch();
    alive = launched || world.core().in_flight() > 0;
    if (world.core().in_flight() == depth || (!launched && alive)) world.complete();
  }
  world.deliver_all();
  world.check_end();
}

}  // namespace

TEST_CASE("golden numbers of one plain sequence: launches, over-run, reserve, blocks and highest "
          "position [I08][I11][I37][I40][G01][G02][G03][G04][G05][G06][G07][G13][G16]") {
  struct golden {
    const char* name;
    std::int32_t prompt, max_tokens, stop_after, depth, num_drafts, chunk, max_len;
    std::int32_t launches, emitted;
    finish_reason reason;
    std::uint64_t overrun, discarded;
    std::int64_t peak_tokens, peak_blocks, written;
  };
  constexpr auto length = finish_reason::length, stop = finish_reason::stop;
  const golden table[] = {
    {"G01", 5, 4, 0, 1, 0, 0, 256, 4, 4, length, 0, 0, 8, 2, 8},
    {"G02", 5, 4, 0, 2, 0, 0, 256, 4, 4, length, 0, 0, 8, 2, 8},
    {"G03", 5, 4, 0, 3, 0, 0, 256, 4, 4, length, 0, 0, 8, 2, 8},
    {"G04", 5, 100, 3, 1, 0, 0, 256, 3, 3, stop, 0, 0, 7, 2, 7},
    {"G05", 5, 100, 3, 2, 0, 0, 256, 4, 3, stop, 1, 1, 8, 2, 8},
    {"G06", 5, 100, 3, 3, 0, 0, 256, 5, 3, stop, 2, 2, 9, 3, 9},
    {"G07", 8, 1, 0, 2, 3, 0, 256, 1, 1, length, 0, 0, 8, 2, 8},
    {"G13", 10, 2, 0, 2, 0, 4, 256, 4, 2, length, 0, 0, 11, 3, 11},
    {"G16", 12, 100, 0, 2, 0, 0, 16, 4, 4, length, 0, 0, 15, 4, 15},
  };
  for (const auto& row : table) {
    CAPTURE(row.name);
    auto config = small_config();
    config.depth = row.depth;
    config.num_drafts = row.num_drafts;
    config.chunk_size = row.chunk;
    config.max_model_len = row.max_len;
    rank_world world(config);
    sampling_params params;
    params.max_tokens = row.max_tokens;
    const auto id = world.submit(row.prompt, params, row.stop_after);
    golden_loop(world, row.depth);
    const auto s = world.core().stats();
    CHECK(world.first_fault() == "");
    CHECK(world.view(id).launches == row.launches);
    CHECK(static_cast<std::int32_t>(world.view(id).got.size()) == row.emitted);
    CHECK(world.view(id).finish.reason == row.reason);
    CHECK(s.overrun_rows == row.overrun);
    CHECK(s.discarded_tokens == row.discarded);
    CHECK(world.peak_reserve == row.peak_tokens);
    CHECK(world.peak_blocks == row.peak_blocks);
    CHECK(world.written_end == row.written);
  }
}
