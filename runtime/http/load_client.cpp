#include "runtime/http/load_client.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>

#include <fmt/format.h>

#include "runtime/http/response_parser.hpp"

namespace deepinfer {
namespace {

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

std::int64_t thread_cpu_ns() {
  timespec it{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &it);
  return std::int64_t{it.tv_sec} * 1'000'000'000 + it.tv_nsec;
}

struct address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

result<address> resolve(const http_url& to) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const auto failed =
    getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &wanted, &found);
  if (failed != 0 || !found)
    return fail(errc::bad_config, fmt::format("{}: {}", to.host, gai_strerror(failed)));
  address out;
  std::memcpy(&out.bytes, found->ai_addr, found->ai_addrlen);
  out.size = found->ai_addrlen;
  freeaddrinfo(found);
  return out;
}

std::string head_of(const load_request& it, const http_url& to) {
  auto out = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nContent-Length: {}\r\n", it.method,
                         to.base, it.path, to.host, to.port, it.body.size());
  for (const auto& header : it.headers) out += fmt::format("{}: {}\r\n", header.name, header.value);
  return out + "\r\n";
}

/// A connection and the request it carries.
struct link {
  int fd = -1;
  bool was_used = false;  ///< an answer has come over it: it may have been closed since
  std::unique_ptr<load_request> request;
  std::string out;
  std::size_t sent = 0;
  std::unique_ptr<response_parser> parser;
  std::int64_t last_byte_ns = 0;
};

}  // namespace

result<http_url> parse_url(std::string_view text) {
  const auto whole = text;
  constexpr std::string_view scheme = "http://";
  const auto wrong = [whole] {
    return fail(errc::bad_config,
                fmt::format("found '{}', expected http://HOST[:PORT][/PATH]", whole), "url");
  };
  if (!text.starts_with(scheme)) return wrong();
  text.remove_prefix(scheme.size());
  http_url out;
  const auto slash = text.find('/');
  if (slash != std::string_view::npos) out.base = text.substr(slash);
  while (!out.base.empty() && out.base.back() == '/') out.base.pop_back();
  text = text.substr(0, slash);
  const auto bracket = text.rfind(']');
  const auto colon = text.rfind(':');
  const bool has_port =
    colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (has_port) {
    const auto digits = text.substr(colon + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
    if (digits.empty() || read.ec != std::errc{} || read.ptr != digits.data() + digits.size())
      return wrong();
    text = text.substr(0, colon);
  }
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  if (text.empty()) return wrong();
  out.host = text;
  return out;
}

struct load_client::state {
  http_url to;
  address at;
  std::int32_t most_open = 0;
  int poll_fd = -1;
  std::deque<load_request> waiting;
  std::vector<std::unique_ptr<link>> links;
  std::vector<link*> idle;
  std::int32_t open = 0;

  ~state() {
    for (auto& it : links)
      if (it->fd >= 0) close(it->fd);
    if (poll_fd >= 0) close(poll_fd);
  }

  void connect(link& it) {
    it.fd = socket(at.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    it.was_used = false;
    if (it.fd < 0) return;
    const int on = 1;
    setsockopt(it.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    event.data.ptr = &it;
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, it.fd, &event);
    if (::connect(it.fd, reinterpret_cast<const sockaddr*>(&at.bytes), at.size) != 0 &&
        errno != EINPROGRESS)
      disconnect(it);
  }

  void disconnect(link& it) {
    if (it.fd >= 0) close(it.fd);
    it.fd = -1;
  }

  /// Only what there is to write is waited for.
  void watch(link& it, bool writes) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | (writes ? EPOLLOUT : 0u);
    event.data.ptr = &it;
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, it.fd, &event);
  }

  void start(load_request request) {
    link* it = nullptr;
    if (!idle.empty()) {
      it = idle.back();
      idle.pop_back();
    } else {
      it = links.emplace_back(std::make_unique<link>()).get();
    }
    ++open;
    it->request = std::make_unique<load_request>(std::move(request));
    it->out = head_of(*it->request, to) + it->request->body;
    begin(*it);
  }

  void begin(link& it) {
    it.sent = 0;
    it.last_byte_ns = now_ns();
    auto* request = it.request.get();
    auto* at_link = &it;
    it.parser = std::make_unique<response_parser>(
      [request, at_link](std::string_view piece) {
        if (request->on_body) request->on_body(at_link->parser->status(), piece, now_ns());
      },
      request->method != "HEAD");
    if (request->on_sent) request->on_sent(it.last_byte_ns);
    if (it.fd < 0) connect(it);
    if (it.fd < 0) return end(it, fail(errc::io_failed, std::strerror(errno)));
    write(it);
  }

  void write(link& it) {
    while (it.sent < it.out.size()) {
      const auto done =
        ::send(it.fd, it.out.data() + it.sent, it.out.size() - it.sent, MSG_NOSIGNAL);
      if (done < 0) {
        if (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS) break;
        return fail_or_retry(it, std::strerror(errno));
      }
      it.sent += static_cast<std::size_t>(done);
      it.last_byte_ns = now_ns();
    }
    watch(it, it.sent < it.out.size());
  }

  /// A kept connection that the server closed meanwhile is no failure of the request.
  void fail_or_retry(link& it, const std::string& why) {
    const bool may_retry = it.was_used && !it.parser->has_head();
    disconnect(it);
    if (may_retry) return begin(it);
    end(it, fail(errc::io_failed, why));
  }

  void read(link& it) {
    std::array<char, 64 << 10> buffer;
    while (it.request) {
      const auto got = ::recv(it.fd, buffer.data(), buffer.size(), 0);
      if (got < 0) {
        if (errno == EAGAIN) return;
        return fail_or_retry(it, std::strerror(errno));
      }
      if (got == 0) {
        const auto ended = it.parser->finish();
        if (!ended) return fail_or_retry(it, ended.error().message);
        disconnect(it);
        return end(it, it.parser->status());
      }
      it.last_byte_ns = now_ns();
      const auto fed = it.parser->feed({buffer.data(), static_cast<std::size_t>(got)});
      if (!fed) {
        disconnect(it);
        return end(it, tl::unexpected<error>(fed.error()));
      }
      if (it.parser->is_complete()) {
        if (!it.parser->keeps_alive()) disconnect(it);
        it.was_used = true;
        return end(it, it.parser->status());
      }
    }
  }

  void end(link& it, result<int> status) {
    const auto request = std::move(it.request);
    it.request.reset();
    --open;
    idle.push_back(&it);
    if (request->on_end) request->on_end(std::move(status), now_ns());
  }

  void take(const epoll_event& event) {
    auto& it = *static_cast<link*>(event.data.ptr);
    if (it.fd < 0) return;
    if (!it.request) {
      if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) disconnect(it);
      return;
    }
    if ((event.events & EPOLLERR) != 0) {
      int code = 0;
      socklen_t size = sizeof code;
      getsockopt(it.fd, SOL_SOCKET, SO_ERROR, &code, &size);
      return fail_or_retry(it, std::strerror(code));
    }
    if ((event.events & EPOLLOUT) != 0) write(it);
    if (it.fd >= 0 && it.request && (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0)
      read(it);
  }

  void end_silent(std::int64_t before_ns) {
    for (auto& it : links) {
      if (!it->request || it->last_byte_ns >= before_ns) continue;
      disconnect(*it);
      end(*it, fail(errc::deadline_exceeded, "no byte of the answer in time"));
    }
  }
};

load_client::load_client(std::unique_ptr<state> made) : state_(std::move(made)) {}
load_client::~load_client() = default;

result<std::unique_ptr<load_client>> load_client::make(const http_url& to, std::int32_t most_open) {
  auto made = std::make_unique<state>();
  made->to = to;
  made->most_open = most_open;
  DI_TRY(made->at, resolve(to));
  made->poll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (made->poll_fd < 0) return fail(errc::io_failed, std::strerror(errno));
  return std::unique_ptr<load_client>(new load_client(std::move(made)));
}

void load_client::add(load_request request) {
  state_->waiting.push_back(std::move(request));
}

double load_client::run(std::int64_t timeout_ns, const std::function<bool()>& is_stopped) {
  auto& it = *state_;
  const auto begin = now_ns();
  const auto cpu = thread_cpu_ns();
  std::array<epoll_event, 256> events;
  while ((!it.waiting.empty() || it.open > 0) && !(is_stopped && is_stopped())) {
    const auto now = now_ns();
    while (!it.waiting.empty() && it.open < it.most_open && it.waiting.front().start_ns <= now) {
      auto next = std::move(it.waiting.front());
      it.waiting.pop_front();
      it.start(std::move(next));
    }
    std::int64_t wait_ns = 100'000'000;
    if (!it.waiting.empty() && it.open < it.most_open)
      wait_ns = std::clamp<std::int64_t>(it.waiting.front().start_ns - now_ns(), 0, wait_ns);
    const timespec wait{wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
    const int count =
      epoll_pwait2(it.poll_fd, events.data(), static_cast<int>(events.size()), &wait, nullptr);
    for (int i = 0; i < count; ++i) it.take(events[static_cast<std::size_t>(i)]);
    it.end_silent(now_ns() - timeout_ns);
  }
  const auto span = std::max<std::int64_t>(1, now_ns() - begin);
  return static_cast<double>(thread_cpu_ns() - cpu) / static_cast<double>(span);
}

result<http_response> fetch(const http_url& from, const std::string& method,
                            const std::string& path, std::vector<http_header> headers,
                            std::string body, std::int64_t timeout_ns) {
  DI_TRY(const auto client, load_client::make(from, 1));
  http_response out;
  result<int> status = fail(errc::internal, "no answer");
  load_request request;
  request.method = method;
  request.path = path;
  request.headers = std::move(headers);
  request.body = std::move(body);
  request.on_body = [&out](int, std::string_view piece, std::int64_t) { out.body += piece; };
  request.on_end = [&status](result<int> ended, std::int64_t) { status = std::move(ended); };
  client->add(std::move(request));
  client->run(timeout_ns);
  DI_TRY(out.status, std::move(status));
  return out;
}

}  // namespace deepinfer
