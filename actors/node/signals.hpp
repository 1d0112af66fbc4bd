/// Signals of a serving process, as values that its main thread takes one after the other.
///
/// SIGINT and SIGTERM ask it to stop. The second of them comes as a second `stop`, and the process
/// then has `most_last_words` to tell its clients: it ends with exit code 130 at the latest then,
/// or with the third, whatever any thread is doing. The same one twice at once is one
/// (signal_filter.hpp). SIGHUP and SIGUSR1 come as they are, SIGPIPE is
/// ignored.
#pragma once

#include <chrono>
#include <cstdint>

namespace deepinfer {

inline constexpr std::chrono::seconds most_last_words{5};

enum class process_signal : std::uint8_t { none, stop, hang_up, report };

class signal_queue {
public:
  /// Installs the handlers for its lifetime; one at a time.
  signal_queue();
  ~signal_queue();
  signal_queue(const signal_queue&) = delete;
  signal_queue& operator=(const signal_queue&) = delete;

  /// The next signal; none when the time is over, or after a `wake`.
  process_signal wait(std::chrono::milliseconds timeout);

  /// Ends a wait, or the next one. From any thread.
  void wake();
};

}  // namespace deepinfer
