#include "runtime/http/generation.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {
namespace {

/// A client that has so much unread gets no more of it; below the low mark it does again.
constexpr std::size_t most_pending_bytes = 256 << 10;
constexpr std::size_t low_pending_bytes = 128 << 10;

std::vector<http_header> stream_headers() {
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

/// The engine names the fields of its own requests.
error in_words_of_the_api(error why) {
  if (why.param == "ids" || why.param == "input" || why.param == "text") why.param = "prompt";
  if (why.param == "include_stop") why.param = "include_stop_str_in_output";
  return why;
}

}  // namespace

struct generation::listener final : engine_listener {
  listener(std::shared_ptr<generation> of, std::size_t which) : to(std::move(of)), at(which) {}
  void on_accepted() override { to->accepted(at); }
  void on_chunk(token_chunk chunk) override { to->gained(at, chunk); }
  void on_error(const error& failure) override { to->stop(in_words_of_the_api(failure)); }

  std::shared_ptr<generation> to;
  std::size_t at;
};

generation::generation(std::shared_ptr<exchange> on, openai_job job, openai_frame frame,
                       generation_settings settings, std::shared_ptr<engine_link> engine,
                       http_timer after)
  : exchange_(std::move(on)),
    job_(std::move(job)),
    settings_(settings),
    engine_(engine),
    after_(std::move(after)),
    stream_(frame, job_.stream ? job_.num_answers() : 0),
    answers_(frame, job_.stream ? 0 : job_.num_answers()),
    parts_(job_.requests.size()) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    auto& request = job_.requests[i];
    request.request_id =
      parts_.size() == 1 ? exchange_->id() : fmt::format("{}-{}", exchange_->id(), i);
    request.window = settings_.window;
    parts_[i].id = request.request_id;
  }
}

generation::~generation() {
  drop_parts();
  note_end();
}

void generation::start() {
  const auto engine = engine_.lock();
  if (!engine) return stop({errc::server_shutdown, "the server is stopping", {}});
  exchange_->reply().on_drained(low_pending_bytes, [it = weak_from_this()] {
    if (const auto self = it.lock()) self->drained();
  });
  exchange_->when_gone([it = weak_from_this()] {
    if (const auto self = it.lock()) self->gone();
  });
  auto requests = std::move(job_.requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    {
      const std::lock_guard lock(mutex_);
      if (has_ended_) return;
    }
    engine->start(std::move(requests[i]), std::make_shared<listener>(shared_from_this(), i));
  }
}

void generation::stop(const error& why) {
  const std::lock_guard lock(mutex_);
  fail(why);
}

void generation::accepted(std::size_t at) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) {
    if (const auto engine = engine_.lock()) engine->drop(parts_[at].id);
    return;
  }
  parts_[at].is_accepted = true;
  const bool are_all =
    std::all_of(parts_.begin(), parts_.end(), [](const auto& p) { return p.is_accepted; });
  if (are_all && !has_begun_) begin();
}

void generation::begin() {
  if (!job_.stream && !settings_.nonstream_keep_alive) return;
  has_begun_ = true;
  if (job_.stream) {
    exchange_->begin(200, stream_headers());
    std::string text;
    stream_.begin(text);
    put(text + std::exchange(early_, {}));
  } else {
    exchange_->begin(200, {{"Content-Type", "application/json"}});
  }
  if (settings_.keep_alive_interval.count() <= 0) return;
  after_(settings_.keep_alive_interval / 2, [it = weak_from_this()] {
    if (const auto self = it.lock()) self->tick();
  });
}

/// Two quiet ticks are one interval.
void generation::tick() {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  if (++quiet_ticks_ >= 2) put(job_.stream ? ": keep-alive\n\n" : "\n");
  after_(settings_.keep_alive_interval / 2, [it = weak_from_this()] {
    if (const auto self = it.lock()) self->tick();
  });
}

void generation::put(std::string text) {
  if (text.empty()) return;
  quiet_ticks_ = 0;
  if (has_begun_)
    exchange_->write(std::move(text));
  else
    early_ += text;
}

void generation::gained(std::size_t at, const token_chunk& chunk) {
  const std::lock_guard lock(mutex_);
  if (has_ended_ || chunk.index < 0 || chunk.index >= job_.n) return;
  auto& it = parts_[at];
  it.has_ended = chunk.is_last;
  if (chunk.finish)
    if (const auto ended = finish_error(*chunk.finish); !ended) return fail(ended.error());
  const auto index = static_cast<std::int32_t>(at) * job_.n + chunk.index;
  if (job_.stream) {
    std::string text;
    stream_.add(chunk, index, text);
    put(std::move(text));
  } else {
    answers_.add(chunk, index);
  }
  ++it.owed;
  if (std::all_of(parts_.begin(), parts_.end(), [](const auto& p) { return p.has_ended; }))
    finish();
  else
    grant(it);
}

/// Chunks are granted again a quarter of the window at a time, unless the client is behind.
void generation::grant(part& it) {
  if (it.has_ended || settings_.window <= 0 || it.owed < std::max(1, settings_.window / 4)) return;
  if (has_begun_ && exchange_->reply().pending_bytes() > most_pending_bytes) return;
  if (const auto engine = engine_.lock()) engine->take(it.id, std::exchange(it.owed, 0));
}

void generation::drained() {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  for (auto& it : parts_) grant(it);
}

void generation::finish() {
  if (job_.stream) {
    std::string text;
    stream_.end(text);
    put(std::move(text));
    note_end();
    return exchange_->end();
  }
  note_end();
  if (!has_begun_) return exchange_->send_json(answers_.text());
  exchange_->write(answers_.text());
  exchange_->end();
}

void generation::fail(const error& why) {
  if (has_ended_) return;
  note_end();
  drop_parts();
  if (!has_begun_) return exchange_->fail(why);
  std::string text;
  if (job_.stream)
    openai_stream::append_error(text, why);
  else
    text = error_json(why);
  exchange_->write(std::move(text));
  exchange_->end();
}

void generation::gone() {
  const std::lock_guard lock(mutex_);
  note_end();
  drop_parts();
}

void generation::drop_parts() {
  const auto engine = engine_.lock();
  for (auto& it : parts_)
    if (!std::exchange(it.has_ended, true) && engine) engine->drop(it.id);
}

void generation::note_end() {
  has_ended_ = true;
  if (const auto call = std::exchange(on_end_, nullptr)) call();
}

}  // namespace deepinfer
