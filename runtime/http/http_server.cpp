#include "runtime/http/http_server.hpp"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <fmt/format.h>

#include "runtime/base/log.hpp"
#include "runtime/http/connection_core.hpp"
#include "runtime/http/header_text.hpp"
#include "runtime/http/http_service.hpp"
#include "runtime/http/uri.hpp"

namespace deepinfer {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using steady = std::chrono::steady_clock;

constexpr std::size_t read_bytes = 64 << 10;
/// Above max_connections: that many are told so, further ones are just closed.
constexpr std::size_t max_turned_away = 64;
/// After an accept that failed, for want of descriptors for instance.
constexpr std::chrono::milliseconds accept_pause{50};
/// Bytes the kernel may hold unsent for one client; the others count as pending.
constexpr int kernel_unsent_bytes = 128 << 10;

/// Reads one request with Beast's parser, and counts what Beast does not.
class beast_reader final : public request_reader, private beast_http::basic_parser<true> {
public:
  explicit beast_reader(const http_server_options& limits)
    : limits_(limits),
      request_(std::make_shared<http_request>()) {
    header_limit(std::numeric_limits<std::uint32_t>::max());
    body_limit(boost::none);
  }

  std::size_t feed(std::string_view bytes) override;
  const std::optional<http_refusal>& refusal() const override { return refusal_; }
  bool has_header() const override { return is_header_done(); }
  bool is_complete() const override { return is_done(); }
  bool is_http_10() const override { return is_http_10_; }
  std::uint64_t content_length() const override {
    const auto length = basic_parser::content_length();
    return length ? *length : 0;
  }
  const std::shared_ptr<http_request>& request() const override { return request_; }

private:
  using view = boost::beast::string_view;

  void refuse(error_code& ec, http_refusal why) {
    refusal_ = std::move(why);
    ec = beast_http::error::body_limit;  // any code stops the parser
  }

  void on_request_impl(beast_http::verb, view method, view target, int version,
                       error_code& ec) override {
    request_->method.assign(method.data(), method.size());
    is_http_10_ = version == 10;
    auto parts = split_target({target.data(), target.size()});
    if (!parts) return refuse(ec, {400, std::move(parts).error()});
    request_->path = std::move(parts->path);
    request_->query = std::move(parts->query);
  }
  void on_field_impl(beast_http::field, view name, view value, error_code& ec) override {
    if (++lines_ > limits_.max_headers)
      return refuse(ec, refusal_of(431, errc::invalid_argument,
                                   fmt::format("header: more than {} lines", limits_.max_headers)));
    if (is_trailer_) return;
    request_->headers.push_back({std::string(name), std::string(value)});
  }
  void on_header_impl(error_code&) override { is_trailer_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code&) override {
    request_->body.reserve(std::min<std::size_t>(length.value_or(0), 1 << 20));
  }
  std::size_t on_body_impl(view bytes, error_code&) override {
    request_->body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, view, error_code& ec) override {
    if (size <= limits_.max_body_bytes - request_->body.size()) return;
    refuse(ec, refusal_of(errc::payload_too_large,
                          fmt::format("body: more than {} bytes", limits_.max_body_bytes)));
  }
  std::size_t on_chunk_body_impl(std::uint64_t, view bytes, error_code& ec) override {
    return on_body_impl(bytes, ec);
  }
  void on_finish_impl(error_code&) override {}
  void on_response_impl(int, view, int, error_code&) override {}

  const http_server_options& limits_;
  std::shared_ptr<http_request> request_;
  std::optional<http_refusal> refusal_;
  std::size_t header_bytes_ = 0;
  std::size_t lines_ = 0;
  bool is_http_10_ = false;
  bool is_trailer_ = false;
};

std::size_t beast_reader::feed(std::string_view bytes) {
  const bool was_header = !is_header_done();
  error_code ec;
  const auto used = put(asio::buffer(bytes), ec);
  if (refusal_) return used;
  if (ec && ec != beast_http::error::need_more) {
    const bool is_bare = has_bare_line_feed(bytes);
    const bool is_version = ec == beast_http::error::bad_version && !is_bare;
    refusal_ = refusal_of(is_version ? 505 : 400, errc::invalid_argument,
                          fmt::format("not a request of HTTP/1.1: {}",
                                      is_bare ? "a line ends with LF alone" : ec.message()));
    return used;
  }
  const auto unused = bytes.size() - used;
  if (was_header) {
    if (has_folded_line(bytes.substr(0, used)))
      refusal_ = refusal_of(errc::invalid_argument, "header: a line is folded");
    header_bytes_ += used;
    if (header_bytes_ + (is_header_done() ? 0 : unused) > limits_.max_header_bytes)
      refusal_ = refusal_of(431, errc::invalid_argument,
                            fmt::format("header: more than {} bytes", limits_.max_header_bytes));
  } else if (used == 0 && unused > limits_.max_header_bytes) {
    refusal_ = refusal_of(errc::invalid_argument, "body: the line of a chunk is too long");
  }
  return used;
}

class connection;

/// What the io thread owns.
struct io_parts {
  io_parts(http_server_options with, http_handler calls)
    : service(std::move(with), std::move(calls)),
      scratch(read_bytes, '\0') {}

  http_service service;
  std::unordered_set<std::shared_ptr<connection>> connections;
  std::size_t turned_away = 0;
  std::string scratch;  ///< of every read: an idle connection has no buffer
  asio::io_context io{1};
};

/// The socket of one connection: does what its core asks for.
class connection final : public reply_owner, public std::enable_shared_from_this<connection> {
public:
  connection(io_parts& parts, tcp::socket socket, std::string peer)
    : parts_(parts),
      socket_(std::move(socket)),
      timer_(parts.io),
      core_(parts.service, std::move(peer), steady::now()) {}

  void start(bool is_one_too_many) {
    core_.set_owner(weak_from_this());
    is_turned_away_ = is_one_too_many;
    if (is_turned_away_) {
      ++parts_.turned_away;
      const auto limit = parts_.service.options.max_connections;
      core_.turn_away(refusal_of(errc::overloaded,
                                 fmt::format("{} connections are open, no more are served", limit)),
                      steady::now());
    }
    settle();
  }
  void reply_changed(reply_state& reply) override {
    core_.reply_changed(reply, steady::now());
    settle();
  }
  void close_if_idle() {
    core_.close_if_idle();
    settle();
  }
  void close_now() {
    core_.lost();
    settle();
  }

private:
  void settle();
  void wait_for_client();
  void on_readable();
  void write();
  void start_timer();
  void close(bool with_reset);

  io_parts& parts_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  connection_core core_;
  steady::time_point timer_at_ = steady::time_point::max();
  bool is_turned_away_ = false;
  bool is_read_awaited_ = false;
  bool is_alarm_awaited_ = false;
  bool is_writing_ = false;
  bool is_sending_over_ = false;
  bool is_closed_ = false;
};

/// After every event: whatever the core now wants is set in motion.
void connection::settle() {
  if (is_closed_) return;
  const auto ending = core_.how_to_end();
  if (ending == connection_core::ending::closed || ending == connection_core::ending::reset)
    return close(ending == connection_core::ending::reset);
  if (ending == connection_core::ending::lingering && !std::exchange(is_sending_over_, true)) {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  if (!is_writing_ && !core_.output().is_empty()) write();
  wait_for_client();
  if (core_.deadline() < timer_at_) start_timer();
}

/// A reset is noticed by a pending read, or, where bytes are not wanted, by a wait for errors only.
void connection::wait_for_client() {
  if (core_.wants_bytes()) {
    if (std::exchange(is_read_awaited_, true)) return;
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
      self->is_read_awaited_ = false;
      if (!ec && !self->is_closed_) self->on_readable();
    });
  } else if (!std::exchange(is_alarm_awaited_, true)) {
    socket_.async_wait(tcp::socket::wait_error, [self = shared_from_this()](error_code ec) {
      if (ec || self->is_closed_) return;
      pollfd state{self->socket_.native_handle(), 0, 0};
      // Urgent data wakes as well, for as long as it is there: such a client is watched no more.
      if (::poll(&state, 1, 0) > 0 && (state.revents & (POLLERR | POLLHUP)) != 0) self->close_now();
    });
  }
}

void connection::on_readable() {
  if (core_.wants_bytes()) {
    error_code ec;
    const auto size = socket_.read_some(asio::buffer(parts_.scratch), ec);
    if (ec == asio::error::eof)
      core_.input_ended(steady::now());
    else if (!ec)
      core_.bytes_came({parts_.scratch.data(), size}, steady::now());
    else if (ec != asio::error::would_block && ec != asio::error::interrupted)
      core_.lost();
  }
  settle();
}

void connection::write() {
  is_writing_ = true;
  const auto rest = core_.output().rest();
  const std::array buffers{asio::buffer(rest[0]), asio::buffer(rest[1]), asio::buffer(rest[2])};
  socket_.async_write_some(buffers, [self = shared_from_this()](error_code ec, std::size_t size) {
    self->is_writing_ = false;
    if (self->is_closed_) return;
    if (ec)
      self->core_.lost();
    else
      self->core_.bytes_sent(size, steady::now());
    self->settle();
  });
}

/// The timer may run out early, never late: a deadline that moves away costs nothing.
void connection::start_timer() {
  timer_at_ = core_.deadline();
  timer_.expires_at(timer_at_);
  timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (ec || self->is_closed_) return;
    self->timer_at_ = steady::time_point::max();
    self->core_.time_is_up(steady::now());
    self->settle();
  });
}

void connection::close(bool with_reset) {
  is_closed_ = true;
  const auto self = shared_from_this();
  error_code ignored;
  if (with_reset) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
  timer_.cancel();
  if (is_turned_away_) --parts_.turned_away;
  parts_.service.counts.open.fetch_sub(1, std::memory_order_relaxed);
  parts_.connections.erase(self);
  if (parts_.service.is_stopping && parts_.connections.empty()) parts_.io.stop();
}

class server final : public http_server {
public:
  server(http_server_options options, http_handler handler)
    : parts_(std::move(options), std::move(handler)),
      acceptor_(parts_.io),
      pause_(parts_.io) {
    auto& service = parts_.service;
    service.doorbell = std::make_shared<reply_doorbell>(
      [this] { asio::post(parts_.io, [this] { answer_bell(); }); });
    service.make_reader = [&service]() -> std::unique_ptr<request_reader> {
      return std::make_unique<beast_reader>(service.options);
    };
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server() override {
    stop(std::chrono::milliseconds(0));
    parts_.service.doorbell->close();
  }

  result<void> listen();

  std::uint16_t port() const override { return port_; }
  http_server_stats stats() const override {
    const auto& counts = parts_.service.counts;
    return {counts.open, counts.connections, counts.requests, counts.refused, counts.gone};
  }
  void after(std::chrono::milliseconds delay, std::function<void()> call) override;
  void stop(std::chrono::milliseconds deadline) override;

private:
  void run();
  void accept();
  void welcome(tcp::socket socket);
  void answer_bell();
  void begin_to_stop(std::chrono::milliseconds deadline);
  void close_all();

  io_parts parts_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;  ///< until the next accept, then until the end
  std::uint16_t port_ = 0;
  bool can_not_accept_ = false;
  std::mutex stop_mutex_;
  std::thread thread_;
};

result<void> server::listen() {
  const auto& options = parts_.service.options;
  const auto place = fmt::format("{}:{}", options.host, options.port);
  error_code ec;
  auto address = asio::ip::make_address(options.host, ec);
  if (ec) {
    tcp::resolver resolver(parts_.io);
    const auto found = resolver.resolve(options.host, "", ec);
    if (ec || found.empty())
      return fail(errc::bad_config, fmt::format("{}: host is not known: {}", place, ec.message()));
    address = found.begin()->endpoint().address();
  }
  const tcp::endpoint endpoint(address, options.port);
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec == asio::error::address_in_use)
    return fail(errc::port_in_use,
                fmt::format("{}: port is in use by another process; choose another one", place));
  if (ec) return fail(errc::bad_config, fmt::format("{}: can't listen: {}", place, ec.message()));
  port_ = acceptor_.local_endpoint().port();
  accept();
  thread_ = std::thread([this] { run(); });
  return {};
}

void server::run() {
  ::pthread_setname_np(::pthread_self(), "http_io");
  const auto work = asio::make_work_guard(parts_.io);
  while (!run_guarded("io thread", [this] { parts_.io.run(); })) {
  }
  close_all();
}

void server::accept() {
  acceptor_.async_accept([this](error_code ec, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (!ec) welcome(std::move(socket));
    const bool is_told =
      std::exchange(can_not_accept_, ec && ec != asio::error::connection_aborted);
    if (!can_not_accept_) return accept();
    // Out of descriptors, mostly. The client waits in the kernel's queue; so do we.
    if (!is_told) log(severity::warning, "http: can't accept a connection: {}", ec.message());
    pause_.expires_after(accept_pause);
    pause_.async_wait([this](error_code cancelled) {
      if (!cancelled && acceptor_.is_open()) accept();
    });
  });
}

void server::welcome(tcp::socket socket) {
  auto& counts = parts_.service.counts;
  const auto open = static_cast<std::size_t>(counts.open.load()) - parts_.turned_away;
  const auto limit = static_cast<std::size_t>(std::max(parts_.service.options.max_connections, 1));
  const bool is_one_too_many = open >= limit;
  if (is_one_too_many && parts_.turned_away >= max_turned_away) return;  // closes it
  error_code ec;
  const auto remote = socket.remote_endpoint(ec);
  if (ec) return;  // left already
  socket.non_blocking(true, ec);
  socket.set_option(tcp::no_delay(true), ec);
  socket.set_option(asio::socket_base::keep_alive(true), ec);
  const int unsent = kernel_unsent_bytes;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  const auto address = remote.address();
  const auto text = address.to_string();
  auto peer = address.is_v6() ? fmt::format("[{}]:{}", text, remote.port())
                              : fmt::format("{}:{}", text, remote.port());
  counts.open.fetch_add(1, std::memory_order_relaxed);
  counts.connections.fetch_add(1, std::memory_order_relaxed);
  auto one = std::make_shared<connection>(parts_, std::move(socket), std::move(peer));
  parts_.connections.insert(one);
  one->start(is_one_too_many);
}

void server::answer_bell() {
  for (const auto& reply : parts_.service.doorbell->take()) reply->answer_bell();
}

void server::after(std::chrono::milliseconds delay, std::function<void()> call) {
  asio::post(parts_.io, [this, delay, call = std::move(call)]() mutable {
    auto timer = std::make_shared<asio::steady_timer>(parts_.io, delay);
    timer->async_wait([timer, call = std::move(call)](error_code ec) {
      if (!ec) run_guarded("a call of after", call);
    });
  });
}

void server::stop(std::chrono::milliseconds deadline) {
  asio::post(parts_.io, [this, deadline] { begin_to_stop(deadline); });
  if (parts_.io.get_executor().running_in_this_thread()) return;  // it can't wait for itself
  const std::lock_guard lock(stop_mutex_);
  if (thread_.joinable()) thread_.join();
}

void server::begin_to_stop(std::chrono::milliseconds deadline) {
  parts_.service.is_stopping = true;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.expires_after(std::max(deadline, std::chrono::milliseconds(0)));
  pause_.async_wait([this](error_code ec) {
    if (!ec) parts_.io.stop();
  });
  const auto open = parts_.connections;
  for (const auto& one : open) one->close_if_idle();
  if (parts_.connections.empty()) parts_.io.stop();
}

void server::close_all() {
  const auto open = parts_.connections;
  for (const auto& one : open) one->close_now();
}

}  // namespace

const std::string* find_header(const std::vector<http_header>& headers, std::string_view name) {
  for (const auto& line : headers)
    if (equal_ignoring_case(line.name, name)) return &line.value;
  return nullptr;
}

const std::string* http_request::header(std::string_view name) const {
  return find_header(headers, name);
}

std::size_t http_request::count(std::string_view name) const {
  return static_cast<std::size_t>(
    std::count_if(headers.begin(), headers.end(),
                  [&](const http_header& line) { return equal_ignoring_case(line.name, name); }));
}

result<std::unique_ptr<http_server>> http_server::open(http_server_options options,
                                                       http_handler handler) {
  auto opened = std::make_unique<server>(std::move(options), std::move(handler));
  DI_TRY_VOID(opened->listen());
  return opened;
}

}  // namespace deepinfer
