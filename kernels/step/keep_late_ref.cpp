#include "kernels/step/keep_late.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

void keep_late_ref(const stream_ref&, const keep_late_args& args) {
  const auto& batch = args.batch;
  std::int32_t k = 0;
  for (std::int32_t t = 0; t < batch.tokens; ++t) {
    args.kept_at[t] = -1;
    if (batch.is_padding(t)) continue;
    const auto begin = args.late_begin[batch.slot[t]], position = batch.position[t];
    if (position < begin) continue;
    DI_CHECK(k < args.kept, "the late layers keep more than {} of {} tokens", args.kept,
             batch.tokens);
    const auto first = std::max(begin, batch.row_first_position[t]);
    args.token[k] = t;
    args.kept_at[t] = k;
    args.slot[k] = batch.slot[t];
    args.position[k] = position;
    args.row_first_token[k] = k - (position - first);
    args.row_first_position[k] = first;
    ++k;
  }
  for (; k < args.kept; ++k) {
    args.token[k] = args.slot[k] = args.position[k] = args.row_first_position[k] = -1;
    args.row_first_token[k] = k;
  }
}

}  // namespace deepinfer::kernels
