/// Random values for the tensors of a checkpoint, drawn in the form in which they are stored.
///
/// Nothing is quantised: FP4 codes are drawn uniformly, FP8 codes from the sums of four random
/// bytes (nearly normal), and the power-of-two scales so that the root of a matrix' mean square is
/// gain / sqrt(inputs); a scale is one of the two powers around the wanted one, mixed to hit it in
/// the mean. Matrices of gain 1 keep the variance of their input; the gains that differ make
/// attention attend (wq_b), sublayers count in the stream (wo_b, w2), and logits decide (head).
/// The same seed and tensor name give the same bytes, whatever else is in the checkpoint.
/// Cost: 1 to 3 GB/s and core. Source: model-v41.md 3, 4.1, 6, 9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/checkpoint_tensors.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {

enum class value_law : std::uint8_t {
  normal,       ///< mean + deviation * (nearly normal), bf16 or f32
  mixing_base,  ///< hc_*_base: streams keep most of themselves
  codes,        ///< FP4 pairs or FP8, the scale of which is another tensor
  powers,       ///< E8M0 around `deviation`, the root mean square
};

/// One tensor to write.
struct random_tensor {
  std::string name = {};
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape = {};
  value_law law = value_law::normal;
  double mean = 0, deviation = 0;
};

/// Every tensor of `config`, in the order of `expected_tensors`.
std::vector<random_tensor> random_tensors(const model_config& config);

/// The bytes of one tensor, front to back, in pieces whose sizes are multiples of 64 but for the
/// last.
class random_values {
public:
  random_values(const random_tensor& tensor, std::uint64_t seed);

  void fill(std::span<std::byte> out);

private:
  std::uint64_t next();
  double next_normal();
  void fill_bf16(std::span<std::byte> out);
  void fill_f32(std::span<std::byte> out);
  void fill_fp8(std::span<std::byte> out);
  void fill_fp4(std::span<std::byte> out);
  void fill_powers(std::span<std::byte> out);
  void fill_mixing_base(std::span<std::byte> out);

  const random_tensor& tensor_;
  std::uint64_t state_;
};

}  // namespace deepinfer
