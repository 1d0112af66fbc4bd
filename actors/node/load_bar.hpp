/// How far loading is: a bar on a terminal, rewritten in place and erased at the end.
#pragma once

#include <chrono>
#include <cstdint>

namespace deepinfer {

class load_bar {
public:
  explicit load_bar(bool is_shown) : is_shown_(is_shown) {}
  ~load_bar();
  load_bar(const load_bar&) = delete;
  load_bar& operator=(const load_bar&) = delete;

  void draw(std::uint64_t done, std::uint64_t total);

private:
  using clock = std::chrono::steady_clock;

  bool is_shown_;
  bool was_drawn_ = false;
  clock::time_point begin_ = clock::now();
  clock::time_point last_ = begin_;
};

}  // namespace deepinfer
