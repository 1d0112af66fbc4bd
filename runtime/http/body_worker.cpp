#include "runtime/http/body_worker.hpp"

#include <exception>

#include "runtime/base/log.hpp"

namespace deepinfer {

body_worker::body_worker(std::size_t most_waiting)
  : most_waiting_(most_waiting),
    thread_([this] { run(); }) {}

body_worker::~body_worker() {
  stop();
}

void body_worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool body_worker::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_ || waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(work));
  }
  changed_.notify_one();
  return true;
}

void body_worker::run() {
  while (true) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_stopped_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    // Whoever waits for the answer is told by the end of what was posted.
    try {
      work();
    } catch (const std::exception& failure) {
      log(severity::error, "http: a large body: {}", failure.what());
    }
  }
}

}  // namespace deepinfer
