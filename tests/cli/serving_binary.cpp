#include "tests/cli/serving_binary.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

#include "runtime/base/check.hpp"

extern char** environ;

namespace deepinfer {
namespace {

/// How long a test waits for what must come.
constexpr int patience_ms = 60'000;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

serving_binary::serving_binary(const std::vector<std::string>& args,
                               const std::vector<std::string>& variables) {
  int ends[2];
  DI_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", std::strerror(errno));
  errors_ = ends[0];
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], 2);
  std::vector<std::string> words{DI_BINARY};
  words.insert(words.end(), args.begin(), args.end());
  auto entries = variables;
  for (char** entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, "DEEPINFER_", 10) != 0) entries.emplace_back(*entry);
  const int failed = posix_spawn(&child_, DI_BINARY, &files, nullptr, pointers(words).data(),
                                 pointers(entries).data());
  posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  DI_CHECK(failed == 0, "cannot start {}: {}", DI_BINARY, std::strerror(failed));
}

serving_binary::~serving_binary() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  ::close(errors_);
}

bool serving_binary::read_more() {
  pollfd readable{.fd = errors_, .events = POLLIN, .revents = 0};
  if (::poll(&readable, 1, patience_ms) != 1) return false;
  char buffer[4096];
  const auto size = ::read(errors_, buffer, sizeof buffer);
  if (size <= 0) return false;
  err_.append(buffer, static_cast<std::size_t>(size));
  return true;
}

bool serving_binary::wait_for_line(std::string_view text) {
  while (true) {
    const auto found = err_.find(text);
    if (found != std::string::npos && err_.find('\n', found) != std::string::npos) return true;
    if (!read_more()) return false;
  }
}

std::optional<std::uint16_t> serving_binary::port_behind(std::string_view before) const {
  const auto found = err_.find(before);
  if (found == std::string::npos) return std::nullopt;
  std::uint16_t port = 0;
  const auto* begin = err_.data() + found + before.size();
  const auto read = std::from_chars(begin, err_.data() + err_.size(), port);
  if (read.ec != std::errc{}) return std::nullopt;
  return port;
}

std::uint16_t serving_binary::http_port() const {
  return port_behind("Ready: http://127.0.0.1:").value_or(0);
}

void serving_binary::signal(int number) const {
  DI_CHECK(child_ > 0, "the process has ended");
  ::kill(child_, number);
}

int serving_binary::wait() {
  while (read_more()) {
  }
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string slow_script(const temp_directory& place) {
  place.write("slow.json", R"({"step_ms": 20, "otherwise": {"say": "on", "then": "go on"}})");
  return place.file("slow.json");
}

std::string post_request(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::vector<std::string> serve_args(std::vector<std::string> more) {
  std::vector<std::string> out{"serve", "--port",          "0",   "--actor-port",
                               "0",     "--num-kv-blocks", "256", "--num-threads",
                               "1",     "--max-model-len", "2048"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace deepinfer
