#include "actors/node/load_bar.hpp"

#include <algorithm>

#include "actors/node/cli.hpp"

namespace deepinfer {
namespace {

double seconds(std::chrono::steady_clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

}  // namespace

load_bar::~load_bar() {
  if (was_drawn_) print_err("\r\033[K");
}

void load_bar::draw(std::uint64_t done, std::uint64_t total) {
  constexpr auto shortest = std::chrono::milliseconds(50);
  const auto now = clock::now();
  if (!is_shown_ || total == 0 || now - last_ < shortest) return;
  last_ = now;
  constexpr std::uint64_t width = 40;
  const auto filled = static_cast<int>(done * width / total);
  const auto rate = static_cast<double>(done) / 1e6 / std::max(1e-3, seconds(now - begin_));
  print_err("\rloading [{:=<{}}{: <{}}] {:3} %  {:.0f} MB/s\033[K", "", filled, "",
            static_cast<int>(width) - filled, done * 100 / total, rate);
  std::fflush(stderr);
  was_drawn_ = true;
}

}  // namespace deepinfer
