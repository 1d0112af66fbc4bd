/// How many more chunks the client of one request may be sent: at most `window` of them are sent
/// and not taken. Decides when a chunk waits, when the request's sequences are held, and when a
/// client takes nothing for too long.
///
/// A client without a window is sent everything. Held is who has no credit left: what its launched
/// rows still give gathers in one chunk an answer, which goes out with the next credit. The end of
/// an answer waits like any other chunk, unless it says that the request went wrong or was
/// cancelled. Pure; times are arguments, in microseconds. Errors: none; nonsense from a client
/// changes nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "messages/request.hpp"

namespace deepinfer {

/// May the end of an answer wait until its client takes something? Aborts and errors do not:
/// whoever does not read may still be told by other means, and nobody may wait for who never reads.
constexpr bool waits_for_credit(finish_reason reason) {
  return reason == finish_reason::stop || reason == finish_reason::length ||
         reason == finish_reason::tool_calls;
}

class token_credit {
public:
  explicit token_credit(std::int32_t window = 0) : window_(window > 0 ? window : 0) {}

  bool has_credit() const { return window_ == 0 || pending_ < window_; }
  /// Sent and not taken; 0 where there is no window.
  std::int32_t pending() const { return pending_; }
  bool is_held() const { return is_held_; }

  /// A chunk goes out, if it may. False: it has to wait.
  bool spend(std::int64_t now_us);
  /// A chunk goes out that cannot wait.
  void overdraw(std::int64_t now_us);
  /// The client takes so many chunks more; what it was not sent does not count.
  void take(std::int32_t chunks, std::int64_t now_us);

  /// What the scheduler has to be told since it was last asked: true: hold, false: go on.
  std::optional<bool> hold_change();

  /// It has had no credit, and the client has taken nothing, for so long.
  bool is_slow(std::int64_t now_us, std::int64_t timeout_us) const {
    return !has_credit() && now_us - stopped_us_ >= timeout_us;
  }

private:
  void count_sent(std::int64_t now_us);

  std::int32_t window_;
  std::int32_t pending_ = 0;
  bool is_held_ = false;
  std::int64_t stopped_us_ = 0;  ///< when credit ran out, or something was taken since
};

}  // namespace deepinfer
