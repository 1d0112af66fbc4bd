/// Files as values: read whole, write whole, map read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace deepinfer {

/// The bytes of a file. Error io_failed: "PATH: No such file or directory".
result<std::string> read_file(const std::string& path);

/// The same of a regular file of at most `most_bytes`: a device or a pipe is refused, not read.
result<std::string> read_small_file(const std::string& path, std::int64_t most_bytes);

/// Replaces a file's content. Error io_failed.
result<void> write_file(const std::string& path, std::string_view content);

/// A read-only private mapping of a whole file; an empty file maps to an empty span.
class mapped_file {
public:
  static result<mapped_file> open(const std::string& path);

  mapped_file() = default;
  mapped_file(mapped_file&& other) noexcept;
  mapped_file& operator=(mapped_file&& other) noexcept;
  ~mapped_file();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace deepinfer
