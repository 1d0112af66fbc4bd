#include "runtime/base/file.hpp"

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace deepinfer {
namespace {

tl::unexpected<error> system_error(const std::string& path) {
  return fail(errc::io_failed, path + ": " + std::strerror(errno));
}

/// Closes on every path.
struct descriptor {
  explicit descriptor(int number) : fd(number) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

/// Sizes that a file system tells may be wrong (/proc): what is read counts.
result<std::string> read_all(const descriptor& file, const std::string& path, std::size_t most) {
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const auto got = ::read(file.fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path);
    if (got == 0) return content;
    content.append(buffer, static_cast<std::size_t>(got));
    if (content.size() > most)
      return fail(errc::io_failed, path + ": found a file of more than " + std::to_string(most) +
                                     " bytes, expected at most so many");
  }
}

}  // namespace

result<std::string> read_file(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return system_error(path);
  return read_all(file, path, std::numeric_limits<std::size_t>::max());
}

result<std::string> read_small_file(const std::string& path, std::int64_t most_bytes) {
  // Without O_NONBLOCK the open of a pipe that nobody writes would wait.
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return system_error(path);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) return system_error(path);
  if (!S_ISREG(status.st_mode)) return fail(errc::io_failed, path + ": not a regular file");
  return read_all(file, path, static_cast<std::size_t>(most_bytes));
}

result<void> write_file(const std::string& path, std::string_view content) {
  const descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.fd < 0) return system_error(path);
  while (!content.empty()) {
    const auto put = ::write(file.fd, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(path);
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

result<mapped_file> mapped_file::open(const std::string& path) {
  const descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return system_error(path);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) return system_error(path);
  if (!S_ISREG(status.st_mode)) return fail(errc::io_failed, path + ": not a regular file");
  mapped_file mapped;
  mapped.size_ = static_cast<std::size_t>(status.st_size);
  if (mapped.size_ == 0) return mapped;
  void* address = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) {
    mapped.size_ = 0;
    return system_error(path);
  }
  mapped.data_ = static_cast<const std::byte*>(address);
  return mapped;
}

mapped_file::mapped_file(mapped_file&& other) noexcept
  : data_(std::exchange(other.data_, nullptr)),
    size_(std::exchange(other.size_, 0)) {}

mapped_file& mapped_file::operator=(mapped_file&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

mapped_file::~mapped_file() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace deepinfer
