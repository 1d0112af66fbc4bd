/// The client API: start requests on a node, read their chunks, cancel, ask how the node is.
///
/// In-process for now: `node::connect` gives a client. A `client` may be used by several threads; a
/// `stream` by one at a time. No call blocks without a deadline. Neither may outlive its node;
/// after `node::stop` their calls say server_shutdown.
///
///   auto answer = engine.connect().generate(request);       // deepinfer::generate_request
///   while (true) {
///     auto chunk = answer->next(std::chrono::seconds(30));
///     if (!chunk || !*chunk) break;                         // error, or the end
///     std::fputs((*chunk)->text.c_str(), stdout);
///   }
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "messages/client.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// The chunks of one request, pulled. Dropping a stream that has not ended cancels its request.
class stream {
public:
  struct state;
  explicit stream(std::unique_ptr<state> opened);
  stream(stream&&) noexcept;
  stream& operator=(stream&&) noexcept;
  ~stream();

  const std::string& id() const;

  /// The next chunk; nothing once the chunk with `finish` has been taken. Errors: deadline_exceeded
  /// (the stream stays usable), server_shutdown (the node has gone).
  result<std::optional<token_chunk>> next(std::chrono::milliseconds timeout);

private:
  std::unique_ptr<state> state_;
};

/// A whole answer, as `generate_sync` gathers it.
struct generate_result {
  std::string id;
  std::string text;
  std::string reasoning_text;
  std::vector<tool_call_delta> tool_calls;  ///< one whole call per entry
  std::vector<token_id> ids;
  std::vector<token_logprobs> logprobs;
  sequence_finish finish;

  void add(const token_chunk& chunk);
};

class client {
public:
  struct state;
  explicit client(std::shared_ptr<state> connected) : state_(std::move(connected)) {}

  /// Starts a request. Errors: those of the request (invalid_argument with `param`,
  /// context_length_exceeded, queue_full), or server_shutdown.
  result<stream> generate(const generate_request& request) const;

  /// Starts a request and waits for its end. A request that ends with an error is that error.
  result<generate_result> generate_sync(const generate_request& request,
                                        std::chrono::milliseconds timeout) const;

  /// True where the request was still running. Idempotent; its stream gets the final chunk.
  result<bool> cancel(const std::string& request_id) const;

  result<node_stats> stats() const;

private:
  std::shared_ptr<state> state_;
};

}  // namespace deepinfer
