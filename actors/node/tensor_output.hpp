/// Writes f32 tensors as a safetensors file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace deepinfer {

struct output_tensor {
  std::string name;  ///< plain ASCII
  std::vector<std::int64_t> shape;
  std::vector<float> values;  ///< row-major; as many as the shape says
};

/// In the given order, aligned to 8 bytes. Error io_failed.
result<void> write_tensors(const std::string& path, const std::vector<output_tensor>& tensors);

}  // namespace deepinfer
