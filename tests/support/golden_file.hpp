/// Reads golden fixtures in safetensors form, for tests only: trusting, whole file in memory.
///
/// A missing file or tensor fails the test with its name. Values come decoded: floats from F32,
/// BF16, F8_E4M3 and F8_E8M0, integers from I32, I64 and I8; raw bytes for anything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/common/formats.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

class golden_file {
public:
  struct entry {
    std::string type;
    std::vector<std::int64_t> shape;
    std::size_t begin = 0, end = 0;
  };

  explicit golden_file(const std::string& path) : path_(path) {
    auto content = read_file(path);
    DI_CHECK(content.has_value(), "{}", content.error().message);
    data_ = *std::move(content);
    std::uint64_t header = 0;
    std::memcpy(&header, data_.data(), sizeof(header));
    auto parsed = parse_json(std::string_view(data_).substr(8, header));
    DI_CHECK(parsed.has_value(), "{}: {}", path, parsed.error().message);
    for (const auto& [name, value] : parsed->as_object()) {
      if (name == "__metadata__") continue;
      const auto& fields = value.as_object();
      entry it{std::string(fields.at("dtype").as_string()), {}, 0, 0};
      for (const auto& extent : fields.at("shape").as_array())
        it.shape.push_back(extent.to_number<std::int64_t>());
      const auto& offsets = fields.at("data_offsets").as_array();
      it.begin = 8 + header + offsets.at(0).to_number<std::size_t>();
      it.end = 8 + header + offsets.at(1).to_number<std::size_t>();
      entries_.emplace(std::string(name), std::move(it));
    }
  }

  bool has(const std::string& name) const { return entries_.contains(name); }

  const std::map<std::string, entry>& entries() const { return entries_; }

  const entry& at(const std::string& name) const {
    const auto found = entries_.find(name);
    DI_CHECK(found != entries_.end(), "{} has no tensor {}", path_, name);
    return found->second;
  }

  const std::vector<std::int64_t>& shape(const std::string& name) const { return at(name).shape; }

  /// Points into this object; unaligned.
  const std::byte* bytes(const std::string& name) const {
    return reinterpret_cast<const std::byte*>(data_.data() + at(name).begin);
  }

  std::vector<float> floats(const std::string& name) const {
    const auto& it = at(name);
    if (it.type == "F32") return raw<float>(it);
    std::vector<float> out;
    if (it.type == "BF16")
      for (const auto code : raw<std::uint16_t>(it)) out.push_back(kernels::bf16_decode(code));
    else if (it.type == "F8_E4M3")
      for (const auto code : raw<std::uint8_t>(it)) out.push_back(kernels::e4m3_decode(code));
    else if (it.type == "F8_E8M0")
      for (const auto code : raw<std::uint8_t>(it)) out.push_back(kernels::e8m0_decode(code));
    else
      DI_CHECK(false, "{}: {} is {}, not a float", path_, name, it.type);
    return out;
  }

  std::vector<std::int32_t> ints(const std::string& name) const {
    const auto& it = at(name);
    if (it.type == "I32") return raw<std::int32_t>(it);
    std::vector<std::int32_t> out;
    if (it.type == "I64")
      for (const auto value : raw<std::int64_t>(it))
        out.push_back(static_cast<std::int32_t>(value));
    else if (it.type == "I8")
      for (const auto value : raw<std::int8_t>(it)) out.push_back(value);
    else
      DI_CHECK(false, "{}: {} is {}, not an integer", path_, name, it.type);
    return out;
  }

private:
  template <class T>
  std::vector<T> raw(const entry& it) const {
    std::vector<T> out((it.end - it.begin) / sizeof(T));
    std::memcpy(out.data(), data_.data() + it.begin, it.end - it.begin);
    return out;
  }

  std::string path_;
  std::string data_;
  std::map<std::string, entry> entries_;
};

}  // namespace deepinfer
