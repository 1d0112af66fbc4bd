#include "actors/node/bench/bench_machine.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "kernels/peak/peak.hpp"
#include "runtime/base/file.hpp"
#include "runtime/model/memory_plan.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t probe_bytes = std::size_t{256} << 20;  // far more than any cache

/// The value of the first line "name : value" of a file, or "".
std::string value_of(const std::string& path, std::string_view name) {
  const auto text = read_file(path).value_or("");
  const auto line = text.find(std::string(name));
  if (line == std::string::npos) return "";
  const auto colon = text.find(':', line);
  const auto end = text.find('\n', line);
  if (colon == std::string::npos || colon > end) return "";
  const auto begin = text.find_first_not_of(" \t", colon + 1);
  return begin >= end ? "" : text.substr(begin, end - begin);
}

/// "[madvise]" among the choices.
std::string huge_page_policy() {
  const auto text = read_file("/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
  const auto begin = text.find('['), end = text.find(']');
  return begin < end && end != std::string::npos ? text.substr(begin + 1, end - begin - 1) : "";
}

template <class Work>
double seconds_of(Work&& work) {
  const auto begin = work_meter::now_ns();
  work();
  return 1e-9 * static_cast<double>(std::max<std::int64_t>(1, work_meter::now_ns() - begin));
}

}  // namespace

machine_facts facts_of_machine() {
  machine_facts facts;
  facts.cpu = value_of("/proc/cpuinfo", "model name");
  if (facts.cpu.empty()) facts.cpu = "unknown";
  facts.cores = static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
  facts.memory_bytes = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
  facts.huge_pages = huge_page_policy();
  double load = 0.0;
  if (::getloadavg(&load, 1) == 1) facts.load_average = load;
  return facts;
}

json::object machine_object(const machine_facts& facts) {
  return {{"cpu", facts.cpu},
          {"cores", facts.cores},
          {"memory_bytes", facts.memory_bytes},
          {"huge_pages", facts.huge_pages},
          {"load_average", facts.load_average}};
}

std::string machine_line(const machine_facts& facts) {
  return fmt::format("{}, {} cores, {}, huge pages {}, load {:.1f}", facts.cpu, facts.cores,
                     bytes_text(facts.memory_bytes),
                     facts.huge_pages.empty() ? "unknown" : facts.huge_pages, facts.load_average);
}

result<huge_memory> huge_memory::map(std::size_t bytes) {
  huge_memory out;
  out.mapped_size_ = bytes + huge_page;
  void* at = ::mmap(nullptr, out.mapped_size_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    return fail(errc::no_device, fmt::format("cannot map {} bytes: {}", bytes, strerror(errno)));
  out.mapped_ = at;
  void* aligned = at;
  auto space = out.mapped_size_;
  out.data_ = static_cast<std::byte*>(std::align(huge_page, bytes, aligned, space));
  out.size_ = bytes;
  // Refused where the system has none: the memory works all the same.
  static_cast<void>(::madvise(out.data_, bytes, MADV_HUGEPAGE));
  return out;
}

huge_memory::huge_memory(huge_memory&& other) noexcept {
  *this = std::move(other);
}

huge_memory& huge_memory::operator=(huge_memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_size_, other.mapped_size_);
  return *this;
}

huge_memory::~huge_memory() {
  if (mapped_) ::munmap(mapped_, mapped_size_);
}

work_bound machine_rates::bound(const work_cost& cost) const {
  const auto time = [](std::int64_t work, const sample_list& rate) {
    return work == 0 ? 0.0 : static_cast<double>(work) / rate.max();
  };
  const double reading = time(cost.bytes, read);
  const double f32_time = time(cost.flops, f32), int8_time = time(cost.int8_ops, int8);
  const double computing = f32_time + int8_time;
  if (reading == 0.0 && computing == 0.0) return {};
  if (reading >= computing) return {reading, "bandwidth"};
  return {computing, int8_time > f32_time ? "int8" : "f32"};
}

json::object rates_object(const machine_rates& rates) {
  return {{"threads", rates.threads},
          {"isa", kernels::name_of(kernels::best_isa())},
          {"read_bytes_per_second", summary_of(rates.read)},
          {"f32_flops_per_second", summary_of(rates.f32)},
          {"int8_ops_per_second", summary_of(rates.int8)}};
}

std::string rates_text(const machine_rates& rates) {
  const auto text = [](const sample_list& it) {
    return fmt::format("{:.1f} ({:.1f})", it.max() / 1e9, it.median() / 1e9);
  };
  return fmt::format("limits of {} thread{}, best (and median) of {} probes in this run:\n"
                     "  read {} GB/s, f32 {} GFLOP/s, int8 {} GOP/s",
                     rates.threads, rates.threads == 1 ? "" : "s", rates.read.count(),
                     text(rates.read), text(rates.f32), text(rates.int8));
}

result<machine_probe> machine_probe::make() {
  machine_probe out;
  DI_TRY(out.words_, huge_memory::map(probe_bytes));
  std::memset(out.words_.data(), 1, probe_bytes);
  out.weights_.assign(static_cast<std::size_t>(kernels::int8_peak_weights), 3);
  return out;
}

void machine_probe::run(thread_team& team, machine_rates& rates) {
  const auto& loops = kernels::cpu_peak(kernels::best_isa());
  const stream_ref stream{.team = &team};
  const std::int64_t threads = team.threads();
  rates.threads = team.threads();
  std::uint64_t sum = 0;
  const kernels::read_peak_args read{reinterpret_cast<const std::uint64_t*>(words_.data()),
                                     static_cast<std::int64_t>(words_.size() / 8), &sum};
  rates.read.add(static_cast<double>(read.bytes()) / seconds_of([&] { loops.read(stream, read); }));

  f32_.resize(static_cast<std::size_t>(threads));
  const kernels::fma_peak_args f32{threads, 2'000'000, f32_.data()};
  rates.f32.add(static_cast<double>(f32.flops()) / seconds_of([&] { loops.fma(stream, f32); }));

  int8_.resize(static_cast<std::size_t>(threads));
  const kernels::int8_peak_args int8{weights_.data(), threads, 40'000, int8_.data()};
  rates.int8.add(static_cast<double>(int8.int8_ops()) /
                 seconds_of([&] { loops.int8(stream, int8); }));
}

}  // namespace deepinfer
