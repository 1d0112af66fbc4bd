/// What a client reads, for tests of nodes.
#pragma once

#include <doctest/doctest.h>

#include <chrono>

#include "actors/client.hpp"

namespace deepinfer::test {

/// All of a request, to its finish. `patience`: for each chunk.
inline generate_result read_answer(stream& chunks, std::chrono::milliseconds patience) {
  generate_result answer;
  while (true) {
    const auto chunk = chunks.next(patience);
    REQUIRE_MESSAGE(chunk.has_value(), chunk.error().message);
    if (!*chunk) return answer;
    answer.add(**chunk);
  }
}

}  // namespace deepinfer::test
