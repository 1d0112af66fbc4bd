/// The client API as the HTTP side needs it, without the actors behind it. Nothing here blocks;
/// listeners and answers are called from another thread, never two at a time for one link.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "messages/client.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Whom the chunks of a request are told. One of `on_error` and a chunk with `is_last` is the last.
class engine_listener {
public:
  virtual ~engine_listener() = default;
  virtual void on_accepted() = 0;
  virtual void on_chunk(token_chunk chunk) = 0;
  virtual void on_error(const error& failure) = 0;
};

class engine_link {
public:
  virtual ~engine_link() = default;

  /// `request.request_id` is set and unique.
  virtual void start(generate_request request, std::shared_ptr<engine_listener> listener) = 0;
  /// A request with a window may be sent so many chunks more.
  virtual void take(const std::string& request_id, std::int32_t chunks) = 0;
  /// Cancels a request, whoever has started it.
  virtual void drop(const std::string& request_id) = 0;
  /// A verb of messages/control.hpp; argument and answer are Protobuf bytes.
  virtual void call(std::string_view verb, std::string bytes,
                    std::function<void(result<std::string>)> answer,
                    std::chrono::milliseconds timeout) = 0;
};

}  // namespace deepinfer
