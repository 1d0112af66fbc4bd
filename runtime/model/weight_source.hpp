/// Where a model's weights come from: a checkpoint, or a function of the tensor's name.
///
/// A source answers for one tensor at a time and says how it is stored. Every stored format is
/// exact in f32: bf16, e4m3 and e2m1 times a power of two.
/// Errors: bad_checkpoint, with tensor, found and expected: a missing tensor, a wrong shape, a type
/// that no weight has, quantised values without their scale, a scale of a wrong type, shape or NaN.
/// Source: model-v41.md 3 (names, scales), 4.1 (formats), 24 (generated weights).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/tensor_view.hpp"

namespace deepinfer {

class tensor_set;

/// How the scales of a quantised tensor lie.
enum class scale_layout : std::uint8_t {
  blocks,  ///< one per 32 rows and 32 columns (FP8 linears)
  rows,    ///< one per row and 32 columns (FP4 experts, Engram tables)
};

/// One tensor as stored. `scale.data` is null where the values are not quantised.
struct weight_tensor {
  tensor_view values;
  tensor_view scale;
  std::shared_ptr<const void> owner;  ///< keeps both alive
};

/// `X.scale` beside `X.weight`.
std::string scale_name(std::string_view name);

class weight_source {
public:
  virtual ~weight_source() = default;
  /// `shape` is that of the values, [out, in] or less; packed e2m1 (i8) has half its last extent.
  virtual result<weight_tensor> get(std::string_view name, const std::vector<std::int64_t>& shape,
                                    scale_layout scales) = 0;
  /// Bytes of everything a load may ask for, for a progress bar; 0: not known.
  virtual std::uint64_t total_bytes() const { return 0; }
};

/// Tensors of a checkpoint; the scale of `X.weight` is `X.scale`.
class checkpoint_weights final : public weight_source {
public:
  explicit checkpoint_weights(std::shared_ptr<const tensor_set> tensors);
  result<weight_tensor> get(std::string_view name, const std::vector<std::int64_t>& shape,
                            scale_layout scales) override;
  std::uint64_t total_bytes() const override;

private:
  std::shared_ptr<const tensor_set> tensors_;
};

/// Writes all values of the named f32 tensor, row-major; `columns` is its last extent.
using weight_generator =
  std::function<void(std::string_view name, std::int64_t columns, std::span<float> values)>;

class generated_weights final : public weight_source {
public:
  explicit generated_weights(weight_generator generate);
  result<weight_tensor> get(std::string_view name, const std::vector<std::int64_t>& shape,
                            scale_layout scales) override;

private:
  weight_generator generate_;
};

}  // namespace deepinfer
