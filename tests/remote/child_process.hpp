/// Other processes of these tests: this binary again, as a node or as a client of one.
///
/// A child speaks in lines over pipes: it is given commands, and answers with lines that begin with
/// "@ ". It ends when its commands do, so that none outlives a test that failed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace deepinfer::test {

using child_settings = std::map<std::string, std::string>;

class child_process {
public:
  /// Starts the binary in a role ("node", "client") with these settings (see child_roles_test.cpp).
  child_process(const std::string& role, const child_settings& settings);
  ~child_process();
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;

  void tell(const std::string& command) const;
  /// The next answer, without its mark. Fails the test where none comes in time.
  std::string read();
  std::string ask(const std::string& command);

  void signal(int number) const;
  /// Kills it, as a crash would, and waits until it is gone.
  void kill();

private:
  pid_t pid_ = -1;
  int commands_ = -1;
  int answers_ = -1;
  std::string unread_;
};

/// Asks again, with a short rest between, until it is so; false when it is not within a minute.
bool eventually(const std::function<bool()>& is_so);

/// A node in a process of its own, whose port is known and whose engine is ready, or loading.
struct node_process {
  explicit node_process(child_settings settings = {});

  std::uint16_t port = 0;
  child_process process;

private:
  static child_settings with_defaults(child_settings given);
};

}  // namespace deepinfer::test
