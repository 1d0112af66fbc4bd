#include "actors/http_front.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

namespace deepinfer {
namespace {

/// Health alone, one connection at a time.
class health_front final : public http_front {
public:
  health_front(int listener, std::uint16_t port) : listener_(listener), port_(port) {
    thread_ = std::jthread([this] { run(); });
  }
  ~health_front() override { stop(std::chrono::milliseconds(0)); }

  std::uint16_t port() const override { return port_; }
  void note_loading(double progress, const std::string& stage) override {
    const std::lock_guard lock(mutex_);
    state_ =
      fmt::format(R"({{"status":"loading","progress":{:.2f},"stage":"{}"}})", progress, stage);
  }
  void attach(client engine) override {
    const std::lock_guard lock(mutex_);
    engine_ = std::move(engine);
    state_ = R"({"status":"ready"})";
  }
  void begin_drain() override {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    state_ = R"({"status":"draining"})";
  }
  void stop(std::chrono::milliseconds) override {
    if (has_stopped_.exchange(true)) return;
    thread_.join();
    ::close(listener_);
    engine_.reset();
  }

private:
  void run() {
    while (!has_stopped_) {
      pollfd it{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&it, 1, 20) != 1) continue;
      const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) continue;
      char request[4096];
      static_cast<void>(::recv(peer, request, sizeof request, 0));
      const std::lock_guard lock(mutex_);
      const bool is_ready = engine_ && !is_draining_;
      const auto answer =
        fmt::format("HTTP/1.1 {}\r\nContent-Type: application/json\r\n"
                    "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                    is_ready ? "200 OK" : "503 Service Unavailable", state_.size(), state_);
      static_cast<void>(::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL));
      ::close(peer);
    }
  }

  int listener_;
  std::uint16_t port_;
  std::mutex mutex_;
  std::string state_ = R"({"status":"loading"})";
  std::optional<client> engine_;
  bool is_draining_ = false;
  std::atomic<bool> has_stopped_{false};
  std::jthread thread_;
};

}  // namespace

result<std::unique_ptr<http_front>> http_front::open(const engine_settings& settings, metrics*) {
  const auto& server = settings.server;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port);
  if (::inet_pton(AF_INET, server.host.c_str(), &address.sin_addr) != 1)
    return fail(errc::bad_config, "server.host: found " + server.host + ", expected an address");
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener, any, size) != 0 || ::listen(listener, 64) != 0 ||
      ::getsockname(listener, any, &size) != 0) {
    ::close(listener);
    return fail(errc::port_in_use,
                fmt::format("{}:{}: {}; another process has this port: --port 0 takes a free one",
                            server.host, server.port, std::strerror(errno)));
  }
  return std::make_unique<health_front>(listener, ntohs(address.sin_port));
}

}  // namespace deepinfer
