/// What is logged while this lives: stderr goes to a file, and the log says what it would say to an
/// operator.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/check.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/log.hpp"
#include "tests/support/temp_directory.hpp"

namespace deepinfer {

class captured_log {
public:
  captured_log() {
    std::fflush(stderr);
    before_ = ::dup(STDERR_FILENO);
    auto* file = std::fopen(path().c_str(), "w");
    DI_CHECK(before_ >= 0 && file != nullptr, "cannot write {}", path());
    ::dup2(::fileno(file), STDERR_FILENO);
    std::fclose(file);
    configure_log(severity::info, false);
  }
  ~captured_log() {
    std::fflush(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }
  captured_log(const captured_log&) = delete;
  captured_log& operator=(const captured_log&) = delete;

  /// Lines with these words in them, so far.
  std::vector<std::string> lines(const std::string& words) const {
    std::fflush(stderr);
    std::istringstream in(read_file(path()).value_or(""));
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);)
      if (line.find(words) != std::string::npos) out.push_back(line);
    return out;
  }

private:
  std::string path() const { return place_.file("log"); }

  temp_directory place_;
  int before_ = -1;
};

}  // namespace deepinfer
