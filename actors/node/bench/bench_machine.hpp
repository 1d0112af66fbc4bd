/// The machine that numbers are measured on: what it is, and what it does at most, measured in the
/// same run.
///
/// JSON of machine_object: {"cpu": text, "cores", "memory_bytes", "huge_pages": text ("always",
/// "madvise", "never"; "" unknown), "load_average": of the last minute at the start}.
/// JSON of rates_object: {"threads", "isa", "read_bytes_per_second", "f32_flops_per_second",
/// "int8_ops_per_second"}, the last three summaries (bench_statistics.hpp) whose `max` is the rate
/// that shares refer to: what slows a probe down is never the machine's limit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/node/bench/bench_statistics.hpp"
#include "kernels/isa.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer {

struct machine_facts {
  std::string cpu;
  std::int32_t cores = 1;
  std::int64_t memory_bytes = 0;
  std::string huge_pages;
  double load_average = 0.0;
};

machine_facts facts_of_machine();
json::object machine_object(const machine_facts& facts);
/// "AMD EPYC ..., 2 cores, 23.4 GiB, huge pages madvise, load 0.3".
std::string machine_line(const machine_facts& facts);

/// Zeroed memory in huge pages where the system grants them; move-only.
class huge_memory {
public:
  /// Error no_device: the memory is not to be had.
  static result<huge_memory> map(std::size_t bytes);

  huge_memory() = default;
  huge_memory(huge_memory&& other) noexcept;
  huge_memory& operator=(huge_memory&& other) noexcept;
  ~huge_memory();

  std::byte* data() { return data_; }
  std::size_t size() const { return size_; }

private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapped_ = nullptr;
  std::size_t mapped_size_ = 0;
};

/// What work needs at least, and which limit says so.
struct work_bound {
  double seconds = 0.0;
  const char* by = "";  ///< "bandwidth", "f32", "int8"; "" where no work is known
};

/// Rates of one team, from every probe so far.
struct machine_rates {
  std::int32_t threads = 1;
  sample_list read, f32, int8;  ///< bytes, flops, int8 operations per second

  /// max(bytes / read, flops / f32 + int8_ops / int8) with the best of each.
  work_bound bound(const work_cost& cost) const;
};
json::object rates_object(const machine_rates& rates);
/// "limits of 2 threads, best (and median) of 12 probes in this run:" and a line "read 44.1 (42.0)
/// GB/s, f32 196.3 (190.1) GFLOP/s, int8 267.0 (266.1) GOP/s".
std::string rates_text(const machine_rates& rates);

/// Measures rates. A probe takes some 30 ms and reads the clock around work of known size.
class machine_probe {
public:
  /// Error no_device: no memory.
  static result<machine_probe> make();

  /// Adds one measurement of each rate, on `team`.
  void run(thread_team& team, machine_rates& rates);

private:
  machine_probe() = default;
  huge_memory words_;
  std::vector<std::int8_t> weights_;
  std::vector<float> f32_;
  std::vector<std::uint32_t> int8_;
};

}  // namespace deepinfer
