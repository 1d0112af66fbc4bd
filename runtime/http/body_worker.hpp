/// One thread that reads what would keep others too long: large bodies, and large answers of the
/// engine.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace deepinfer {

class body_worker {
public:
  explicit body_worker(std::size_t most_waiting);
  ~body_worker();
  body_worker(const body_worker&) = delete;
  body_worker& operator=(const body_worker&) = delete;

  /// Nothing new is taken; returns when what waits is done: it has clients who are owed an answer.
  /// Not from that thread.
  void stop();

  /// False where too many wait.
  bool post(std::function<void()> work);

private:
  void run();

  std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace deepinfer
