/// How much random testing a run does: ten times as much with `tests/run.sh --full`.
#pragma once

#include <cstdlib>

namespace deepinfer {

template <class Number>
Number with_effort(Number usual) {
  return std::getenv("DEEPINFER_TEST_FULL") ? usual * 10 : usual;
}

}  // namespace deepinfer
