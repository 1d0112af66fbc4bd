#include "kernels/step/resume_edges.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

void resume_edges_ref(const stream_ref&, const resume_edges_args& args) {
  const auto& batch = args.batch;
  DI_CHECK(args.every > 0 && args.every % batch.block_size == 0,
           "an edge every {} positions, blocks of {}", args.every, batch.block_size);
  std::int32_t found = 0;
  for (std::int32_t t = 0; t < batch.tokens; ++t)
    if (!batch.is_padding(t) && (batch.position[t] + 1) % args.every == 0) args.edge[found++] = t;
  *args.count = found;
}

}  // namespace deepinfer::kernels
