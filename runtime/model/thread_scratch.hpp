/// Scratch memory that an op wants per thread of its stream's team.
/// Aligned to 64 bytes. Errors: std::bad_alloc, as of lazy_array.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/stream.hpp"
#include "runtime/model/lazy_array.hpp"

namespace deepinfer {

class thread_scratch {
public:
  /// Zero when the team's size is new, and allocated only then.
  void* of(const stream_ref& stream, std::size_t bytes_per_thread) {
    const auto threads = stream.team ? stream.team->threads() : 1;
    if (threads_ != threads) {
      memory_ = lazy_array<std::byte>(static_cast<std::int64_t>(bytes_per_thread) * threads);
      threads_ = threads;
    }
    return memory_.data();
  }

private:
  lazy_array<std::byte> memory_;
  std::int32_t threads_ = 0;
};

}  // namespace deepinfer
