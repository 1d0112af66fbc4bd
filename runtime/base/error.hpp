/// Errors as values: `errc`, `error`, `result<T>`, `fail`, `DI_TRY`.
///
/// A `result<T>` is what may go wrong because of the outside world. The leaf that fails says what
/// and how much; each caller adds where, so that the user reads one line:
///   shard model-00003-of-00048.safetensors: header claims 1099511627776 bytes, at most 4096 fit
/// Codes exist only where somebody reacts to them; one enum serves CAF, Protobuf and HTTP.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace deepinfer {

enum class errc : std::uint8_t {
  ok,
  invalid_argument,
  context_length_exceeded,
  invalid_utf8,
  invalid_json,
  json_too_deep,
  unauthenticated,
  model_not_found,
  not_found,
  method_not_allowed,
  request_timeout,
  payload_too_large,
  unsupported_media_type,
  rate_limited,
  queue_full,
  cancelled,
  no_blocks,  ///< a sequence alone needs more KV blocks than its rank has
  grammar_failed,
  device_failed,  ///< the step that held the request failed, or its ticket timed out
  rank_lost,      ///< the rank that ran the request died
  transfer_failed,
  slow_consumer,
  internal,
  not_ready,
  draining,
  overloaded,
  server_shutdown,
  deadline_exceeded,
  bad_config,      ///< start-up only: exit code 2
  bad_checkpoint,  ///< start-up only: exit code 3
  port_in_use,     ///< start-up only: exit code 4
  no_device,       ///< start-up only: exit code 5
  io_failed,       ///< a file could not be read or written: exit code 1
};

/// The code's wire name, e.g. "rank_lost".
std::string_view name_of(errc code);

/// Status an HTTP front answers with for this code (499 for cancelled, 500 for start-up codes).
int http_status_of(errc code);

/// Exit code of the command line for an error that ends the program (interfaces: 1, 2, 3, 4, 5).
int exit_code_of(errc code);

/// Might another node or replica answer otherwise? What was asked says nothing of it.
bool may_differ_elsewhere(errc code);

struct error {
  errc code = errc::internal;
  std::string message;
  std::string param;  ///< the request field at fault, if any

  /// This error with "`where`: " before its message.
  error within(std::string_view where) &&;
};

template <class T>
using result = tl::expected<T, error>;

inline tl::unexpected<error> fail(errc code, std::string message, std::string param = {}) {
  return tl::unexpected<error>(error{code, std::move(message), std::move(param)});
}

}  // namespace deepinfer

#define DI_CONCAT_INNER(a, b) a##b
#define DI_CONCAT(a, b) DI_CONCAT_INNER(a, b)

#define DI_TRY_CONTEXT(temporary, declaration, expression, where)                                  \
  auto temporary = (expression);                                                                   \
  if (!temporary)                                                                                  \
    return ::tl::unexpected<::deepinfer::error>(std::move(temporary).error().within(where));       \
  declaration = *std::move(temporary)

#define DI_TRY_PLAIN(temporary, declaration, expression)                                           \
  auto temporary = (expression);                                                                   \
  if (!temporary) return ::tl::unexpected<::deepinfer::error>(std::move(temporary).error());       \
  declaration = *std::move(temporary)

#define DI_TRY_PICK(_1, _2, _3, name, ...) name

/// `DI_TRY(auto x, expression)` or `DI_TRY(auto x, expression, where)`: declares x from the value
/// of a `result`, or returns its error from the enclosing function, with `where` put before it.
#define DI_TRY(...)                                                                                \
  DI_TRY_PICK(__VA_ARGS__, DI_TRY_CONTEXT, DI_TRY_PLAIN, )                                         \
  (DI_CONCAT(di_result_, __LINE__), __VA_ARGS__)

/// For `result<void>`: returns the error from the enclosing function, if there is one.
#define DI_TRY_VOID(expression)                                                                    \
  do {                                                                                             \
    if (auto di_result = (expression); !di_result)                                                 \
      return ::tl::unexpected<::deepinfer::error>(std::move(di_result).error());                   \
  } while (false)
