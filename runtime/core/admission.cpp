#include "runtime/core/admission.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

void admission_queue::push(key place, sequence_state& sequence) {
  const bool is_new = waiting_.emplace(place, &sequence).second;
  DI_CHECK(is_new, "arrival {} is queued twice", place.arrival);
}

void admission_queue::remove(key place) {
  const auto removed = waiting_.erase(place);
  DI_CHECK(removed == 1, "arrival {} is not queued", place.arrival);
}

void promise_book::promise(std::int64_t blocks) {
  DI_CHECK(blocks <= unpromised(), "{} blocks promised, {} are not yet", blocks, unpromised());
  DI_CHECK(free_slots() > 0, "no slot is free: {} held, {} parked", held_slots_, parked_slots_);
  promised_ += blocks;
  ++held_slots_;
}

void promise_book::keep(std::int64_t blocks) {
  promised_ -= blocks;
  --held_slots_;
  DI_CHECK(promised_ >= 0, "{} blocks promised", promised_);
  DI_CHECK(held_slots_ >= 0, "{} slots held", held_slots_);
}

void promise_book::park(step_id fence, std::int64_t blocks, std::int64_t slots) {
  if (!parked_.empty()) fence = std::max(fence, parked_.back().fence);
  parked_blocks_ += blocks;
  parked_slots_ += slots;
  parked_.push_back({fence, blocks, slots});
}

bool promise_book::settle(step_id settled) {
  bool any = false;
  for (; !parked_.empty() && parked_.front().fence <= settled; parked_.pop_front()) {
    parked_blocks_ -= parked_.front().blocks;
    parked_slots_ -= parked_.front().slots;
    any = true;
  }
  return any;
}

void promise_book::reset() {
  *this = promise_book(blocks_, slots_);
}

}  // namespace deepinfer
