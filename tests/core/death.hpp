/// What a program says on stderr before a DI_CHECK ends it, found out in a forked child.
#pragma once

#include <csignal>
#include <string>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace deepinfer::test {

/// Runs `act` in a child process; its stderr if the child died by abort, else "".
template <class Act>
std::string death_message(Act&& act) {
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child < 0) return "";
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    signal(SIGABRT, SIG_DFL);  // not the test framework's report
    act();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? said : "";
}

}  // namespace deepinfer::test
