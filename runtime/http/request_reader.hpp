/// What a connection asks of the parser of one request. The parser itself is a library's and lives
/// with the sockets; what follows from what it reads is decided without either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "runtime/http/http_server.hpp"
#include "runtime/http/request_rules.hpp"

namespace deepinfer {

class request_reader {
public:
  virtual ~request_reader() = default;

  /// Takes bytes up to the end of a part (header, chunk, body); tells how many. None taken: it
  /// needs more than `bytes` to go on.
  virtual std::size_t feed(std::string_view bytes) = 0;

  /// Set where the request breaks a limit or is no HTTP; nothing may be fed any more.
  virtual const std::optional<http_refusal>& refusal() const = 0;
  virtual bool has_header() const = 0;  ///< completely
  virtual bool is_complete() const = 0;
  virtual bool is_http_10() const = 0;
  virtual std::uint64_t content_length() const = 0;  ///< 0: none told
  virtual const std::shared_ptr<http_request>& request() const = 0;
};

}  // namespace deepinfer
