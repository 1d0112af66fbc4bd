/// Which launched steps have not been heard of for too long, and what they may still be writing.
///
/// A time-out is not a completion: the device may be slow and still write into what the step
/// leased. So an expired ticket goes to quarantine, and leaves it only when it is proven that its
/// work has ended: by its own late completion, or by one of a later ticket of the same stream,
/// since a stream runs in order. Proof of a sticky failure is none: then the rank is lost. Neither
/// reads a clock nor waits: `now_ns` is an argument. One watchdog per stream that completes. Not
/// thread-safe. Source: architecture 3, "A time-out is not a completion".
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/device_work.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

enum class ticket_verdict : std::uint8_t {
  on_time,  ///< the completion of an open ticket
  late,     ///< its ticket had expired: the asker was told so, only leases wait for it
  unknown,  ///< never opened, or settled before: no effect
};

class watchdog {
public:
  /// `timeout_ns` > 0: from launch to completion. At most `limit` tickets open or in quarantine.
  explicit watchdog(std::int64_t timeout_ns, std::size_t limit = 1024);

  /// A step was launched. Tickets grow, as launches on one stream do.
  void open(ticket id, std::int64_t now_ns);

  struct settlement {
    ticket_verdict verdict = ticket_verdict::unknown;
    /// Quarantined tickets whose work is now proven to have ended, oldest first, `id` included if
    /// it was late. Valid until the next call.
    std::span<const ticket> proven;
  };
  /// A completion arrived.
  settlement settle(ticket id, device_status status);

  /// Moves every open ticket whose time is up to quarantine and names them, oldest first. Valid
  /// until the next call.
  std::span<const ticket> expire(std::int64_t now_ns);

  /// When the next open ticket expires.
  std::optional<std::int64_t> next_deadline_ns() const;

  std::size_t open_count() const;
  std::size_t quarantined_count() const;

private:
  struct watched {
    ticket id;
    std::int64_t deadline_ns = 0;
    bool is_quarantined = false;
  };

  std::int64_t timeout_ns_;
  std::size_t limit_;
  std::deque<watched> tickets_;  ///< in launch order
  std::vector<ticket> answer_;
};

}  // namespace deepinfer
