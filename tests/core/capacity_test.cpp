#include <doctest/doctest.h>

#include "runtime/core/capacity.hpp"

using namespace deepinfer;

TEST_CASE("the reserve covers every launched step and the drafter's overhang, in whole blocks "
          "[I08][I15]") {
  struct reserve_case {
    std::int64_t committed;
    pipeline_shape shape;
    std::int64_t tokens, blocks;
  };
  const reserve_case table[] = {
    {1000, {2, 3, 0}, 1008, 63},  // exactly full
    {1001, {2, 3, 0}, 1009, 64},  // one token over the edge
    {998, {2, 3, 3}, 1009, 64},   // the drafter writes 3 further
    {15, {2, 0, 0}, 17, 2},       // plain decode, run ahead by one
    {15, {1, 0, 0}, 16, 1},      {1019, {2, 3, 3}, 1030, 65},
  };
  for (const auto& row : table) {
    CAPTURE(row.committed);
    CAPTURE(row.shape.depth);
    CHECK(reserve_tokens(row.committed, row.shape) == row.tokens);
    CHECK(blocks_for(reserve_tokens(row.committed, row.shape), 16) == row.blocks);
  }
}

TEST_CASE("in steady decode the general formula and the pipeline's agree") {
  for (std::int32_t depth = 1; depth <= depth_limit; ++depth)
    for (std::int32_t d = 0; d < 8; ++d)
      for (std::int32_t w = 0; w <= d; ++w)
        CHECK(reserve_tokens(100, depth * (1 + d), w) == reserve_tokens(100, {depth, d, w}));
}

TEST_CASE("rounding to blocks happens once, after the sum [I15]") {
  CHECK(blocks_for(0, 4) == 0);
  CHECK(blocks_for(1, 4) == 1);
  CHECK(blocks_for(4, 4) == 1);
  CHECK(blocks_for(5, 4) == 2);
  CHECK(blocks_for(3 + 3, 4) == 2);  // not blocks_for(3) + blocks_for(3) + ...
}

TEST_CASE("a decode row never writes the last position of the context [I11]") {
  // Prompt 12, context 16: outputs 13..16 need rows that write 12, 13, 14.
  CHECK(decode_fits(12, 0, 16));
  CHECK(decode_fits(12, 2, 16));
  CHECK_FALSE(decode_fits(12, 3, 16));
  CHECK_FALSE(decode_fits(15, 0, 16));
  CHECK(drafts_allowed(3, 12, 0, 16) == 2);
  CHECK(drafts_allowed(3, 12, 2, 16) == 0);
  CHECK(drafts_allowed(3, 2, 0, 16) == 3);
  CHECK(drafts_allowed(3, 15, 0, 16) == 0);
}

TEST_CASE("outputs are limited by max_tokens and by what the context leaves") {
  CHECK(output_limit(5, 4, 100) == 4);
  CHECK(output_limit(5, 200, 100) == 95);
  CHECK(output_limit(5, -1, 100) == 95);
}

TEST_CASE("what a settle may give back is measured from the settled length, never below what "
          "launched rows may write [I13][I16]") {
  const pipeline_shape shape{2, 3, 0};
  // 100 committed, two rows of 4 launched, the first settles with one token.
  CHECK(keep_tokens(101, 4, 10, shape) == 109);
  CHECK(keep_tokens(101, 8, 10, shape) == 109);
  CHECK(keep_tokens(101, 12, 10, shape) == 113);  // depth was lowered: three are still in flight
  CHECK(keep_tokens(101, 4, 300, shape) == 300);  // a prompt keeps its blocks
}
