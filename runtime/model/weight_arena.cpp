#include "runtime/model/weight_arena.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace deepinfer {
namespace {

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Whole large pages, zeroed; what lies before and after the aligned part is given back.
std::byte* map_pages(std::size_t bytes) {
  const auto reach = bytes + weight_arena::page_bytes;
  void* data = ::mmap(nullptr, reach, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(data);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const auto before = rounded_up(address, weight_arena::page_bytes) - address;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, weight_arena::page_bytes - before);
#ifdef MADV_HUGEPAGE
  ::madvise(begin + before, bytes, MADV_HUGEPAGE);  // advice: no error is ours
#endif
  return begin + before;
}

}  // namespace

void weight_arena::unmap::operator()(std::byte* region) const {
  ::munmap(region, bytes);
}

std::byte* weight_arena::take(std::size_t bytes) {
  const auto wanted = rounded_up(std::max<std::size_t>(bytes, 1), alignment);
  if (wanted > left_) {
    const auto size = rounded_up(std::max(wanted, region_bytes), page_bytes);
    regions_.push_back({map_pages(size), unmap{size}});
    mapped_bytes_ += size;
    next_ = regions_.back().get();
    left_ = size;
  }
  auto* taken = next_;
  next_ += wanted;
  left_ -= wanted;
  return taken;
}

}  // namespace deepinfer
