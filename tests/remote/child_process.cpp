#include "tests/remote/child_process.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/actors/hash_node.hpp"

namespace deepinfer::test {

using namespace std::chrono_literals;

child_process::child_process(const std::string& role, const child_settings& settings) {
  std::array<int, 2> in{}, out{};
  // Closed in children that are started later: the end of the commands must be the end.
  REQUIRE(pipe2(in.data(), O_CLOEXEC) == 0);
  REQUIRE(pipe2(out.data(), O_CLOEXEC) == 0);
  std::vector<std::string> variables{"DEEPINFER_CHILD_ROLE=" + role};
  for (const auto& [name, value] : settings)
    variables.push_back("DEEPINFER_CHILD_" + name + "=" + value);
  std::vector<char*> environment;
  for (auto** it = environ; *it != nullptr; ++it) environment.push_back(*it);
  for (auto& it : variables) environment.push_back(it.data());
  environment.push_back(nullptr);
  std::vector<std::string> words{"remote_test", "--no-skip", "--test-case=a child of these tests*"};
  std::vector<char*> arguments;
  for (auto& it : words) arguments.push_back(it.data());
  arguments.push_back(nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execve("/proc/self/exe", arguments.data(), environment.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  commands_ = in[1];
  answers_ = out[0];
}

child_process::~child_process() {
  kill();
  close(commands_);
  close(answers_);
}

void child_process::tell(const std::string& command) const {
  const auto line = command + "\n";
  REQUIRE(write(commands_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

std::string child_process::read() {
  while (true) {
    const auto end = unread_.find('\n');
    if (end != std::string::npos) {
      const auto line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      if (line.starts_with("@ ")) return line.substr(2);
      continue;
    }
    pollfd waiting{answers_, POLLIN, 0};
    const auto limit = std::chrono::milliseconds(patience).count();
    REQUIRE(poll(&waiting, 1, static_cast<int>(limit)) == 1);
    std::array<char, 4096> bytes{};
    const auto count = ::read(answers_, bytes.data(), bytes.size());
    REQUIRE_MESSAGE(count > 0, "the child has ended");
    unread_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

std::string child_process::ask(const std::string& command) {
  tell(command);
  return read();
}

void child_process::signal(int number) const {
  REQUIRE(::kill(pid_, number) == 0);
}

void child_process::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool eventually(const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (is_so()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

child_settings node_process::with_defaults(child_settings given) {
  given.emplace("PORT", "0");
  return given;
}

node_process::node_process(child_settings settings)
  : process("node", with_defaults(std::move(settings))) {
  const auto line = process.read();
  REQUIRE_MESSAGE(line.starts_with("port "), line);
  port = static_cast<std::uint16_t>(std::stoi(line.substr(5)));
}

}  // namespace deepinfer::test
