#include "runtime/http/reply_state.hpp"

#include <exception>
#include <utility>

#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

/// Buffers up to this size are kept for the next piece.
constexpr std::size_t kept_capacity = 64 << 10;

void call_guarded(const std::function<void()>& call) {
  try {
    if (call) call();
  } catch (const std::exception& thrown) {
    log(severity::error, "http: a call of a reply has thrown: {}", thrown.what());
  }
}

class reply_handle final : public http_reply {
public:
  explicit reply_handle(std::shared_ptr<reply_state> state) : state_(std::move(state)) {}
  reply_handle(const reply_handle&) = delete;
  reply_handle& operator=(const reply_handle&) = delete;
  ~reply_handle() override { state_->drop(); }

  void send(http_response whole) override { state_->send(std::move(whole)); }
  void begin(int status, std::vector<http_header> headers) override {
    state_->begin(status, std::move(headers));
  }
  void write(std::string piece) override { state_->write(std::move(piece)); }
  void end() override { state_->end(); }
  void cut() override { state_->cut(); }
  std::size_t pending_bytes() const override { return state_->pending_bytes(); }
  void on_gone(std::function<void()> call) override { state_->on_gone(std::move(call)); }
  void on_drained(std::size_t low_bytes, std::function<void()> call) override {
    state_->on_drained(low_bytes, std::move(call));
  }
  bool is_gone() const override { return state_->is_gone(); }

private:
  std::shared_ptr<reply_state> state_;
};

}  // namespace

void reply_doorbell::ring(std::shared_ptr<reply_state> reply) {
  const std::lock_guard lock(mutex_);
  if (!wake_) return;
  changed_.push_back(std::move(reply));
  if (changed_.size() == 1) wake_();
}

std::vector<std::shared_ptr<reply_state>> reply_doorbell::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(changed_, {});
}

void reply_doorbell::close() {
  std::vector<std::shared_ptr<reply_state>> changed;  // released without the mutex
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
  changed.swap(changed_);
}

std::shared_ptr<http_reply> reply_state::handle_of(std::shared_ptr<reply_state> state) {
  return std::make_shared<reply_handle>(std::move(state));
}

void reply_state::ring_if(bool must) {
  if (must) doorbell_->ring(shared_from_this());
}

void reply_state::send(http_response whole) {
  bool must = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_gone() || (stage_ != stage::nothing && stage_ != stage::stream)) return;
    // A whole answer within a stream can't be told; the client must not take it for complete.
    stage_ = stage_ == stage::stream ? stage::cut : stage::whole;
    if (stage_ == stage::whole) head_ = std::move(whole);
    must = must_ring();
  }
  ring_if(must);
}

void reply_state::begin(int status, std::vector<http_header> headers) {
  bool must = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_gone() || stage_ != stage::nothing) return;
    stage_ = stage::stream;
    head_ = http_response{status, std::move(headers), {}};
    must = must_ring();
  }
  ring_if(must);
}

void reply_state::write(std::string piece) {
  bool must = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_gone() || stage_ != stage::stream || piece.empty()) return;
    const auto size = piece.size();
    if (queued_.empty() && size > queued_.capacity())
      queued_ = std::move(piece);
    else
      queued_ += piece;
    const auto now_pending = pending_.fetch_add(size, std::memory_order_relaxed) + size;
    was_above_ = was_above_ || now_pending > low_bytes_;
    must = must_ring();
  }
  ring_if(must);
}

void reply_state::finish(stage last) {
  bool must = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_gone()) return;
    if (stage_ == stage::nothing)
      stage_ = stage::dropped;  // ended without a beginning
    else if (stage_ == stage::stream)
      stage_ = last;
    else
      return;
    must = must_ring();
  }
  ring_if(must);
}

void reply_state::end() {
  finish(stage::ended);
}

void reply_state::cut() {
  finish(stage::cut);
}

void reply_state::drop() {
  finish(stage::cut);
}

void reply_state::on_gone(std::function<void()> call) {
  bool must = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_complete_) return;
    on_gone_.swap(call);  // what it replaces is released without the mutex
    must = is_gone() && must_ring();
  }
  ring_if(must);
}

void reply_state::on_drained(std::size_t low_bytes, std::function<void()> call) {
  auto drained = std::make_shared<const std::function<void()>>(std::move(call));
  const std::lock_guard lock(mutex_);
  if (is_gone() || is_complete_) return;
  low_bytes_ = low_bytes;
  was_above_ = pending_bytes() > low_bytes;
  on_drained_.swap(drained);  // what it replaces is released without the mutex
}

bool reply_state::is_answered() const {
  const std::lock_guard lock(mutex_);
  return stage_ != stage::nothing && stage_ != stage::stream;
}

void reply_state::answer_bell() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    is_rung_ = false;
    if (is_gone()) gone = std::exchange(on_gone_, nullptr);
  }
  call_guarded(gone);
  if (auto owner = owner_.lock()) owner->reply_changed(*this);
}

bool reply_state::take(reply_part& part) {
  part.head.reset();
  part.is_whole = part.is_dropped = part.is_end = part.is_cut = false;
  part.piece.clear();
  if (part.piece.capacity() > kept_capacity) part.piece.shrink_to_fit();
  const std::lock_guard lock(mutex_);
  if (is_gone() || is_end_taken_ || stage_ == stage::nothing) return false;
  part.head.swap(head_);
  part.is_whole = stage_ == stage::whole;
  part.is_dropped = stage_ == stage::dropped;
  part.is_end = stage_ == stage::ended;
  part.is_cut = stage_ == stage::cut;
  part.piece.swap(queued_);
  is_end_taken_ = stage_ != stage::stream;
  in_flight_ += part.piece.size();
  return is_end_taken_ || part.head || !part.piece.empty();
}

void reply_state::taken(std::size_t in_flight) {
  std::shared_ptr<const std::function<void()>> drained;
  {
    const std::lock_guard lock(mutex_);
    if (is_gone() || in_flight >= in_flight_) return;
    const auto less = in_flight_ - in_flight;
    in_flight_ = in_flight;
    const auto now_pending = pending_.fetch_sub(less, std::memory_order_relaxed) - less;
    if (!was_above_ || now_pending > low_bytes_) return;
    was_above_ = false;
    drained = on_drained_;
  }
  if (drained) call_guarded(*drained);
}

void reply_state::leave() {
  std::function<void()> gone;
  std::shared_ptr<const std::function<void()>> drained;  // released without the mutex
  std::string queued;
  {
    const std::lock_guard lock(mutex_);
    if (is_gone_.exchange(true)) return;
    gone = std::exchange(on_gone_, nullptr);
    drained.swap(on_drained_);
    queued.swap(queued_);
    head_.reset();
    pending_ = 0;
  }
  call_guarded(gone);
}

void reply_state::complete() {
  std::function<void()> gone;
  std::shared_ptr<const std::function<void()>> drained;
  const std::lock_guard lock(mutex_);
  is_complete_ = true;
  gone.swap(on_gone_);
  drained.swap(on_drained_);
}

}  // namespace deepinfer
