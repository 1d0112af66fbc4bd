/// The client API: start requests on a node, read their chunks, cancel, ask how the node is.
///
/// `client::connect` reaches a node over the network, `node::connect` one in this process; what a
/// client can do is the same. A `client` may be used by several threads; a `stream` by one at a
/// time. No call blocks without a deadline. A client over the network has threads of its own, which
/// end with its last copy: that may not be dropped inside a call of a `chunk_sink`. An in-process
/// client may not outlive its node; after `node::stop` its calls say server_shutdown. When a client
/// and its streams are gone, what they had started is cancelled.
///
///   auto answer = engine.connect().generate(request);       // deepinfer::generate_request
///   while (true) {
///     auto chunk = answer->next(std::chrono::seconds(30));
///     if (!chunk || !*chunk) break;                         // error, or the end
///     std::fputs((*chunk)->text.c_str(), stdout);
///     if (const auto& last = (*chunk)->finish; last && last->code != errc::ok)
///       std::fputs(last->message.c_str(), stderr);          // what has come is not the whole
///   }
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "messages/client.hpp"
#include "messages/control.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Whom the chunks of a request are told, from an actor's thread: it must not block. One of
/// `on_error` and a chunk with `is_last` is the last call. A request that was taken and fails
/// later, as where its node is lost, ends with a chunk: its `finish` has the error.
class chunk_sink {
public:
  virtual ~chunk_sink() = default;

  /// The node has taken the request.
  virtual void on_accepted(const std::string& request_id) = 0;
  virtual void on_chunk(token_chunk chunk) = 0;
  /// It was refused, or nobody is there any more who could say more of it.
  virtual void on_error(const error& failure) = 0;
};

/// Where a client finds a node, and how it proves who it is.
struct client_options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 4242;
  std::string api_key;  ///< empty: none
  std::chrono::milliseconds connect_timeout{3'000};
  bool reconnects = true;  ///< after the link was lost; open requests end with rank_lost
  std::chrono::milliseconds heartbeat_interval{1'000};
  std::chrono::milliseconds connection_timeout{5'000};
  std::string tls_certificate, tls_key, tls_ca;  ///< PEM files, all or none
};

/// The chunks of one request, pulled. Dropping a stream that has not ended cancels its request.
class stream {
public:
  class state;
  explicit stream(std::shared_ptr<state> opened);
  stream(stream&&) noexcept;
  stream& operator=(stream&&) noexcept;
  ~stream();

  const std::string& id() const;

  /// The next chunk; nothing once the last one has been taken. An answer that fails, as where its
  /// node is lost (rank_lost), ends with a chunk whose `finish` has the code and the message.
  /// Errors of the call: deadline_exceeded (the stream stays usable), server_shutdown (the node in
  /// this process has gone).
  result<std::optional<token_chunk>> next(std::chrono::milliseconds timeout);

private:
  std::shared_ptr<state> state_;
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
  request_timings timings;

  void add(const token_chunk& chunk);
};

class client {
public:
  class state;
  explicit client(std::shared_ptr<state> connected) : state_(std::move(connected)) {}

  /// A node elsewhere. A stream whose request names no window has one of 64 chunks: who stops
  /// reading pauses his request, and after a time loses it. Errors: not_ready (nobody answers in
  /// time), unauthenticated, invalid_argument (another version), bad_config.
  static result<client> connect(const client_options& options);

  /// Starts a request. Errors: those of the request (invalid_argument with `param`,
  /// context_length_exceeded, queue_full), or server_shutdown.
  result<stream> generate(const generate_request& request) const;

  /// Starts a request of one answer and waits for its end. A request that ends with an error is
  /// that error.
  result<generate_result> generate_sync(const generate_request& request,
                                        std::chrono::milliseconds timeout) const;

  /// Starts a request whose chunks are told `sink`; never blocks. Gives the request's id, by which
  /// it can be cancelled and its chunks taken from now on.
  std::string start(generate_request request, std::shared_ptr<chunk_sink> sink) const;

  /// So many chunks of a request with a window were taken: no more than its window are sent that
  /// were not. Never blocks.
  void take(const std::string& request_id, std::int32_t chunks) const;

  /// As `cancel` of one that this client has started, without waiting.
  void drop(const std::string& request_id) const;

  /// True where the request was still running. Idempotent; its stream gets the final chunk.
  result<bool> cancel(const std::string& request_id) const;

  result<node_stats> stats() const;
  result<node_health> health() const;
  result<model_info> model() const;
  result<token_list> tokenize(const tokenize_call& call) const;
  result<std::string> detokenize(const std::vector<token_id>& ids) const;
  result<token_list> render(const std::string& chat_json) const;
  result<request_list> requests() const;
  /// No new requests from now on; answered when none is open, or at the deadline, with what is
  /// left.
  result<std::string> drain(std::chrono::milliseconds timeout) const;
  result<std::string> trace(std::int32_t steps) const;

  /// A verb of control.hpp, whose argument and answer are Protobuf bytes (wire.hpp).
  result<std::string> call(std::string_view verb, std::string bytes,
                           std::chrono::milliseconds timeout = std::chrono::seconds(10)) const;

  /// The same without waiting; `answer` is called from an actor's thread.
  void call(std::string_view verb, std::string bytes,
            std::function<void(result<std::string>)> answer,
            std::chrono::milliseconds timeout = std::chrono::seconds(10)) const;

  /// What it is made of, for the actors' side.
  const state& inside() const { return *state_; }

private:
  std::shared_ptr<state> state_;
};

}  // namespace deepinfer
