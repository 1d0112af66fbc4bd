/// A client of HTTP that says byte for byte what it is told to, and sees what really comes back.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/check.hpp"
#include "runtime/http/header_text.hpp"

namespace deepinfer::test {

/// How long a test waits for what must come; only a test that fails waits that long.
inline constexpr std::chrono::seconds patience{20};

struct raw_answer {
  int status = 0;  ///< 0: the connection ended before an answer began
  std::string head;
  std::string body;          ///< without its framing
  bool is_complete = false;  ///< as its framing says
  std::size_t chunks = 0;

  std::string header(std::string_view name) const {
    std::string_view rest = head;
    while (!rest.empty()) {
      const auto line = rest.substr(0, rest.find("\r\n"));
      rest.remove_prefix(std::min(line.size() + 2, rest.size()));
      const auto colon = line.find(": ");
      if (colon != std::string_view::npos && equal_ignoring_case(line.substr(0, colon), name))
        return std::string(line.substr(colon + 2));
    }
    return {};
  }
};

class raw_client {
public:
  explicit raw_client(std::uint16_t port, int receive_bytes = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    DI_CHECK(socket_ >= 0, "no socket: errno {}", errno);
    if (receive_bytes > 0)
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    const int yes = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto connected =
      ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    DI_CHECK(connected == 0, "can't connect to port {}: errno {}", port, errno);
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  raw_client(raw_client&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      in_(std::move(other.in_)),
      is_at_end_(other.is_at_end_),
      was_reset_(other.was_reset_) {}
  ~raw_client() { close(); }

  /// False: the server does not take it any more.
  bool send(std::string_view bytes) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!bytes.empty() && std::chrono::steady_clock::now() < until) {
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0)
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      else if (errno == EAGAIN)
        wait(POLLOUT, std::chrono::milliseconds(50));
      else
        return false;
    }
    return bytes.empty();
  }

  /// Reads one answer, or what comes of it until the connection ends.
  raw_answer read_answer(bool is_head = false) {
    raw_answer answer;
    do {  // interim answers are skipped
      if (!read_until("\r\n\r\n")) return answer;
      answer.head = take(in_.find("\r\n\r\n") + 4);
      answer.status = std::atoi(answer.head.c_str() + 9);
    } while (answer.status >= 100 && answer.status < 200);
    const auto length = answer.header("Content-Length");
    if (is_head || answer.status == 204 || answer.status == 304) {
      answer.is_complete = true;
    } else if (equal_ignoring_case(answer.header("Transfer-Encoding"), "chunked")) {
      read_chunks(answer);
    } else if (!length.empty()) {
      const auto bytes = std::strtoull(length.c_str(), nullptr, 10);
      answer.is_complete = read_bytes(bytes);
      answer.body = take(std::min<std::size_t>(bytes, in_.size()));
    } else {
      answer.is_complete = read_to_end();
      answer.body = std::exchange(in_, {});
    }
    return answer;
  }

  /// False: the connection ended, or nothing came for too long.
  bool read_until(std::string_view text) {
    while (in_.find(text) == std::string::npos)
      if (!read_more()) return false;
    return true;
  }
  bool read_bytes(std::size_t count) {
    while (in_.size() < count)
      if (!read_more()) return false;
    return true;
  }
  /// True: the server has closed the connection in good order.
  bool read_to_end() {
    while (read_more()) {
    }
    return is_at_end_ && !was_reset_;
  }
  /// One read of at most `count` bytes, thrown away.
  bool skim(std::size_t count) {
    std::string buffer(count, '\0');
    if (!wait(POLLIN, patience)) return false;
    return ::recv(socket_, buffer.data(), count, MSG_DONTWAIT) > 0;
  }
  std::string take(std::size_t count) {
    auto taken = in_.substr(0, count);
    in_.erase(0, count);
    return taken;
  }
  /// Whether something is there to read, or comes within that time.
  bool has_input(std::chrono::milliseconds time) { return wait(POLLIN, time); }
  void send_urgent() { ::send(socket_, "!", 1, MSG_OOB | MSG_NOSIGNAL); }
  const std::string& unread() const { return in_; }
  bool was_reset() const { return was_reset_; }

  void shutdown_send() { ::shutdown(socket_, SHUT_WR); }
  /// Closes so that the server is sent a reset.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

private:
  bool wait(short events, std::chrono::milliseconds time) {
    pollfd state{socket_, events, 0};
    return ::poll(&state, 1, static_cast<int>(time.count())) > 0;
  }

  bool read_more() {
    if (is_at_end_ || !wait(POLLIN, patience)) return false;
    char buffer[16 << 10];
    const auto size = ::recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (size > 0) {
      in_.append(buffer, static_cast<std::size_t>(size));
      return true;
    }
    is_at_end_ = true;
    was_reset_ = size < 0;
    return false;
  }

  void read_chunks(raw_answer& answer) {
    for (;;) {
      if (!read_until("\r\n")) return;
      const auto end = in_.find("\r\n");
      const auto size = std::strtoull(in_.c_str(), nullptr, 16);
      if (!read_bytes(end + 2 + size + 2)) return;
      answer.body += in_.substr(end + 2, size);
      take(end + 2 + size + 2);
      if (size == 0) break;
      ++answer.chunks;
    }
    answer.is_complete = true;
  }

  int socket_ = -1;
  std::string in_;
  bool is_at_end_ = false;
  bool was_reset_ = false;
};

}  // namespace deepinfer::test
