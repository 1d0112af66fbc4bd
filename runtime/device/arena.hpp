/// One zeroed, fixed-size region of memory that is handed out front to back and freed as a whole.
///
/// Devices make them (device.hpp): pinned arenas hold what copies read and write on the host side,
/// device arenas hold weights, KV and step arrays. Pages are only touched when used, so a large
/// arena costs nothing at start-up. Taking more than is left is a programmer's error: sizes are
/// computed before. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/error.hpp"

namespace deepinfer {

class arena {
public:
  static constexpr std::size_t alignment = 64;

  /// Anonymous, zeroed, page-aligned. Error no_device: "cannot map N bytes: ...".
  static result<arena> map(std::size_t bytes);

  arena() = default;
  arena(arena&& other) noexcept;
  arena& operator=(arena&& other) noexcept;
  ~arena();

  /// The next `count` elements, zeroed, aligned to 64 bytes.
  template <class T>
  std::span<T> take(std::size_t count) {
    return {reinterpret_cast<T*>(take_bytes(count * sizeof(T))), count};
  }

  std::size_t capacity() const { return size_; }
  std::size_t used() const { return used_; }

private:
  std::byte* take_bytes(std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace deepinfer
