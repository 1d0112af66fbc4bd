#include "actors/node/tensor_output.hpp"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

result<void> write_tensors(const std::string& path, const std::vector<output_tensor>& tensors) {
  json::object header;
  std::uint64_t end = 0;
  for (const auto& tensor : tensors) {
    std::int64_t count = 1;
    for (const auto extent : tensor.shape) count *= extent;
    DI_CHECK(count == static_cast<std::int64_t>(tensor.values.size()),
             "{}: {} values for {} places", tensor.name, tensor.values.size(), count);
    const auto begin = end;
    end += tensor.values.size() * sizeof(float);
    header[tensor.name] =
      json::object{{"dtype", "F32"},
                   {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                   {"data_offsets", json::array{begin, end}}};
  }
  auto text = to_text(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += text;
  for (const auto& tensor : tensors) {
    const auto at = file.size();
    const auto bytes = tensor.values.size() * sizeof(float);
    file.resize(at + bytes);
    if (bytes > 0) std::memcpy(file.data() + at, tensor.values.data(), bytes);
  }
  return write_file(path, file);
}

}  // namespace deepinfer
