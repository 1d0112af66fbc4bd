/// Open promises of an actor, by ticket.
///
/// The actor library has no broken promise: a requester whose promise is dropped waits until its
/// own time-out. So whoever keeps promises keeps them here, and what is left is failed on
/// destruction. Owned by one actor; foreign threads never see a promise, only a ticket.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "actors/caf_compat.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

template <class Answer>
class pending {
public:
  using promise = caf::typed_response_promise<Answer>;

  pending() = default;
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;

  ~pending() {
    for (auto& [id, waiting] : open_)
      waiting.deliver(caf::make_error(caf::sec::request_receiver_down));
  }

  void add(ticket id, promise waiting) { open_.emplace(id, std::move(waiting)); }

  /// Answers ticket `id`; false where nobody waits for it (any more).
  bool settle(ticket id, const Answer& answer) {
    auto node = open_.extract(id);
    if (node.empty()) return false;
    node.mapped().deliver(answer);
    return true;
  }

  bool fail(ticket id, caf::error reason) {
    auto node = open_.extract(id);
    if (node.empty()) return false;
    node.mapped().deliver(std::move(reason));
    return true;
  }

  std::size_t size() const { return open_.size(); }

private:
  std::map<ticket, promise> open_;
};

}  // namespace deepinfer
