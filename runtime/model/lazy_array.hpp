/// A fixed array that the operating system zeroes page by page, on first touch: state sized for the
/// largest batch costs nothing at start-up and only what is used later. Aligned to 64 bytes;
/// move-only; for plain types. Errors: std::bad_alloc, which whoever builds the arrays turns into
/// an error.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

template <class T>
class lazy_array {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

public:
  lazy_array() = default;
  /// All bytes zero.
  explicit lazy_array(std::int64_t size) : size_(size) {
    DI_CHECK(size >= 0, "array of {} elements", size);
    // calloc maps fresh pages for what is large, and does not touch them.
    auto space = static_cast<std::size_t>(size) * sizeof(T) + alignment;
    base_.reset(std::calloc(space, 1));
    if (!base_) throw std::bad_alloc();  // sizes come from settings: the loader makes it an error
    void* aligned = base_.get();
    data_ = static_cast<T*>(std::align(alignment, space - alignment, aligned, space));
  }
  lazy_array(lazy_array&& other) noexcept
    : base_(std::move(other.base_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}
  lazy_array& operator=(lazy_array&& other) noexcept {
    base_ = std::move(other.base_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::int64_t size() const { return size_; }
  std::int64_t bytes() const { return size_ * static_cast<std::int64_t>(sizeof(T)); }
  T& operator[](std::int64_t i) { return data_[i]; }
  const T& operator[](std::int64_t i) const { return data_[i]; }
  std::span<T> span() { return {data(), static_cast<std::size_t>(size_)}; }
  std::span<const T> span() const { return {data(), static_cast<std::size_t>(size_)}; }

private:
  static constexpr std::size_t alignment = 64;
  struct release {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, release> base_;
  T* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace deepinfer
