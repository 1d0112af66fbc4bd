/// Memory of packed weights: large regions that ask for 2 MiB pages.
///
/// Products stream weights front to back; with 4 KiB pages the page walks cost a quarter of the
/// read bandwidth (measured: performance.md 1). A region is aligned to 2 MiB and advised; where the
/// system gives no large pages the memory is the same, only slower. Handed out front to back,
/// 64-byte aligned, freed as a whole. Not thread-safe.
/// Errors: throws std::bad_alloc, as an allocation would.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace deepinfer {

class weight_arena {
public:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t page_bytes = std::size_t{2} << 20;
  static constexpr std::size_t region_bytes = 32 * page_bytes;

  /// The next `bytes`, zeroed.
  std::byte* take(std::size_t bytes);

  std::size_t mapped_bytes() const { return mapped_bytes_; }

private:
  struct unmap {
    std::size_t bytes;
    void operator()(std::byte* region) const;
  };

  std::vector<std::unique_ptr<std::byte, unmap>> regions_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace deepinfer
