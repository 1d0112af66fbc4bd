/// Server-sent events for the page: what the node looks like now, twice a second, while somebody
/// reads it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/http/engine_link.hpp"
#include "runtime/http/exchange.hpp"
#include "runtime/http/generation.hpp"

namespace deepinfer {

std::vector<http_header> event_headers();

class event_feed : public std::enable_shared_from_this<event_feed> {
public:
  event_feed(std::shared_ptr<exchange> on, const std::shared_ptr<engine_link>& engine,
             http_timer after, std::chrono::milliseconds interval);

  void start();

private:
  void ask();
  void tell(const result<std::string>& answer);

  std::shared_ptr<exchange> exchange_;
  std::weak_ptr<engine_link> engine_;
  http_timer after_;
  std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::int64_t newest_step_ = -1;  ///< that the reader knows
};

}  // namespace deepinfer
