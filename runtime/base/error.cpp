#include "runtime/base/error.hpp"

#include <array>

namespace deepinfer {
namespace {

struct code_row {
  errc code;
  std::string_view name;
  int http_status;
  int exit_code;
};

constexpr std::array rows{
  code_row{errc::ok, "ok", 200, 0},
  code_row{errc::invalid_argument, "invalid_argument", 400, 2},
  code_row{errc::context_length_exceeded, "context_length_exceeded", 400, 1},
  code_row{errc::invalid_utf8, "invalid_utf8", 400, 1},
  code_row{errc::invalid_json, "invalid_json", 400, 2},
  code_row{errc::json_too_deep, "json_too_deep", 400, 2},
  code_row{errc::unauthenticated, "unauthenticated", 401, 1},
  code_row{errc::model_not_found, "model_not_found", 404, 1},
  code_row{errc::not_found, "not_found", 404, 1},
  code_row{errc::method_not_allowed, "method_not_allowed", 405, 1},
  code_row{errc::request_timeout, "request_timeout", 408, 1},
  code_row{errc::payload_too_large, "payload_too_large", 413, 1},
  code_row{errc::unsupported_media_type, "unsupported_media_type", 415, 1},
  code_row{errc::rate_limited, "rate_limited", 429, 1},
  code_row{errc::queue_full, "queue_full", 429, 1},
  code_row{errc::cancelled, "cancelled", 499, 1},
  code_row{errc::no_blocks, "no_blocks", 400, 1},
  code_row{errc::grammar_failed, "grammar_failed", 400, 1},
  code_row{errc::device_failed, "device_failed", 500, 5},
  code_row{errc::rank_lost, "rank_lost", 503, 1},
  code_row{errc::transfer_failed, "transfer_failed", 502, 1},
  code_row{errc::slow_consumer, "slow_consumer", 500, 1},
  code_row{errc::internal, "internal", 500, 1},
  code_row{errc::not_ready, "not_ready", 503, 1},
  code_row{errc::draining, "draining", 503, 1},
  code_row{errc::overloaded, "overloaded", 503, 1},
  code_row{errc::server_shutdown, "server_shutdown", 503, 1},
  code_row{errc::deadline_exceeded, "deadline_exceeded", 504, 1},
  code_row{errc::bad_config, "bad_config", 500, 2},
  code_row{errc::bad_checkpoint, "bad_checkpoint", 500, 3},
  code_row{errc::port_in_use, "port_in_use", 500, 4},
  code_row{errc::no_device, "no_device", 500, 5},
  code_row{errc::io_failed, "io_failed", 500, 1},
};

const code_row& row_of(errc code) {
  return rows[static_cast<std::size_t>(code)];
}

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::size_t>(rows[i].code) != i) return false;
  return rows.size() == static_cast<std::size_t>(errc::io_failed) + 1;
}
static_assert(rows_are_in_order());

}  // namespace

std::string_view name_of(errc code) {
  return row_of(code).name;
}

int http_status_of(errc code) {
  return row_of(code).http_status;
}

int exit_code_of(errc code) {
  return row_of(code).exit_code;
}

bool may_differ_elsewhere(errc code) {
  return code == errc::queue_full || code == errc::draining || code == errc::not_ready ||
         code == errc::overloaded || code == errc::server_shutdown || code == errc::rank_lost;
}

error error::within(std::string_view where) && {
  message.insert(0, std::string(where) + ": ");
  return std::move(*this);
}

}  // namespace deepinfer
