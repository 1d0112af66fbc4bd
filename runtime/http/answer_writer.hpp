/// The bytes of one answer: its header, its framing (a length, chunks, or the end of the connection
/// for HTTP/1.0), and whether the connection may serve another request afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/http/reply_state.hpp"
#include "runtime/http/request_rules.hpp"

namespace deepinfer {

/// Bytes on their way to the kernel, in three parts so that a payload is never copied.
struct outgoing {
  std::string before;  ///< header, length of a chunk
  std::string payload;
  std::string_view after;  ///< end of a chunk; a literal
  std::size_t sent = 0;

  void clear();
  bool is_empty() const { return sent == before.size() + payload.size() + after.size(); }
  std::size_t payload_left() const;
  /// What is not sent yet.
  std::array<std::string_view, 3> rest() const;
};

/// What every header of a connection says.
struct answer_facts {
  std::string_view server_name;
  std::string_view date;
  bool keep_alive = true;           ///< another request may come, as far as the server is concerned
  std::int64_t idle_timeout_s = 0;  ///< told to the client
};

class answer_writer {
public:
  explicit answer_writer(const request_form& form) : form_(form) {}

  /// Appends to an empty `out` what `part` says; takes its texts. A dropped part must have got its
  /// head from the caller.
  void frame(reply_part& part, const answer_facts& facts, outgoing& out);

  /// Nothing follows what was framed.
  bool is_complete() const { return is_complete_; }
  bool keep_alive() const { return form_.keep_alive; }
  /// The client can learn that the answer is incomplete only from a reset.
  bool must_reset() const { return must_reset_; }

private:
  void write_head(const http_response& head, bool is_whole, const answer_facts& facts,
                  std::string& out);

  request_form form_;
  bool has_body_ = true;  ///< of the answer; not for HEAD, 204, 304
  bool is_chunked_ = false;
  bool is_complete_ = false;
  bool must_reset_ = false;
};

}  // namespace deepinfer
