/// The meeting point of one answer: any thread says what to send, the io thread takes it.
///
/// A doorbell tells the io thread which replies have something new. It rings once for all that was
/// said since the io thread looked, so that hundreds of streams that move at one time cost one wake
/// up; and pieces said before the io thread takes them leave together. Nothing here does I/O.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/http/http_server.hpp"

namespace deepinfer {

class reply_state;

/// Whoever writes a reply; called on the io thread.
class reply_owner {
public:
  virtual ~reply_owner() = default;
  virtual void reply_changed(reply_state& reply) = 0;
};

/// Thread-safe list of replies that have something new.
class reply_doorbell {
public:
  /// `wake` makes the io thread call `take`; called for the first ring since it last did.
  explicit reply_doorbell(std::function<void()> wake) : wake_(std::move(wake)) {}

  void ring(std::shared_ptr<reply_state> reply);
  std::vector<std::shared_ptr<reply_state>> take();
  /// `wake` is never called again, and no reply is held.
  void close();

private:
  std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<std::shared_ptr<reply_state>> changed_;
};

/// What a reply has to say since it was last asked.
struct reply_part {
  std::optional<http_response> head;  ///< its body is the whole answer if `is_whole`
  bool is_whole = false;
  bool is_dropped = false;  ///< nobody has answered and nobody will
  bool is_end = false;      ///< of a stream
  bool is_cut = false;      ///< the stream ends incomplete
  std::string piece;
};

class reply_state : public std::enable_shared_from_this<reply_state> {
public:
  reply_state(std::shared_ptr<reply_doorbell> doorbell, std::weak_ptr<reply_owner> owner)
    : doorbell_(std::move(doorbell)),
      owner_(std::move(owner)) {}

  /// The reply for a handler; when the last holder lets go of it, the answer is over.
  static std::shared_ptr<http_reply> handle_of(std::shared_ptr<reply_state> state);

  // Any thread; see http_reply. What comes after the end of an answer is ignored.
  void send(http_response whole);
  void begin(int status, std::vector<http_header> headers);
  void write(std::string piece);
  void end();
  void cut();
  void drop();
  std::size_t pending_bytes() const { return pending_.load(std::memory_order_relaxed); }
  void on_gone(std::function<void()> call);
  void on_drained(std::size_t low_bytes, std::function<void()> call);
  bool is_gone() const { return is_gone_.load(std::memory_order_relaxed); }

  /// Whether nothing more will come: what it has to say is whole.
  bool is_answered() const;

  // The io thread.
  /// The doorbell's answer: calls on_gone where the client has left already, else tells the owner.
  void answer_bell();
  /// Moves out what is new; `piece` keeps its buffer for the next one. False: nothing is.
  bool take(reply_part& part);
  /// `in_flight` bytes of what was taken wait for the kernel. Calls on_drained.
  void taken(std::size_t in_flight);
  /// The client has left. Calls on_gone.
  void leave();
  /// The answer is complete: nothing will be called any more.
  void complete();

private:
  enum class stage { nothing, whole, stream, ended, cut, dropped };

  /// With the mutex held: whether the caller must ring once it has let go of it.
  bool must_ring() { return !std::exchange(is_rung_, true); }
  void ring_if(bool must);
  void finish(stage last);

  std::shared_ptr<reply_doorbell> doorbell_;
  std::weak_ptr<reply_owner> owner_;
  mutable std::mutex mutex_;
  stage stage_ = stage::nothing;
  std::optional<http_response> head_;
  std::string queued_;
  bool is_rung_ = false;
  bool is_end_taken_ = false;
  bool is_complete_ = false;
  std::size_t in_flight_ = 0;
  std::size_t low_bytes_ = 0;
  bool was_above_ = false;
  std::function<void()> on_gone_;
  std::shared_ptr<const std::function<void()>> on_drained_;
  std::atomic<std::size_t> pending_{0};
  std::atomic<bool> is_gone_{false};
};

}  // namespace deepinfer
