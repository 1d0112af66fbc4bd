/// Calls of operator new by the thread that asks. It replaces the operators of the program, so one
/// file of a test program includes it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace deepinfer::test {

inline thread_local bool counts_allocations = false;
inline thread_local std::int64_t allocations = 0;

/// Out of line: where the compiler sees malloc behind new, it takes delete for the wrong partner.
[[gnu::noinline]] inline void* counted_memory_or_null(std::size_t bytes) noexcept {
  if (counts_allocations) ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

[[gnu::noinline]] inline void* counted_memory(std::size_t bytes) {
  if (void* memory = counted_memory_or_null(bytes)) return memory;
  throw std::bad_alloc();
}

/// How often `work` calls operator new.
template <class Work>
std::int64_t allocations_of(const Work& work) {
  allocations = 0;
  counts_allocations = true;
  work();
  counts_allocations = false;
  return allocations;
}

}  // namespace deepinfer::test

void* operator new(std::size_t bytes) {
  return deepinfer::test::counted_memory(bytes);
}
void* operator new[](std::size_t bytes) {
  return deepinfer::test::counted_memory(bytes);
}
// Sanitizers have these of their own, which would not fit the deletes here.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return deepinfer::test::counted_memory_or_null(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return deepinfer::test::counted_memory_or_null(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
