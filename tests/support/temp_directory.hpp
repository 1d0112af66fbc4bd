/// A fresh directory below the system's temporary one, removed with everything in it at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/base/check.hpp"
#include "runtime/base/file.hpp"

namespace deepinfer {

class temp_directory {
public:
  temp_directory() {
    auto pattern = (std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX").string();
    DI_CHECK(::mkdtemp(pattern.data()) != nullptr, "cannot create {}", pattern);
    path_ = pattern;
  }
  temp_directory(const temp_directory&) = delete;
  temp_directory& operator=(const temp_directory&) = delete;
  ~temp_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, std::string_view content) const {
    const auto written = write_file(file(name), content);
    DI_CHECK(written.has_value(), "{}", written.error().message);
  }

private:
  std::string path_;
};

}  // namespace deepinfer
