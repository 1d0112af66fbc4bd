#include <algorithm>
#include <cmath>

#include "kernels/linear/matrix_rows.hpp"
#include "kernels/linear/packed_int8.hpp"

namespace deepinfer::kernels {

void int8_matrix_rows_ref(const packed_matrix& matrix, std::int64_t begin, std::int64_t end,
                          const std::int8_t* const* codes, const float* const* scales,
                          float* const* y, std::int64_t rows) {
  const auto groups = (matrix.in + code_group - 1) / code_group;
  const auto last = std::min(end * panel_width, matrix.out);
  for (auto o = begin * panel_width; o < last; ++o) {
    for (std::int64_t r = 0; r < rows; ++r) y[r][o] = 0;
    for (std::int64_t group = 0; group < groups; ++group) {
      std::int32_t weights[code_group];
      const float scale = int8_group_codes(matrix, o, group, weights);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::int32_t dot = 0;
        for (std::int64_t i = 0; i < code_group; ++i)
          dot += weights[i] * codes[r][group * code_group + i];
        y[r][o] = std::fma(static_cast<float>(dot), scales[r][group] * scale, y[r][o]);
      }
    }
  }
}

}  // namespace deepinfer::kernels
