/// A server for tests: its handler answers what the path asks for, keeps replies, counts calls.
///
///   /echo          method, query and body        /keep   the reply is kept for the test
///   /drop          no answer at all              /throw  an exception
///   anything else  200 and the path
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/http/http_server.hpp"
#include "tests/http/raw_client.hpp"

namespace deepinfer::test {

/// A condition that other threads make true.
class signal {
public:
  void raise() {
    const std::lock_guard lock(mutex_);
    ++raised_;
    changed_.notify_all();
  }
  /// Whether it was raised `times` times, now or soon.
  bool wait(int times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return raised_ >= times; });
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return raised_;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int raised_ = 0;
};

/// Whether `condition` holds now or soon; for what only polling can tell.
inline bool soon(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

struct kept_reply {
  std::shared_ptr<const http_request> request;
  std::shared_ptr<http_reply> reply;
};

class http_fixture {
public:
  explicit http_fixture(http_server_options options = {}) {
    if (!options.refuse)
      options.refuse = [](const error& why) {
        return http_response{http_status_of(why.code),
                             {{"Content-Type", "application/json"}},
                             fmt::format("{{\"error\":\"{}\"}}", name_of(why.code))};
      };
    auto opened = http_server::open(std::move(options), [this](auto request, auto reply) {
      handle(std::move(request), std::move(reply));
    });
    DI_CHECK(opened.has_value(), "{}", opened.error().message);
    server_ = std::move(*opened);
  }
  ~http_fixture() { server_.reset(); }

  http_server& server() { return *server_; }
  raw_client connect(int receive_bytes = 0) { return raw_client(server_->port(), receive_bytes); }

  /// The n-th kept request and its reply, as soon as it is there.
  kept_reply& kept(int n = 1) {
    DI_CHECK(was_kept_.wait(n), "the handler was not called");
    const std::lock_guard lock(mutex_);
    return *kept_.at(static_cast<std::size_t>(n) - 1);
  }
  int kept_count() { return was_kept_.count(); }

  /// Whether the server still serves.
  bool is_alive() {
    auto client = connect();
    client.send("GET /alive HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    const auto answer = client.read_answer();
    return answer.status == 200 && answer.body == "/alive";
  }

private:
  void handle(std::shared_ptr<const http_request> request, std::shared_ptr<http_reply> reply) {
    const auto& path = request->path;
    if (path == "/keep") {
      {
        const std::lock_guard lock(mutex_);
        kept_.push_back(std::make_unique<kept_reply>(kept_reply{request, reply}));
      }
      was_kept_.raise();
    } else if (path == "/throw") {
      throw std::runtime_error("the handler's own");
    } else if (path == "/echo") {
      reply->send({200,
                   {{"Content-Type", "text/plain"}},
                   fmt::format("{} {} {}", request->method, request->query, request->body)});
    } else if (path != "/drop") {
      reply->send({200, {{"Content-Type", "text/plain"}}, path});
    }
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<kept_reply>> kept_;
  signal was_kept_;
  std::unique_ptr<http_server> server_;
};

}  // namespace deepinfer::test
