#include "runtime/http/connection_core.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace deepinfer {
namespace {

using std::chrono::duration_cast;

/// Beyond a header's size: what is kept of requests that can't be parsed yet.
constexpr std::size_t kept_bytes = 64 << 10;
/// Thrown away behind an answer that ends its connection, so that a client which still sends gets
/// to see it instead of a reset.
constexpr std::size_t max_discarded = 16 << 20;
constexpr std::chrono::milliseconds linger_time{5000};
constexpr std::chrono::milliseconds linger_time_of_stop{250};

/// An emptied string keeps its memory; an idle connection must not.
void free_memory(std::string& text) {
  std::string().swap(text);
}

std::int64_t microseconds_of(connection_core::time_point time) {
  return duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

}  // namespace

connection_core::connection_core(http_service& service, std::string peer, time_point now)
  : service_(service),
    peer_(std::move(peer)) {
  set_deadline(now);
}

void connection_core::turn_away(http_refusal why, time_point now) {
  refuse(std::move(why));
  set_deadline(now);
}

void connection_core::bytes_came(std::string_view bytes, time_point now) {
  if (ending_ == ending::lingering) {
    discarded_ += bytes.size();
    if (discarded_ > max_discarded) end(ending::closed);
  } else if (no_more_requests_) {
    discarded_ += bytes.size();
  } else if (!is_over()) {
    in_ += bytes;
    if (form_) read_since_ = now;
    parse(now);
    set_deadline(now);
  }
}

void connection_core::input_ended(time_point now) {
  is_input_ended_ = true;
  if (ending_ == ending::lingering || exchanges_.empty())
    end(ending::closed);  // nobody waits for an answer
  else if (service_.options.eof_is_gone)
    drop_unanswered();
  set_deadline(now);
}

/// The client has left, or reads on at most. What is answered already costs nothing to send, and a
/// client that asked something short and closed at once has it; nothing else is worth any work.
void connection_core::drop_unanswered() {
  if (!exchanges_.front().reply->is_answered()) return lost();
  for (; exchanges_.size() > 1; exchanges_.pop_back()) exchanges_.back().reply->leave();
  no_more_requests_ = true;
  waiting_bytes_ = 0;
  free_memory(in_);
  reader_.reset();
  form_.reset();
}

void connection_core::bytes_sent(std::size_t size, time_point now) {
  if (is_over()) return;
  out_.sent += size;
  sent_since_ = now;
  if (!exchanges_.empty()) exchanges_.front().reply->taken(out_.payload_left());
  if (out_.is_empty()) flush(now);
  set_deadline(now);
}

void connection_core::reply_changed(const reply_state& reply, time_point now) {
  if (is_over() || exchanges_.empty() || exchanges_.front().reply.get() != &reply) return;
  if (out_.is_empty()) flush(now);
  set_deadline(now);
}

void connection_core::lost() {
  end(ending::closed);
}

void connection_core::time_is_up(time_point now) {
  if (now < deadline_) return;
  if (ending_ == ending::lingering) return end(ending::closed);
  if (is_over()) return;
  if (!out_.is_empty()) return end(ending::reset);
  if (!reader_) return end(ending::closed);  // idle
  refuse(refusal_of(
    errc::request_timeout,
    form_
      ? fmt::format("body: nothing came for {} ms", service_.options.body_timeout.count())
      : fmt::format("header: did not come within {} ms", service_.options.header_timeout.count())));
  set_deadline(now);
}

void connection_core::close_if_idle() {
  if (ending_ == ending::lingering || (exchanges_.empty() && !form_)) end(ending::closed);
}

bool connection_core::wants_bytes() const {
  if (is_input_ended_) return false;
  if (ending_ == ending::lingering) return true;
  if (is_over()) return false;
  // Where no request may come, bytes are read only to learn of their end.
  if (no_more_requests_) return discarded_ < kept_bytes;
  return in_.size() < service_.options.max_header_bytes + kept_bytes;
}

bool connection_core::may_parse() const {
  if (is_over() || no_more_requests_) return false;
  if (form_ && form_->wants_continue && !exchanges_.empty()) return false;
  const auto& options = service_.options;
  return exchanges_.size() < std::max<std::size_t>(options.max_pipelined, 1) &&
         waiting_bytes_ <= options.max_body_bytes;
}

void connection_core::parse(time_point now) {
  std::size_t at = 0;
  while (may_parse()) {
    std::size_t used = 0;
    const bool goes_on = parse_some(std::string_view(in_).substr(at), used, now);
    at += used;
    if (!goes_on) break;
  }
  in_.erase(0, at);
  if (no_more_requests_) in_.clear();
}

/// One part of a request. False: more bytes are needed.
bool connection_core::parse_some(std::string_view rest, std::size_t& used, time_point now) {
  if (!reader_) {
    used = std::min(rest.find_first_not_of("\r\n"), rest.size());  // may stand before a request
    if (used == rest.size()) return false;
    reader_ = service_.make_reader();
    read_since_ = now;
    return true;
  }
  if (form_ && form_->wants_continue) {
    form_->wants_continue = false;
    if (rest.empty()) {  // else the body comes without it
      out_.clear();
      out_.before = "HTTP/1.1 100 Continue\r\n\r\n";
      sent_since_ = now;
    }
    return true;
  }
  if (!rest.empty() && !reader_->is_complete()) used = reader_->feed(rest);
  if (reader_->refusal())
    refuse(*reader_->refusal());
  else if (reader_->has_header() && !form_)
    header_complete(now);
  else if (reader_->is_complete())
    request_complete();
  else
    return used > 0;
  return true;
}

/// May the rest of the request come?
void connection_core::header_complete(time_point now) {
  auto& request = *reader_->request();
  request.peer = peer_;
  request.received_us = microseconds_of(now);
  read_since_ = now;
  auto form = form_of(request, reader_->is_http_10(), reader_->content_length(), service_.options);
  if (!form) return refuse(std::move(form).error());
  form_ = *form;
  if (auto allowed = service_.admit(request); !allowed) {
    const auto status = http_status_of(allowed.error().code);
    refuse({status, std::move(allowed).error()});
  }
}

void connection_core::request_complete() {
  const auto form = *std::exchange(form_, std::nullopt);
  const auto reader = std::move(reader_);
  no_more_requests_ = !form.keep_alive;
  waiting_bytes_ += reader->request()->body.size();
  add_exchange(reader->request(), form);
}

/// Answers without the handler. The connection goes on only where it is known that the next request
/// begins here.
void connection_core::refuse(http_refusal why) {
  auto form = form_.value_or(request_form{});
  if (!form_) {
    form.is_http_10 = reader_ && reader_->is_http_10();
    form.is_head = reader_ && reader_->request()->method == "HEAD";
  }
  form.keep_alive = form_ && !form.has_body && form.keep_alive;
  no_more_requests_ = !form.keep_alive;
  form_.reset();
  reader_.reset();
  add_exchange(nullptr, form);
  exchanges_.back().reply->send(service_.refuse(why));
}

void connection_core::add_exchange(std::shared_ptr<const http_request> request,
                                   const request_form& form) {
  auto reply = std::make_shared<reply_state>(service_.doorbell, owner_);
  exchanges_.push_back({std::move(request), std::move(reply), answer_writer(form)});
  if (exchanges_.size() == 1) hand_over();
}

/// Gives the first request to the handler. Others wait for its answer, so that requests of one
/// connection never overtake each other.
void connection_core::hand_over() {
  auto& first = exchanges_.front();
  if (!first.request) return;
  first.is_handed_over = true;
  waiting_bytes_ -= first.request->body.size();
  service_.counts.requests.fetch_add(1, std::memory_order_relaxed);
  run_guarded("handler", [&, request = std::move(first.request)] {
    service_.handler(request, reply_state::handle_of(first.reply));
  });
}

/// Frames what the answer at work has to say now; `out_` is empty.
void connection_core::flush(time_point now) {
  if (exchanges_.empty()) return;
  auto& first = exchanges_.front();
  out_.clear();
  if (first.reply->take(part_)) {
    if (part_.is_dropped)
      part_.head = service_.refuse(refusal_of(errc::internal, "the request was not answered"));
    const bool is_last = is_input_ended_ && exchanges_.size() == 1 && in_.empty();
    const answer_facts facts{
      service_.options.server_name, service_.date(), !service_.is_stopping && !is_last,
      duration_cast<std::chrono::seconds>(service_.options.idle_timeout).count()};
    first.writer.frame(part_, facts, out_);
    if (out_.payload.empty()) first.reply->taken(0);
    sent_since_ = now;
  }
  if (out_.is_empty() && first.writer.is_complete()) end_exchange(now);
}

void connection_core::end_exchange(time_point now) {
  auto& first = exchanges_.front();
  first.reply->complete();
  const bool goes_on = first.writer.keep_alive() && !service_.is_stopping;
  const bool must_reset = first.writer.must_reset();
  exchanges_.pop_front();
  out_.clear();
  for (auto* buffer : {&out_.before, &out_.payload, &part_.piece}) free_memory(*buffer);
  if (must_reset) return end(ending::reset);
  if (!goes_on) return finish(now);
  read_since_ = now;  // of a request that came meanwhile; its time begins here
  if (!exchanges_.empty()) hand_over();
  parse(now);
  if (in_.empty()) free_memory(in_);
  if (exchanges_.empty() && is_input_ended_) return finish(now);
  // A refusal has its answer already; its ring came while another answer was at work.
  if (!exchanges_.empty()) flush(now);
}

/// Ends a connection so that the client can read all of the last answer.
void connection_core::finish(time_point now) {
  const auto unanswered = std::exchange(exchanges_, {});
  for (const auto& one : unanswered) one.reply->leave();
  if (is_input_ended_) return end(ending::closed);
  ending_ = ending::lingering;
  deadline_ = now + (service_.is_stopping ? linger_time_of_stop : linger_time);
  free_memory(in_);
  reader_.reset();
  form_.reset();
}

void connection_core::end(ending how) {
  if (ending_ == ending::closed || ending_ == ending::reset) return;
  ending_ = how;
  deadline_ = time_point::max();
  const auto exchanges = std::exchange(exchanges_, {});
  free_memory(in_);
  reader_.reset();
  form_.reset();
  if (!exchanges.empty() && exchanges.front().is_handed_over)
    service_.counts.gone.fetch_add(1, std::memory_order_relaxed);
  for (const auto& one : exchanges) one.reply->leave();
}

void connection_core::set_deadline(time_point now) {
  if (is_over()) return;
  const auto& options = service_.options;
  if (!out_.is_empty())
    deadline_ = sent_since_ + options.write_timeout;
  else if (!exchanges_.empty())
    deadline_ = time_point::max();
  else if (form_)
    deadline_ = read_since_ + options.body_timeout;
  else if (reader_)
    deadline_ = read_since_ + options.header_timeout;
  else
    deadline_ = now + options.idle_timeout;
}

}  // namespace deepinfer
