#include "runtime/core/token_credit.hpp"

#include <algorithm>

namespace deepinfer {

void token_credit::count_sent(std::int64_t now_us) {
  if (window_ == 0) return;
  const bool had_credit = has_credit();
  ++pending_;
  if (had_credit && !has_credit()) stopped_us_ = now_us;
}

bool token_credit::spend(std::int64_t now_us) {
  if (!has_credit()) return false;
  count_sent(now_us);
  return true;
}

void token_credit::overdraw(std::int64_t now_us) {
  count_sent(now_us);
}

void token_credit::take(std::int32_t chunks, std::int64_t now_us) {
  if (chunks <= 0 || pending_ == 0) return;
  pending_ -= std::min(chunks, pending_);
  stopped_us_ = now_us;
}

std::optional<bool> token_credit::hold_change() {
  const bool holds = !has_credit();
  if (holds == is_held_) return std::nullopt;
  is_held_ = holds;
  return holds;
}

}  // namespace deepinfer
