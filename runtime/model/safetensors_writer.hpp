/// Writes one safetensors file from front to back without holding it: names and shapes first, then
/// the bytes of the tensors in that order, in pieces of any size.
///
/// The header is padded so that data begins at a multiple of 8; a tensor is aligned for its type
/// where no tensor of a smaller type stands before it. A file whose writer goes away before
/// `finish` is removed: no half of a checkpoint is left behind.
/// Errors (io_failed): "PATH: No space left on device".
/// Source: public safetensors format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/tensor_view.hpp"

namespace deepinfer {

/// One tensor of a file to come.
struct tensor_entry {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;

  std::uint64_t bytes() const { return tensor_view{type, shape, nullptr}.bytes(); }
};

class tensor_file_writer {
public:
  /// Creates or replaces `path` and writes the header. Names must differ.
  static result<tensor_file_writer> create(const std::string& path,
                                           std::span<const tensor_entry> entries);

  tensor_file_writer(tensor_file_writer&& other) noexcept;
  tensor_file_writer& operator=(tensor_file_writer&&) = delete;
  ~tensor_file_writer();

  /// The next bytes of the data section; more than were announced are a programmer's error.
  result<void> append(std::span<const std::byte> bytes);

  /// Ends the file, which must be complete, and keeps it.
  result<void> finish();

private:
  explicit tensor_file_writer(std::string path);
  result<void> write(std::span<const std::byte> bytes);

  std::string path_;
  int descriptor_ = -1;        ///< -1: finished, moved from, or never opened
  std::uint64_t missing_ = 0;  ///< bytes of data that have not come yet
};

}  // namespace deepinfer
