/// Where the time of device work goes: per op and per part of the model, with the bytes and
/// operations that a perfect machine would need for it.
///
/// One meter belongs to one stream; its owner reads it while the stream is idle. Off unless a
/// stream_ref carries one: then every op costs two clock reads, and every part of a parallel region
/// two more. Names are string literals: they are told apart by address.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

/// What a call has to move and to compute at least.
struct work_cost {
  std::int64_t bytes = 0;     ///< of weights and state read from memory, each once per call
  std::int64_t flops = 0;     ///< in f32, a multiply-add counts two
  std::int64_t int8_ops = 0;  ///< in int8, a multiply-add counts two

  work_cost& operator+=(const work_cost& other) {
    bytes += other.bytes;
    flops += other.flops;
    int8_ops += other.int8_ops;
    return *this;
  }
};

class work_meter {
public:
  struct entry {
    const char* name = nullptr;
    std::int64_t calls = 0;
    std::int64_t ns = 0;
    work_cost cost;
  };

  static std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
  }

  /// Ops from now on belong to `part`.
  void enter(const char* part) { part_ = part; }

  void add_op(const char* op, std::int64_t ns, const work_cost& cost) {
    add(ops_, op, ns, cost);
    add(parts_, part_, ns, cost);
    total_ += cost;
    op_ns_ += ns;
  }
  /// A part of a parallel region ended; any thread.
  void add_busy(std::int64_t ns) { busy_ns_.fetch_add(ns, std::memory_order_relaxed); }

  std::span<const entry> ops() const { return used(ops_); }
  std::span<const entry> parts() const { return used(parts_); }
  const work_cost& total() const { return total_; }
  std::int64_t op_ns() const { return op_ns_; }  ///< between begin and end of ops
  std::int64_t busy_ns() const { return busy_ns_.load(); }  ///< inside kernels, of all threads

  /// Counts the work of steps that only decode, which then leave no trace here; null: all together.
  work_meter* decode = nullptr;

  void clear() {
    ops_ = {};
    parts_ = {};
    total_ = {};
    op_ns_ = 0;
    busy_ns_ = 0;
  }

private:
  static constexpr std::size_t most = 64;
  using table = std::array<entry, most>;

  static void add(table& to, const char* name, std::int64_t ns, const work_cost& cost) {
    for (auto& it : to) {
      if (it.name != nullptr && it.name != name) continue;
      it.name = name;
      ++it.calls;
      it.ns += ns;
      it.cost += cost;
      return;
    }
  }
  static std::span<const entry> used(const table& from) {
    std::size_t count = 0;
    while (count < most && from[count].name != nullptr) ++count;
    return {from.data(), count};
  }

  table ops_, parts_;
  const char* part_ = "other";
  work_cost total_;
  std::int64_t op_ns_ = 0;
  std::atomic<std::int64_t> busy_ns_{0};
};

}  // namespace deepinfer
