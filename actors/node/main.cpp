#include <unistd.h>

#include <climits>

#include "actors/node/cli.hpp"

int main(int argc, char** argv) {
  deepinfer::cli_context context;
  char path[PATH_MAX];
  const auto length = readlink("/proc/self/exe", path, sizeof path);
  context.program_path = length > 0 ? std::string(path, static_cast<std::size_t>(length)) : argv[0];
  context.environment = deepinfer::process_environment();
  context.out_is_terminal = isatty(STDOUT_FILENO) != 0;
  context.err_is_terminal = isatty(STDERR_FILENO) != 0;
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  return deepinfer::run_command_line(context, args);
}
