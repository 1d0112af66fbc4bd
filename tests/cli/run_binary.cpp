#include "tests/cli/run_binary.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "runtime/base/check.hpp"
#include "runtime/base/file.hpp"
#include "tests/support/temp_directory.hpp"

extern char** environ;

namespace deepinfer {

namespace {

std::vector<std::string> environment_of(const run_options& options) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, "DEEPINFER_", 10) != 0) entries.emplace_back(*entry);
  for (const auto& [name, value] : options.environment) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

/// The exit code, or -1 after a signal or the time limit.
int wait_for(pid_t child) {
  constexpr int limit_ms = 60'000;
  // Debian 12's header declares pidfd_open without C linkage.
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  DI_CHECK(handle >= 0, "pidfd_open: {}", std::strerror(errno));
  pollfd ended{.fd = handle, .events = POLLIN, .revents = 0};
  if (poll(&ended, 1, limit_ms) != 1) kill(child, SIGKILL);
  close(handle);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

run_result run_binary(const std::vector<std::string>& args, const run_options& options) {
  const temp_directory place;
  place.write("in", options.input);
  const auto out = options.out_path.empty() ? place.file("out") : options.out_path;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, place.file("in").c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const auto err = options.err_path.empty() ? place.file("err") : options.err_path;
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY,
                                   0600);
  for (const int stream : options.closed) posix_spawn_file_actions_addclose(&files, stream);
  std::vector<std::string> words{DI_BINARY};
  words.insert(words.end(), args.begin(), args.end());
  auto variables = environment_of(options);
  pid_t child = 0;
  const int failed = posix_spawn(&child, DI_BINARY, &files, nullptr, pointers(words).data(),
                                 pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  DI_CHECK(failed == 0, "cannot start {}: {}", DI_BINARY, std::strerror(failed));
  run_result done;
  done.code = wait_for(child);
  if (options.out_path.empty()) done.out = read_file(out).value();
  if (options.err_path.empty()) done.err = read_file(err).value();
  return done;
}

bool holds(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return true;
  fmt::print(stderr, "not found: {}\nin: {}\n", part, text);
  return false;
}

}  // namespace deepinfer
