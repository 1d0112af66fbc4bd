/// Ctrl-C and SIGTERM while a command runs: the first asks it to stop, the second ends the process
/// at once with exit code 130. The same one twice at once is one (signal_filter.hpp).
#pragma once

namespace deepinfer {

/// Installs the handlers for its lifetime; one at a time.
class interrupt_guard {
public:
  interrupt_guard();
  ~interrupt_guard();
  interrupt_guard(const interrupt_guard&) = delete;
  interrupt_guard& operator=(const interrupt_guard&) = delete;

  /// Has the process been asked to stop?
  bool is_asked() const;

  /// The wish has been met, by ending what ran; the next one counts as the first again.
  void forget();
};

}  // namespace deepinfer
