#include "runtime/model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/json.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t length_field_bytes = 8;
constexpr std::uint64_t max_header_bytes = 100'000'000;
constexpr std::size_t max_dimensions = 16;
constexpr std::size_t max_header_depth = 8;

constexpr std::array all_dtypes{dtype::f32,     dtype::f64,     dtype::bf16,   dtype::f16,
                                dtype::f8_e4m3, dtype::f8_e8m0, dtype::i8,     dtype::u8,
                                dtype::i32,     dtype::i64,     dtype::boolean};

std::optional<dtype> dtype_of(std::string_view name) {
  for (const auto type : all_dtypes)
    if (name_of(type) == name) return type;
  return std::nullopt;
}

std::string dtype_names() {
  std::vector<std::string_view> names;
  for (const auto type : all_dtypes) names.push_back(name_of(type));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// A whole number of at most 2^62, so that sums of two fit.
std::optional<std::uint64_t> whole(const json::value& value) {
  constexpr std::int64_t most = std::int64_t{1} << 62;
  if (!value.is_int64()) return std::nullopt;  // larger ones arrive as uint64 or double
  const auto number = value.get_int64();
  if (number < 0 || number > most) return std::nullopt;
  return static_cast<std::uint64_t>(number);
}

/// Shape times element size, or nothing if that is beyond 2^62.
std::optional<std::uint64_t> bytes_of(const tensor_view& view) {
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  // Zero extents are left out first: what is read later multiplies from the left.
  std::uint64_t bytes = size_of(view.type);
  bool is_empty = false;
  for (const auto extent : view.shape) {
    const auto factor = static_cast<std::uint64_t>(extent);
    is_empty = is_empty || factor == 0;
    if (factor > 1 && bytes > most / factor) return std::nullopt;
    if (factor > 1) bytes *= factor;
  }
  if (is_empty) return 0;
  return bytes;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string short_value(const json::value* value) {
  return value ? printable(to_text(*value)) : "nothing";
}

struct header_entry {
  tensor_view view;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct entry_fault {
  std::string found;
  std::string expected;
};

/// One entry of the header; the fault tells what of it is wrong.
tl::expected<header_entry, entry_fault> read_entry(const json::value& value) {
  const auto fault = [](const json::value* found, const char* key, std::string expected) {
    return tl::unexpected<entry_fault>({fmt::format("{} {}", key, short_value(found)), expected});
  };
  if (!value.is_object())
    return fault(&value, "entry", "an object with dtype, shape, data_offsets");
  const auto& object = value.get_object();
  header_entry entry;
  const auto* type = object.if_contains("dtype");
  const auto known = type && type->is_string() ? dtype_of(type->get_string()) : std::nullopt;
  if (!known) return fault(type, "dtype", "one of " + dtype_names());
  entry.view.type = *known;
  const auto* shape = object.if_contains("shape");
  if (!shape || !shape->is_array() || shape->get_array().size() > max_dimensions)
    return fault(shape, "shape", fmt::format("a list of at most {} numbers", max_dimensions));
  for (const auto& extent : shape->get_array()) {
    const auto number = whole(extent);
    if (!number) return fault(shape, "shape", "whole numbers from 0 to 2^62");
    entry.view.shape.push_back(static_cast<std::int64_t>(*number));
  }
  const auto* offsets = object.if_contains("data_offsets");
  if (!offsets || !offsets->is_array() || offsets->get_array().size() != 2)
    return fault(offsets, "data_offsets", "[begin, end]");
  const auto begin = whole(offsets->get_array()[0]), end = whole(offsets->get_array()[1]);
  if (!begin || !end || *begin > *end)
    return fault(offsets, "data_offsets", "0 <= begin <= end, whole numbers");
  entry.begin = *begin;
  entry.end = *end;
  const auto bytes = bytes_of(entry.view);
  if (!bytes) return fault(shape, "shape", "a product that fits 2^62 bytes");
  if (*bytes != entry.end - entry.begin)
    return fault(offsets, "data_offsets",
                 fmt::format("{} bytes, for {} {}", *bytes, name_of(entry.view.type),
                             shape_text(entry.view.shape)));
  return entry;
}

}  // namespace

bool is_lfs_pointer(std::string_view content) {
  return content.starts_with("version https://git-lfs");
}

std::string printable(std::string_view name) {
  constexpr std::size_t most = 200;
  std::string text(name.substr(0, most));
  for (auto& c : text)
    if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte == 0x7F) c = '?';
  return name.size() > most ? text + "..." : text;
}

result<tensor_file> tensor_file::open(const std::string& path) {
  auto mapping = mapped_file::open(path);
  if (!mapping)
    return fail(errc::bad_checkpoint, mapping.error().message + ": expected a safetensors file");
  auto file = parse(mapping->bytes(), std::filesystem::path(path).filename().string());
  if (file) file->mapping_ = *std::move(mapping);
  return file;
}

result<tensor_file> tensor_file::parse(std::span<const std::byte> bytes, std::string label) {
  tensor_file file;
  file.label_ = std::move(label);
  file.file_bytes_ = bytes.size();
  if (auto read = file.read_header(bytes); !read)
    return tl::unexpected<error>(std::move(read).error().within(file.label_));
  return file;
}

tl::unexpected<error> tensor_file::refuse(std::string_view tensor, const std::string& found,
                                          const std::string& expected) const {
  const auto where = tensor.empty() ? std::string() : "tensor " + printable(tensor) + ": ";
  return fail(errc::bad_checkpoint, fmt::format("{}found {}, expected {}", where, found, expected));
}

result<void> tensor_file::read_header(std::span<const std::byte> bytes) {
  if (is_lfs_pointer(text_of(bytes)))
    return refuse("", "a Git-LFS pointer", "the file itself: fetch it with `git lfs pull`");
  if (bytes.size() < length_field_bytes)
    return refuse("", fmt::format("{} bytes", bytes.size()),
                  fmt::format("at least the {} of the header's length", length_field_bytes));
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < length_field_bytes; ++i)
    header_bytes |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  const auto rest = bytes.subspan(length_field_bytes);
  const auto limit = std::min<std::uint64_t>(rest.size(), max_header_bytes);
  if (header_bytes > limit)
    return refuse("", fmt::format("a header length of {} bytes", header_bytes),
                  fmt::format("at most {}, in a file of {}", limit, bytes.size()));
  const auto header = static_cast<std::size_t>(header_bytes);
  DI_TRY_VOID(read_entries(text_of(rest.first(header))));
  const auto data = rest.subspan(header);
  DI_TRY_VOID(check_layout(data.size()));
  make_views(data);
  return {};
}

result<void> tensor_file::read_entries(std::string_view header) {
  const auto document = parse_json(header, max_header_depth);
  if (!document)
    return refuse("", "a header that is no JSON: " + document.error().message, "a JSON object");
  if (!document->is_object())
    return refuse("", "header " + short_value(&*document), "a JSON object");
  if (const auto key = repeated_key(header); !key.empty())
    return refuse(key, "its name twice in the header", "each name once");
  for (const auto& item : document->get_object()) {
    const std::string name(item.key().data(), item.key().size());
    if (name == "__metadata__") {
      if (!item.value().is_object())
        return refuse(name, short_value(&item.value()), "an object of strings");
      for (const auto& note : item.value().get_object()) {
        if (!note.value().is_string())
          return refuse(name, short_value(&note.value()), "an object of strings");
        metadata_.emplace(std::string(note.key()), std::string(note.value().get_string()));
      }
      continue;
    }
    auto entry = read_entry(item.value());
    if (!entry) return refuse(name, entry.error().found, entry.error().expected);
    tensors_.push_back({name, std::move(entry->view), entry->begin});
  }
  // Of two that begin alike the shorter comes first: only an empty one is no overlap.
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const stored_tensor& a, const stored_tensor& b) {
                     return std::pair(a.begin, a.view.bytes()) < std::pair(b.begin, b.view.bytes());
                   });
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
  return {};
}

result<void> tensor_file::check_layout(std::uint64_t data_bytes) const {
  std::uint64_t filled = 0;
  for (const auto& tensor : tensors_) {
    const auto end = tensor.begin + tensor.view.bytes();
    if (end > data_bytes)
      return refuse(
        tensor.name, fmt::format("its end at byte {} of the data", end),
        fmt::format("at most {}: the file is truncated or its offsets are wrong", data_bytes));
    if (tensor.begin < filled)
      return refuse(tensor.name, fmt::format("its begin at byte {} of the data", tensor.begin),
                    fmt::format("{}: it overlaps the tensor before it", filled));
    if (tensor.begin > filled)
      return refuse(tensor.name, fmt::format("its begin at byte {} of the data", tensor.begin),
                    fmt::format("{}: there is a hole before it", filled));
    filled = end;
  }
  if (filled == data_bytes) return {};
  return refuse("", fmt::format("{} bytes of data", data_bytes),
                fmt::format("{}, the end of the last tensor", filled));
}

void tensor_file::make_views(std::span<const std::byte> data) {
  for (auto& tensor : tensors_) {
    auto& view = tensor.view;
    view.data = data.data() + tensor.begin;
    const auto bytes = view.bytes();
    if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.type) == 0 || bytes == 0)
      continue;
    auto& copy = copies_.emplace_back(bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(copy.data(), view.data, bytes);
    view.data = reinterpret_cast<const std::byte*>(copy.data());
  }
}

const tensor_view* tensor_file::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second].view;
}

}  // namespace deepinfer
