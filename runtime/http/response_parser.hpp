/// Reads HTTP/1.1 responses from bytes as they come: the client's half of the protocol, for load
/// generators and commands. A plain class: no socket, no clock.
///
/// Bodies end by Content-Length, by chunks, or by the end of the connection. Interim answers (1xx)
/// are skipped. Errors: invalid_argument, naming what was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {

class response_parser {
public:
  /// Told of the pieces of a body as they come; may be empty.
  using body_call = std::function<void(std::string_view)>;

  /// `has_body` is false for answers to HEAD.
  explicit response_parser(body_call on_body = {}, bool has_body = true)
    : on_body_(std::move(on_body)),
      has_body_(has_body) {}

  /// Takes bytes up to the end of the response and tells how many; fewer than given only when it is
  /// complete.
  result<std::size_t> feed(std::string_view bytes);
  /// The connection has ended: error unless the response is complete with that.
  result<void> finish();

  bool is_complete() const { return part_ == part::done; }
  bool has_head() const { return part_ > part::head; }
  int status() const { return status_; }
  const std::vector<http_header>& headers() const { return headers_; }
  /// Of that name in any case; null: none.
  const std::string* header(std::string_view name) const;
  /// The connection may be used again.
  bool keeps_alive() const { return keeps_alive_; }

private:
  enum class part : std::uint8_t {
    head,
    body,
    to_end,
    chunk_size,
    chunk,
    chunk_end,
    trailer,
    done
  };

  result<void> read_head();
  result<void> begin_body();
  result<void> take_line();
  void give(std::string_view piece);

  body_call on_body_;
  bool has_body_;
  part part_ = part::head;
  std::string line_;  ///< of the head, or the line that is being read
  std::uint64_t left_ = 0;
  int status_ = 0;
  std::vector<http_header> headers_;
  bool keeps_alive_ = true;
};

}  // namespace deepinfer
