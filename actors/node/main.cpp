#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "actors/node/cli.hpp"

namespace {

/// A standard stream that was closed must not become the next file that is opened. Input and
/// stderr become /dev/null; output becomes something that refuses writes, so that results that
/// nobody gets still end with an error.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free number is taken: that of `stream`, as those below it are open.
    static_cast<void>(open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY));
  }
}

/// https://no-color.org: set and not empty.
bool refuses_colour() {
  const char* value = std::getenv("NO_COLOR");
  return value && *value;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  deepinfer::cli_context context;
  char path[PATH_MAX];
  const auto length = readlink("/proc/self/exe", path, sizeof path);
  context.program_path = length > 0 ? std::string(path, static_cast<std::size_t>(length)) : argv[0];
  context.environment = deepinfer::process_environment();
  context.out_is_terminal = isatty(STDOUT_FILENO) != 0;
  context.err_is_terminal = isatty(STDERR_FILENO) != 0;
  context.err_is_coloured = context.err_is_terminal && !refuses_colour();
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  return deepinfer::run_command_line(context, args);
}
