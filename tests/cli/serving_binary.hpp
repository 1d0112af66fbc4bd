/// The binary as a server: started on free ports, asked, signalled, waited for. What it writes to
/// stderr is read as it comes. Killed where a test leaves it running.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_directory.hpp"

namespace deepinfer {

class serving_binary {
public:
  /// `deepinfer ARGS...`; only the DEEPINFER_ variables given are set, as NAME=VALUE.
  explicit serving_binary(const std::vector<std::string>& args,
                          const std::vector<std::string>& variables = {});
  ~serving_binary();
  serving_binary(const serving_binary&) = delete;
  serving_binary& operator=(const serving_binary&) = delete;

  /// Waits until a line of stderr holds `text`; false where the process ended without one.
  bool wait_for_line(std::string_view text);
  /// Of the line "Ready: http://HOST:PORT".
  std::uint16_t http_port() const;
  /// What stands behind `before` in stderr, as a port.
  std::optional<std::uint16_t> port_behind(std::string_view before) const;

  void signal(int number) const;
  /// Waits for its end: the exit code, or -1 after a signal.
  int wait();

  const std::string& err() const { return err_; }

private:
  bool read_more();

  pid_t child_ = -1;
  int errors_ = -1;
  std::string err_;
};

/// Where it is written, a script of answers that go on, a token every 20 ms: what is asked is still
/// running when a test looks.
std::string slow_script(const temp_directory& place);

/// A POST of a JSON body, as bytes.
std::string post_request(const std::string& path, const std::string& body);

/// `serve` with the embedded model on free ports, few threads and little memory.
std::vector<std::string> serve_args(std::vector<std::string> more = {});

}  // namespace deepinfer
