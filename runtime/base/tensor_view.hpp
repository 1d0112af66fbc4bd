/// Element types and non-owning views of tensors as checkpoints and tests see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

/// Element types of the released checkpoints. f8_e4m3 has no infinity (FN); f8_e8m0 is a power of
/// two scale; e2m1 pairs are stored as i8, low nibble = even index.
enum class dtype : std::uint8_t {
  f32,
  f64,
  bf16,
  f16,
  f8_e4m3,
  f8_e8m0,
  i8,
  u8,
  i32,
  i64,
  boolean
};

/// Bytes of one element as stored.
constexpr std::size_t size_of(dtype type) {
  switch (type) {
  case dtype::f64:
  case dtype::i64: return 8;
  case dtype::f32:
  case dtype::i32: return 4;
  case dtype::bf16:
  case dtype::f16: return 2;
  default: return 1;
  }
}

/// The safetensors name: "F32", "BF16", "F8_E4M3", "F8_E8M0", "I8", ...
std::string_view name_of(dtype type);

/// Contiguous, row-major. The memory belongs to somebody else (a mapped file, an arena).
struct tensor_view {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const auto extent : shape) count *= extent;
    return count;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

/// "[2, 128]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace deepinfer
