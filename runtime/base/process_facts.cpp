#include "runtime/base/process_facts.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include <sys/resource.h>
#include <unistd.h>

namespace deepinfer {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Fields of /proc/self/stat from the state on: the name before it may hold anything.
std::vector<std::string> stat_fields() {
  const auto line = first_line("/proc/self/stat");
  const auto end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 1));
  std::vector<std::string> out;
  for (std::string field; rest >> field;) out.push_back(field);
  return out;
}

double number_of(const std::vector<std::string>& fields, std::size_t at) {
  double out = 0.0;
  if (at < fields.size()) std::istringstream(fields[at]) >> out;
  return out;
}

/// Seconds since 1970 at which the system was started.
double boot_seconds() {
  std::ifstream file("/proc/stat");
  for (std::string name; file >> name;) {
    double seconds = 0.0;
    if (name == "btime" && file >> seconds) return seconds;
    file.ignore(1 << 20, '\n');
  }
  return 0.0;
}

double open_files() {
  std::error_code failed;
  std::filesystem::directory_iterator it("/proc/self/fd", failed);
  double count = 0.0;
  for (; !failed && it != std::filesystem::directory_iterator(); it.increment(failed)) ++count;
  return count > 0.0 ? count - 1.0 : 0.0;  // the one that looks
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double file_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::vector<process_fact> process_facts() {
  // Counted from the state, field 3 of proc(5).
  constexpr std::size_t start_ticks = 22 - 3, virtual_bytes = 23 - 3, resident_pages = 24 - 3;
  const auto fields = stat_fields();
  static const auto booted = boot_seconds();
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return {
    {"process_cpu_seconds_total", "CPU time of the process, user and system", true, cpu_seconds()},
    {"process_resident_memory_bytes", "Memory of the process in RAM", false,
     number_of(fields, resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE))},
    {"process_virtual_memory_bytes", "Address space of the process", false,
     number_of(fields, virtual_bytes)},
    {"process_open_fds", "Open files and sockets", false, open_files()},
    {"process_max_fds", "Most files and sockets that may be open", false, file_limit()},
    {"process_start_time_seconds", "When the process started, in seconds since 1970", false,
     booted + number_of(fields, start_ticks) / ticks},
  };
}

}  // namespace deepinfer
