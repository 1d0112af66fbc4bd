/// An HTTP client for load: many requests at once on the caller's thread, over kept connections.
///
/// Requests start when their time has come, whether earlier ones have ended or not (open loop),
/// unless `most_open` is reached. Times are steady-clock nanoseconds. No thread of its own.
/// Errors: bad_config (the URL, or its host has no address), io_failed per request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {

/// http://HOST[:PORT][/BASE]; nothing else.
struct http_url {
  std::string host;
  std::uint16_t port = 80;
  std::string base;  ///< without a slash at its end
};
result<http_url> parse_url(std::string_view text);

/// One request and who is told of its answer.
struct load_request {
  std::int64_t start_ns = 0;
  std::string method = "POST";
  std::string path;
  std::vector<http_header> headers;
  std::string body;
  /// Pieces of the body of an answer, with the time at which they were read.
  std::function<void(int status, std::string_view piece, std::int64_t now_ns)> on_body;
  /// Its end: the status, or why there is none.
  std::function<void(result<int> status, std::int64_t now_ns)> on_end;
  std::function<void(std::int64_t now_ns)> on_sent;  ///< its first byte leaves; may be empty
};

class load_client {
public:
  static result<std::unique_ptr<load_client>> make(const http_url& to, std::int32_t most_open);
  ~load_client();

  /// In rising order of `start_ns`.
  void add(load_request request);

  /// Sends and reads until every request has ended, or `is_stopped` (asked ten times a second;
  /// null: never): then nobody hears any more of those that have not. Requests open after
  /// `timeout_ns` without any byte fail. Returns the share of the time that this thread computed,
  /// 0 to 1.
  double run(std::int64_t timeout_ns, const std::function<bool()>& is_stopped = {});

private:
  struct state;
  explicit load_client(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

/// One request, whole; for small answers.
result<http_response> fetch(const http_url& from, const std::string& method,
                            const std::string& path, std::vector<http_header> headers,
                            std::string body, std::int64_t timeout_ns);

}  // namespace deepinfer
