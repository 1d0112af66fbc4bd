#include <doctest/doctest.h>

#include "runtime/base/random.hpp"

using namespace deepinfer;

TEST_CASE("philox4x32-10 gives the published known answers") {
  // Random123 1.09, kat_vectors.
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("noise is finite at both ends, and choice 0 keeps the seed") {
  CHECK(unit_real(0) > 0.0);
  CHECK(unit_real(0xffffffffu) < 1.0);
  CHECK(choice_seed(42, 0) == 42);
  CHECK(choice_seed(42, 1) != choice_seed(42, 2));
}
