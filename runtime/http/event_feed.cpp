#include "runtime/http/event_feed.hpp"

#include <algorithm>

#include "messages/wire.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {
namespace {

constexpr std::chrono::milliseconds snapshot_timeout{5'000};
/// A reader that has so much unread sees a later state instead of all in between.
constexpr std::size_t most_unread = 1 << 20;

/// The newest step a snapshot tells of.
std::int64_t newest_step_in(std::string_view snapshot, std::int64_t otherwise) {
  const auto read = parse_json(snapshot, 128);
  if (!read || !read->is_object()) return otherwise;
  const auto* step = read->get_object().if_contains("newest_step");
  return step && step->is_int64() ? step->get_int64() : otherwise;
}

}  // namespace

std::vector<http_header> event_headers() {
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

event_feed::event_feed(std::shared_ptr<exchange> on, const std::shared_ptr<engine_link>& engine,
                       http_timer after, std::chrono::milliseconds interval)
  : exchange_(std::move(on)),
    engine_(engine),
    after_(std::move(after)),
    interval_(interval) {}

void event_feed::start() {
  exchange_->begin(200, event_headers());
  ask();
}

void event_feed::ask() {
  if (exchange_->has_ended()) return;
  const auto engine = engine_.lock();
  if (!engine) return exchange_->end();
  std::int64_t known = -1;
  {
    const std::lock_guard lock(mutex_);
    known = newest_step_;
  }
  engine->call(
    verb::snapshot, to_wire(number_call{known}),
    [self = shared_from_this()](const result<std::string>& answer) { self->tell(answer); },
    snapshot_timeout);
}

void event_feed::tell(const result<std::string>& answer) {
  if (exchange_->has_ended()) return;
  auto reply =
    answer ? from_wire<text_reply>(*answer) : result<text_reply>(tl::unexpected(answer.error()));
  if (!reply) {
    exchange_->write("data: " + error_json(reply.error()) + "\n\n");
  } else if (exchange_->reply().pending_bytes() < most_unread) {
    {
      const std::lock_guard lock(mutex_);
      newest_step_ = newest_step_in(reply->text, newest_step_);
    }
    auto line = std::move(reply->text);  // an event is one line
    std::replace(line.begin(), line.end(), '\n', ' ');
    exchange_->write("data: " + line + "\n\n");
  }
  after_(interval_, [self = shared_from_this()] { self->ask(); });
}

}  // namespace deepinfer
