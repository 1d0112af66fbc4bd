#include "kernels/peak/peak.hpp"

namespace deepinfer::kernels {

namespace {

constexpr peak_loops reference_loops{read_peak_ref, fma_peak_ref, int8_peak_ref};
#if defined(__x86_64__)
constexpr peak_loops avx2_loops{read_peak_avx2, fma_peak_avx2, int8_peak_avx2};
#else
constexpr peak_loops avx2_loops = reference_loops;
#endif

}  // namespace

const peak_loops& cpu_peak(isa set) {
  return set == isa::avx2 ? avx2_loops : reference_loops;
}

}  // namespace deepinfer::kernels
