/// A request that is being served: its answers, what of them has been sent, what waits for its
/// client, and where its time went. A plain class; the gateway keeps one per request.
///
/// A request has n answers, each a sequence of the scheduler. Chunks are numbered over the whole
/// request; each answer ends with exactly one of them that has a finish, and the last of these ends
/// the request. Chunks that may not be sent yet (`token_credit`) gather in one chunk an answer.
/// Times are arguments: microseconds of a clock that never goes back.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "actors/output_stream.hpp"
#include "actors/request_counts.hpp"
#include "actors/request_intake.hpp"
#include "messages/control.hpp"
#include "runtime/base/log_event.hpp"
#include "runtime/base/span_ring.hpp"
#include "runtime/core/token_credit.hpp"

namespace deepinfer {

/// How an answer ends that no scheduler ends.
struct forced_end {
  finish_reason reason = finish_reason::error;
  errc code = errc::internal;
  std::string message;
};

class open_request {
public:
  /// Its sequences are `first` and those that follow. `counts` outlives it.
  open_request(std::string id, const generate_request& asked, accepted_request accepted,
               const tokenizer& words, seq_id first, const request_counts& counts,
               std::int64_t now_us);

  const std::string& id() const { return id_; }
  std::int32_t answers() const { return static_cast<std::int32_t>(answers_.size()); }
  const sequence_request& sequence(std::int32_t answer) const { return at(answer).sequence; }
  std::int32_t prompt_tokens() const { return prompt_tokens_; }

  /// Nothing more comes of its sequence.
  bool has_ended(std::int32_t answer) const { return at(answer).has_ended; }
  /// Everything has been sent.
  bool is_over() const { return closed_ == answers(); }
  bool has_started() const { return started_us_ >= 0; }
  request_phase phase() const;

  /// The first row of a sequence was launched. True: of the whole request it is the first.
  bool start(std::int32_t answer, std::int32_t cached_tokens, std::int64_t now_us);

  /// What a sequence gained; chunks that may be sent are added to `out`. True: the answer is
  /// complete and its sequence does not know: it is to be ended.
  bool push(std::int32_t answer, const sequence_chunk& gained, std::int64_t now_us,
            std::vector<token_chunk>& out);

  /// Ends an answer, also one whose own end waits for its client; nothing where it is over.
  void end(std::int32_t answer, const forced_end& how, std::int64_t now_us,
           std::vector<token_chunk>& out);

  /// Sends what waits, whatever the client has taken.
  void let_go(std::int64_t now_us, std::vector<token_chunk>& out);

  /// The client takes so many chunks more.
  void take(std::int32_t chunks, std::int64_t now_us, std::vector<token_chunk>& out);

  token_credit& credit() { return credit_; }
  const token_credit& credit() const { return credit_; }

  std::int64_t arrived_us() const { return arrived_us_; }
  std::int32_t output_tokens() const;
  /// Given or drawn: the same request with it has the same answers.
  std::uint64_t seed() const;
  request_info info(std::int64_t now_us) const;

  /// One line about a request that is over. `gone_in`: what it was doing when its client ended it.
  /// With what was asked and answered only where `keep_text` was called.
  std::string log_line(std::optional<request_phase> gone_in, std::int64_t now_us) const;
  /// The same as fields, without texts.
  std::vector<log_field> log_fields(std::int64_t now_us) const;
  /// The same for the timeline.
  request_span span(std::int64_t now_us) const;
  void keep_text(std::string asked) { asked_text_ = std::move(asked); }

private:
  struct open_answer {
    open_answer(sequence_request wanted, output_stream text)
      : sequence(std::move(wanted)),
        output(std::move(text)) {}

    sequence_request sequence;
    output_stream output;
    token_chunk waiting;  ///< what gathers until it may be sent
    bool is_waiting = false;
    bool has_ended = false;
    bool is_closed = false;
    std::int32_t starts = 0;
    std::int32_t cached_tokens = 0;
    std::int64_t started_us = -1, first_us = -1, last_us = -1, ended_us = -1;
    finish_reason reason = finish_reason::none;  ///< once it is closed
    std::string shown;                           ///< if texts are kept
  };

  const open_answer& at(std::int32_t answer) const {
    return answers_[static_cast<std::size_t>(answer)];
  }
  open_answer& at(std::int32_t answer) { return answers_[static_cast<std::size_t>(answer)]; }
  void note_tokens(open_answer& it, std::int32_t tokens, std::int64_t now_us);
  void note_end(open_answer& it, std::int64_t now_us);
  usage_counts usage_of(const open_answer& it) const;
  request_timings timings_of(const open_answer& it) const;
  void offer(std::int32_t answer, std::int64_t now_us, std::vector<token_chunk>& out);
  void send(std::int32_t answer, std::int64_t now_us, std::vector<token_chunk>& out);

  std::string finish_words() const;

  std::string id_, client_request_id_, tenant_;
  std::string trace_id_;  ///< of the client's trace context
  std::int32_t prompt_tokens_;
  std::int64_t arrived_us_;
  const request_counts& counts_;
  token_credit credit_;
  std::vector<open_answer> answers_;
  std::deque<std::int32_t> queue_;  ///< answers that wait for credit, the longest first
  std::int32_t closed_ = 0;
  std::uint64_t next_seq_ = 0;
  std::int64_t started_us_ = -1;  ///< the first of its answers
  std::int64_t first_us_ = -1, last_us_ = -1;
  std::int32_t cached_tokens_ = 0;  ///< of the answer that started first
  std::optional<std::string> asked_text_;
};

}  // namespace deepinfer
