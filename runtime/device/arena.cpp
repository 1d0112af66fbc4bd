#include "runtime/device/arena.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

result<arena> arena::map(std::size_t bytes) {
  arena out;
  if (bytes == 0) return out;
  // No reserve: an arena is sized by the configuration and may exceed what is ever touched.
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return fail(errc::no_device,
                fmt::format("cannot map {} bytes: {}", bytes, std::strerror(errno)));
  out.data_ = static_cast<std::byte*>(data);
  out.size_ = bytes;
  return out;
}

arena::arena(arena&& other) noexcept
  : data_(std::exchange(other.data_, nullptr)),
    size_(std::exchange(other.size_, 0)),
    used_(std::exchange(other.used_, 0)) {}

arena& arena::operator=(arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(used_, other.used_);
  return *this;
}

arena::~arena() {
  if (data_) ::munmap(data_, size_);
}

std::byte* arena::take_bytes(std::size_t bytes) {
  const auto begin = (used_ + alignment - 1) / alignment * alignment;
  DI_CHECK(begin <= size_ && bytes <= size_ - begin, "arena of {} bytes: {} used, {} more wanted",
           size_, used_, bytes);
  used_ = begin + bytes;
  return data_ + begin;
}

}  // namespace deepinfer
