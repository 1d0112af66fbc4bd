#include "runtime/model/safetensors_writer.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/check.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

tl::unexpected<error> system_error(const std::string& path) {
  return fail(errc::io_failed, path + ": " + std::strerror(errno));
}

/// Length, JSON and padding; `total` becomes the bytes of all data.
std::string header_of(std::span<const tensor_entry> entries, std::uint64_t& total) {
  json::object header;
  total = 0;
  for (const auto& entry : entries) {
    const auto begin = total;
    total += entry.bytes();
    const auto is_new =
      header
        .emplace(entry.name,
                 json::object{{"dtype", name_of(entry.type)},
                              {"shape", json::array(entry.shape.begin(), entry.shape.end())},
                              {"data_offsets", json::array{begin, total}}})
        .second;
    DI_CHECK(is_new, "tensor {} twice", entry.name);
  }
  auto text = to_text(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto length = static_cast<std::uint64_t>(text.size());
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

}  // namespace

tensor_file_writer::tensor_file_writer(std::string path) : path_(std::move(path)) {}

tensor_file_writer::tensor_file_writer(tensor_file_writer&& other) noexcept
  : path_(std::move(other.path_)),
    descriptor_(std::exchange(other.descriptor_, -1)),
    missing_(other.missing_) {}

tensor_file_writer::~tensor_file_writer() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(path_.c_str());
}

result<tensor_file_writer> tensor_file_writer::create(const std::string& path,
                                                      std::span<const tensor_entry> entries) {
  tensor_file_writer made(path);
  const auto header = header_of(entries, made.missing_);
  made.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (made.descriptor_ < 0) return system_error(path);
  DI_TRY_VOID(made.write(std::as_bytes(std::span(header.data(), header.size()))));
  return made;
}

result<void> tensor_file_writer::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(path_);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

result<void> tensor_file_writer::append(std::span<const std::byte> bytes) {
  DI_CHECK(bytes.size() <= missing_, "{}: {} bytes more, {} expected", path_, bytes.size(),
           missing_);
  missing_ -= bytes.size();
  return write(bytes);
}

result<void> tensor_file_writer::finish() {
  DI_CHECK(missing_ == 0, "{}: {} bytes are missing", path_, missing_);
  const auto status = ::close(std::exchange(descriptor_, -1));
  if (status == 0) return {};
  auto problem = system_error(path_);
  ::unlink(path_.c_str());
  return problem;
}

}  // namespace deepinfer
