#include "runtime/base/stream.hpp"

namespace deepinfer {

// Not in the header: code that calls through thread_team gets guesses of the callee inlined, copies
// of which would then exist in every kernel built for an instruction set.
std::int32_t inline_team::threads() const {
  return 1;
}

void inline_team::run(std::int32_t parts, task work, void* context) {
  for (std::int32_t part = 0; part < parts; ++part) work(context, part, parts);
}

}  // namespace deepinfer
