/// What the machine of the hash model saw go wrong: a list of named errors.
///
/// Names are those of scenarios 6; a text names step, sequence, place and both values. At most 100
/// errors are kept, all are counted. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

struct canary_error {
  std::string name;  ///< e.g. "canary_mismatch"
  std::string text;  ///< step, sequence, place, found, expected
};

class canary_log {
public:
  void add(std::string_view name, std::string text);
  std::vector<canary_error> errors() const;
  std::uint64_t count() const;
  void clear();

private:
  mutable std::mutex mutex_;
  std::vector<canary_error> errors_;
  std::uint64_t count_ = 0;
};

}  // namespace deepinfer
