#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

void sample_rows_avx2(const stream_ref& stream, const sample_rows_args& args) {
  sample_rows_by({find_peak_avx2, draw_id_avx2, sum_exp_avx2, list_best_avx2}, stream, args);
}

}  // namespace deepinfer::kernels
