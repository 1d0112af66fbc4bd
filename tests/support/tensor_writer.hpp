/// Safetensors files made by a test: tensors in, bytes out, aligned as careful writers do.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/tensor_view.hpp"
#include "tests/support/mutate.hpp"

namespace deepinfer {

struct written_tensor {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::string bytes;  ///< as stored; its size decides the offsets, right or wrong
};

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// In the given order, without holes. The header is padded so that the data starts at a multiple of
/// 8, plus `shift` further bytes.
inline std::string safetensors_file(const std::vector<written_tensor>& tensors,
                                    std::size_t shift = 0) {
  std::string header = "{", data;
  for (const auto& tensor : tensors) {
    header +=
      fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                  header.size() > 1 ? "," : "", tensor.name, name_of(tensor.type),
                  fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8 + shift, ' ');
  return mutator::with_header(header, data);
}

}  // namespace deepinfer
