/// One connection without its socket: bytes come in, requests go to the handler one after the
/// other, bytes of answers go out; and when to read, to give up, to close.
///
/// The owner of the socket reports what has happened and then does what the state asks for:
///
///   core.bytes_came(bytes, now);      // input_ended, bytes_sent, lost, time_is_up, reply_changed
///   write(core.output()); wait_until(core.deadline()); if (core.wants_bytes()) ...; core.ending()
///
/// Requests are parsed ahead while an answer is at work, up to `max_pipelined`, so that a client's
/// leaving is noticed; beyond that the kernel keeps the bytes. Nothing here reads a clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/http/answer_writer.hpp"
#include "runtime/http/http_service.hpp"

namespace deepinfer {

class connection_core {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// How the socket is to be treated.
  enum class ending : std::uint8_t {
    open,
    lingering,  ///< the sending side is closed; what still comes is read and thrown away
    closed,
    reset,  ///< closed so that the client notices that its answer is incomplete
  };

  connection_core(http_service& service, std::string peer, time_point now);

  /// `owner` is told when a reply of this connection has something new.
  void set_owner(std::weak_ptr<reply_owner> owner) { owner_ = std::move(owner); }

  /// Answers at once, without a request.
  void turn_away(http_refusal why, time_point now);

  void bytes_came(std::string_view bytes, time_point now);
  void input_ended(time_point now);  ///< the client has closed its sending side
  void bytes_sent(std::size_t size, time_point now);
  void reply_changed(const reply_state& reply, time_point now);
  void lost();  ///< reset by the client, or the server ends now
  void time_is_up(time_point now);
  void close_if_idle();  ///< the server stops; what has no whole header waits for nothing

  bool wants_bytes() const;
  const outgoing& output() const { return out_; }
  time_point deadline() const { return deadline_; }
  ending how_to_end() const { return ending_; }
  const std::string& peer() const { return peer_; }

private:
  /// A request and its answer.
  struct exchange {
    std::shared_ptr<const http_request> request;  ///< null: refused, or with the handler
    std::shared_ptr<reply_state> reply;
    answer_writer writer;
    bool is_handed_over = false;
  };

  bool is_over() const { return ending_ != ending::open; }
  bool may_parse() const;
  void parse(time_point now);
  bool parse_some(std::string_view rest, std::size_t& used, time_point now);
  void header_complete(time_point now);
  void request_complete();
  void refuse(http_refusal why);
  void add_exchange(std::shared_ptr<const http_request> request, const request_form& form);
  void hand_over();
  void flush(time_point now);
  void end_exchange(time_point now);
  void drop_unanswered();
  void finish(time_point now);
  void end(ending how);
  void set_deadline(time_point now);

  http_service& service_;
  std::weak_ptr<reply_owner> owner_;
  std::string peer_;

  std::string in_;  ///< read and not parsed yet
  std::unique_ptr<request_reader> reader_;
  std::optional<request_form> form_;  ///< of the request whose header is complete
  time_point read_since_;             ///< the header's first byte, or the body's newest
  std::deque<exchange> exchanges_;    ///< the first is at work
  std::size_t waiting_bytes_ = 0;     ///< bodies of the others

  outgoing out_;
  reply_part part_;
  time_point sent_since_;  ///< the newest byte was taken, or the first offered

  ending ending_ = ending::open;
  time_point deadline_;
  std::size_t discarded_ = 0;
  bool no_more_requests_ = false;
  bool is_input_ended_ = false;
};

}  // namespace deepinfer
