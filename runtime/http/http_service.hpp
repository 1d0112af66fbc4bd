/// What the connections of one server share: its options and handler, its counts, the answers it
/// gives itself. Used on the io thread; only the counts are read by others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/http/http_server.hpp"
#include "runtime/http/reply_state.hpp"
#include "runtime/http/request_reader.hpp"
#include "runtime/http/request_rules.hpp"

namespace deepinfer {

struct http_counts {
  std::atomic<std::int64_t> open{0};
  std::atomic<std::uint64_t> connections{0}, requests{0}, refused{0}, gone{0};
};

/// Runs code of the server's user; what it throws ends here and is logged. False: it has thrown.
bool run_guarded(std::string_view what, const std::function<void()>& call);

class http_service {
public:
  http_service(http_server_options with, http_handler calls);

  /// The answer to what does not reach the handler.
  http_response refuse(const http_refusal& why);
  result<void> admit(const http_request& request) const;
  /// Today's Date header.
  const std::string& date();

  http_server_options options;
  http_handler handler;
  std::shared_ptr<reply_doorbell> doorbell;
  std::function<std::unique_ptr<request_reader>()> make_reader;
  http_counts counts;
  bool is_stopping = false;  ///< no connection serves another request

private:
  std::int64_t date_second_ = -1;
  std::string date_;
};

}  // namespace deepinfer
