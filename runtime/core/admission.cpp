#include "runtime/core/admission.hpp"

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

}  // namespace deepinfer
