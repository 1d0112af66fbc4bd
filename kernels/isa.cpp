#include "kernels/isa.hpp"

namespace deepinfer::kernels {

bool runs(isa set) {
#if defined(__x86_64__)
  if (set == isa::avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
#endif
  return set == isa::reference;
}

isa best_isa() {
  return runs(isa::avx2) ? isa::avx2 : isa::reference;
}

std::string_view name_of(isa set) {
  return set == isa::avx2 ? "avx2" : "reference";
}

}  // namespace deepinfer::kernels
