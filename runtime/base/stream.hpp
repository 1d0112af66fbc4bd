/// What a kernel is called with besides its arguments: the stream it runs on.
///
/// On the CPU that is a team of kernel threads; on CUDA the native stream. Kernels never create
/// threads and never allocate: scratch memory is an argument.
#pragma once

#include <cstdint>

#include "runtime/base/work_meter.hpp"

namespace deepinfer {

/// Runs one parallel region at a time. `run` returns when every part is done.
class thread_team {
public:
  using task = void (*)(void* context, std::int32_t part, std::int32_t parts);

  virtual ~thread_team() = default;

  /// How many parts run at the same time; >= 1.
  virtual std::int32_t threads() const = 0;

  /// Calls task(context, part, parts) for every part in [0, parts), the caller's thread included.
  /// Which thread runs a part is not fixed, so a part's result must not depend on it.
  virtual void run(std::int32_t parts, task work, void* context) = 0;
};

/// The calling thread alone.
class inline_team final : public thread_team {
public:
  std::int32_t threads() const override;
  void run(std::int32_t parts, task work, void* context) override;
};

struct stream_ref {
  static constexpr std::int32_t ranges_per_thread = 2;

  thread_team* team = nullptr;  ///< CPU devices; null elsewhere
  void* native = nullptr;       ///< cudaStream_t on CUDA; null elsewhere
  work_meter* meter = nullptr;  ///< null: nothing is measured

  /// Calls body(begin, end) over [0, count), cut into even ranges, a few per thread of the team:
  /// where a thread loses its core for a moment, others take over what it has not begun. The cut
  /// depends on the number of threads: results must not depend on the cut.
  template <class Body>
  void for_ranges(std::int64_t count, Body&& body) const {
    if (count <= 0) return;
    const auto threads = team ? team->threads() : 1;
    const auto most = threads > 1 ? threads * ranges_per_thread : 1;
    const auto parts = static_cast<std::int32_t>(count < most ? count : most);
    struct region {
      Body* body;
      std::int64_t count;
      work_meter* meter;
    } shared{&body, count, meter};
    const auto run_part = [](void* context, std::int32_t part, std::int32_t part_count) {
      const auto& it = *static_cast<region*>(context);
      const auto began = it.meter ? work_meter::now_ns() : 0;
      (*it.body)(it.count * part / part_count, it.count * (part + 1) / part_count);
      if (it.meter) it.meter->add_busy(work_meter::now_ns() - began);
    };
    if (parts == 1)
      run_part(&shared, 0, 1);
    else
      team->run(parts, run_part, &shared);
  }
};

}  // namespace deepinfer
