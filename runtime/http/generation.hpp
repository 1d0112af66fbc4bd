/// A chat or completion that is being answered: requests of the engine on one side, one HTTP answer
/// on the other. Nothing is sent before the engine has taken every request, so that what is refused
/// has its status. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/http/engine_link.hpp"
#include "runtime/http/exchange.hpp"
#include "runtime/http/openai_request.hpp"
#include "runtime/http/openai_shapes.hpp"

namespace deepinfer {

/// Runs a call after a delay, on the io thread.
using http_timer = std::function<void(std::chrono::milliseconds, std::function<void()>)>;

struct generation_settings {
  std::int32_t window = 64;  ///< chunks; 0: no bound
  std::chrono::milliseconds keep_alive_interval{10'000};
  bool nonstream_keep_alive = false;  ///< blanks before an answer that does not stream
};

class generation : public std::enable_shared_from_this<generation> {
public:
  generation(std::shared_ptr<exchange> on, openai_job job, openai_frame frame,
             generation_settings settings, std::shared_ptr<engine_link> engine, http_timer after);
  ~generation();

  void start();
  /// Called once it is over, for whatever reason. To be set before `start`; must not call back.
  void on_end(std::function<void()> call) { on_end_ = std::move(call); }
  /// Ends it with an error.
  void stop(const error& why);

private:
  struct listener;
  /// One request of the engine.
  struct part {
    std::string id;
    std::int32_t owed = 0;  ///< chunks come and not yet granted again
    bool is_accepted = false;
    bool has_ended = false;
  };

  void accepted(std::size_t at);
  void gained(std::size_t at, const token_chunk& chunk);
  void gone();
  void drained();
  void tick();

  // With the mutex held:
  void begin();
  void put(std::string text);
  void fail(const error& why);
  void finish();
  void grant(part& it);
  void drop_parts();
  void note_end();

  std::shared_ptr<exchange> exchange_;
  openai_job job_;
  generation_settings settings_;
  std::weak_ptr<engine_link> engine_;
  http_timer after_;
  std::function<void()> on_end_;

  std::mutex mutex_;
  openai_stream stream_;
  openai_answers answers_;
  std::vector<part> parts_;
  std::string early_;  ///< of a stream that may not begin yet
  bool has_begun_ = false;
  bool has_ended_ = false;
  int quiet_ticks_ = 0;
};

}  // namespace deepinfer
