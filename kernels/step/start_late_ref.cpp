#include "kernels/step/start_late.hpp"

namespace deepinfer::kernels {

void start_late_ref(const stream_ref&, const start_late_args& args) {
  for (std::int32_t i = 0; i < args.starts; ++i) args.late_begin[args.slot[i]] = args.begin[i];
}

}  // namespace deepinfer::kernels
