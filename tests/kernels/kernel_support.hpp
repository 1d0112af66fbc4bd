/// What the kernel tests share: seeded noise, batches of mixed rows, and every team an op must give
/// the same bits on (one thread, three real threads, and three parts run last to first).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "kernels/common/batch.hpp"
#include "kernels/common/formats.hpp"
#include "kernels/ops.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer::kernels {

using floats = std::vector<float>;
using ints = std::vector<std::int32_t>;

inline std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

/// Values in (-scale, scale).
inline floats noise(std::uint64_t seed, std::int64_t count, float scale = 1) {
  floats out(size(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto word = static_cast<std::uint32_t>(split_mix64(seed * 1000003 + i) >> 32);
    out[i] = static_cast<float>(2.0 * unit_real(word) - 1.0) * scale;
  }
  return out;
}

/// A thread per part.
class threads_team final : public thread_team {
public:
  explicit threads_team(std::int32_t threads) : threads_(threads) {}
  std::int32_t threads() const override { return threads_; }
  void run(std::int32_t parts, task work, void* context) override {
    std::vector<std::jthread> running;
    for (std::int32_t part = 0; part < parts; ++part)
      running.emplace_back([=] { work(context, part, parts); });
  }

private:
  std::int32_t threads_;
};

/// The calling thread alone, parts last to first.
class last_first_team final : public thread_team {
public:
  std::int32_t threads() const override { return 3; }
  void run(std::int32_t parts, task work, void* context) override {
    for (auto part = parts - 1; part >= 0; --part) work(context, part, parts);
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// run(stream) on every team; all give the same bits, which are returned.
template <class Run>
auto on_every_team(Run&& run) {
  inline_team alone;
  threads_team three(3);
  last_first_team last_first;
  const auto first = run(stream_ref{});
  CHECK(same_bits(run(stream_ref{&alone}), first));
  CHECK(same_bits(run(stream_ref{&three}), first));
  CHECK(same_bits(run(stream_ref{&last_first}), first));
  return first;
}

/// [begin, begin + count) of rows of `dim`.
inline floats rows_of(const floats& x, std::int64_t begin, std::int64_t count, std::int64_t dim) {
  return {x.begin() + begin * dim, x.begin() + (begin + count) * dim};
}

/// Largest |a - b|; NaN anywhere gives infinity.
inline double distance(const floats& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - b[i]);
    most = d <= most ? most : d == d ? d : std::numeric_limits<double>::infinity();
  }
  return most;
}

inline double distance(const floats& a, const floats& b) {
  return distance(a, std::vector<double>(b.begin(), b.end()));
}

/// bf16 numbers between a and b.
inline int bf16_steps(float a, float b) {
  const auto order = [](float v) {
    const auto code = static_cast<int>(bf16_encode(v));
    return code & 0x8000 ? 0x8000 - code : code;
  };
  return std::abs(order(a) - order(b));
}

/// A step's tokens with storage: rows of sequences and padding, in the order they are added.
struct test_batch {
  std::int32_t slots = 4, max_blocks = 8, block_size = 8;
  ints slot, position, first_token, first_position, table;

  test_batch() { make_table(); }
  test_batch(std::int32_t slot_count, std::int32_t blocks, std::int32_t tokens_per_block)
    : slots(slot_count),
      max_blocks(blocks),
      block_size(tokens_per_block) {
    make_table();
  }

  test_batch& row(std::int32_t slot_id, std::int32_t begin, std::int32_t count) {
    const auto first = static_cast<std::int32_t>(slot.size());
    for (std::int32_t i = 0; i < count; ++i) {
      slot.push_back(slot_id);
      position.push_back(begin + i);
      first_token.push_back(first);
      first_position.push_back(begin);
    }
    return *this;
  }

  test_batch& padding(std::int32_t count) {
    for (std::int32_t i = 0; i < count; ++i) {
      slot.push_back(i % 2 ? -1 : 0);
      position.push_back(i % 2 ? 3 : -1);
      first_token.push_back(-1);
      first_position.push_back(-1);
    }
    return *this;
  }

  std::int64_t tokens() const { return static_cast<std::int64_t>(slot.size()); }
  std::int64_t blocks() const { return std::int64_t{slots} * max_blocks; }

  batch_view view() const {
    return {static_cast<std::int32_t>(slot.size()),
            slot.data(),
            position.data(),
            first_token.data(),
            first_position.data(),
            table.data(),
            max_blocks,
            block_size};
  }

private:
  /// No two entries share a block, and neighbours are far apart.
  void make_table() {
    const auto count = slots * max_blocks;
    table.resize(size(count));
    for (std::int32_t i = 0; i < count; ++i) table[size(i)] = (i * 7 + 3) % count;
    if (count % 7 == 0)
      for (std::int32_t i = 0; i < count; ++i) table[size(i)] = count - 1 - i;
  }
};

}  // namespace deepinfer::kernels
