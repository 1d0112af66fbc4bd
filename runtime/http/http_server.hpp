/// HTTP/1.1 for one process: parses, limits, streams, notices who has left. Knows nothing of what
/// is served. The only file that names Beast is http_server.cpp; no type of it appears here.
///
/// One io thread reads and writes every connection. The handler is called on it for each request
/// whose body is complete, and must not block; it answers through `http_reply`, from any thread,
/// now or later. Requests of one connection are handled one after the other, those that came ahead
/// wait. What breaks a limit or is no HTTP is answered here, through `refuse` of the options, so
/// that every error has the product's form; the status is the server's where it says more than the
/// error's code does (417, 431, 501, 505).
///
/// A client is gone when its connection is reset or a write fails, noticed while nothing is written
/// as well; with `eof_is_gone` also when it closes in good order, which looks like closing the
/// sending side alone. An answer that is complete by then is still sent, the one at work is
/// cancelled, and requests that came ahead behind them are not begun. A client that reads slowly
/// fills its reply's buffer: `pending_bytes` tells, `on_drained` is called when it is empty enough.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"

namespace deepinfer {

struct http_header {
  std::string name, value;
};

/// Value of the first header of that name in any case; null: none.
const std::string* find_header(const std::vector<http_header>& headers, std::string_view name);

struct http_request {
  std::string method;  ///< as sent, upper case by convention
  std::string path;    ///< of the target, percent-decoded
  std::string query;   ///< without the question mark, as sent
  std::vector<http_header> headers;
  std::string body;
  std::string peer;              ///< address and port
  std::int64_t received_us = 0;  ///< steady clock, when its header was complete

  /// Value of the first header of that name in any case; null: none.
  const std::string* header(std::string_view name) const;
  std::size_t count(std::string_view name) const;
};

struct http_response {
  int status = 200;
  std::vector<http_header> headers;  ///< beside Content-Length, Date, Server, Connection
  std::string body;
};

/// The answer to one request. Thread-safe; may outlive its connection and the server, then it does
/// nothing. Dropped without an answer it answers 500.
class http_reply {
public:
  virtual ~http_reply() = default;

  /// The whole answer. HEAD gets its header.
  virtual void send(http_response whole) = 0;

  /// A stream: its header, then pieces, each flushed, then the end. `cut` ends it so that the
  /// client sees that it is not complete.
  virtual void begin(int status, std::vector<http_header> headers) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  virtual void cut() = 0;

  /// Handed to `write` and not yet taken by the kernel.
  virtual std::size_t pending_bytes() const = 0;

  /// Called once, on the io thread, if the client leaves before the answer is complete; soon where
  /// it has left already.
  virtual void on_gone(std::function<void()> call) = 0;
  /// Called on the io thread whenever what is pending falls to `low_bytes` or below.
  virtual void on_drained(std::size_t low_bytes, std::function<void()> call) = 0;
  virtual bool is_gone() const = 0;
};

using http_handler =
  std::function<void(std::shared_ptr<const http_request>, std::shared_ptr<http_reply>)>;

struct http_server_options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one
  std::string server_name = "deepinfer";
  std::size_t max_body_bytes = 32 << 20;
  std::size_t max_header_bytes = 32 << 10;
  std::size_t max_headers = 100;
  std::int32_t max_connections = 4096;
  std::size_t max_pipelined = 16;
  std::chrono::milliseconds header_timeout{10'000};  ///< from its first byte on
  std::chrono::milliseconds body_timeout{30'000};    ///< longest pause within a body
  std::chrono::milliseconds write_timeout{60'000};   ///< longest time without a byte taken
  std::chrono::milliseconds idle_timeout{120'000};   ///< between requests, before the first
  /// Off: a client may close its sending side behind its requests and still gets every answer.
  bool eof_is_gone = true;
  /// The answer to what never reaches the handler: too large (413), too slow (408), too many
  /// connections (503), not HTTP (400), ...
  std::function<http_response(const error&)> refuse;
  /// Whether a request may come, asked when its header is there (Expect: 100-continue waits for
  /// it): a refusal spares the transfer of the body. On the io thread. Null: always.
  std::function<result<void>(const http_request&)> admit;
};

/// Counts since the start, and gauges.
struct http_server_stats {
  std::int64_t open_connections = 0;
  std::uint64_t connections = 0;
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;       ///< answered by `refuse`
  std::uint64_t gone_clients = 0;  ///< left before their answer was complete
};

class http_server {
public:
  /// Binds and listens. Errors: port_in_use (address, port and a hint), bad_config.
  static result<std::unique_ptr<http_server>> open(http_server_options options,
                                                   http_handler handler);
  virtual ~http_server() = default;  ///< stop(0)

  virtual std::uint16_t port() const = 0;
  virtual http_server_stats stats() const = 0;

  /// Runs `call` on the io thread after `delay`, unless the server has stopped by then.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> call) = 0;

  /// No new connections, idle ones are closed, open answers may go on until `deadline`; then
  /// everything is closed. Returns when the io thread has ended; at once where it is the caller.
  virtual void stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace deepinfer
