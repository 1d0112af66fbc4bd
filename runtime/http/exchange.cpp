#include "runtime/http/exchange.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace deepinfer {
namespace {

constexpr int client_gone = 499;

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
           std::chrono::steady_clock::now().time_since_epoch())
    .count();
}

/// A client may send any word as a method: only these are counted by name.
std::string_view counted_method(std::string_view method) {
  constexpr std::array<std::string_view, 7> known{"GET",     "POST", "DELETE", "HEAD",
                                                  "OPTIONS", "PUT",  "PATCH"};
  return std::find(known.begin(), known.end(), method) != known.end() ? method : "other";
}

}  // namespace

void api_counts::began() {
  if (!to_) return;
  const std::lock_guard lock(mutex_);
  to_->set(metric::http_requests_in_flight, static_cast<double>(++in_flight_));
}

void api_counts::answered(std::string_view handler, std::string_view method, int status) {
  if (!to_) return;
  to_->add(metric::http_requests_total, 1.0,
           {handler, counted_method(method), std::to_string(status)});
}

void api_counts::ended() {
  if (!to_) return;
  const std::lock_guard lock(mutex_);
  to_->set(metric::http_requests_in_flight, static_cast<double>(--in_flight_));
}

exchange::exchange(std::shared_ptr<const http_request> request, std::shared_ptr<http_reply> reply,
                   std::shared_ptr<api_counts> counts, std::string id)
  : request_(std::move(request)),
    reply_(std::move(reply)),
    counts_(std::move(counts)),
    id_(std::move(id)) {}

exchange::~exchange() {
  if (has_ended_) return;
  if (status_ == 0)
    fail({errc::internal, "request " + id_ + " was left without an answer", {}});
  else if (count(status_))
    reply_->cut();
}

/// Whoever reads the gauges does not see himself.
bool exchange::is_scrape() const {
  return route && route->call == api_call::metrics;
}

void exchange::watch() {
  if (!is_scrape()) counts_->began();
  reply_->on_gone([it = weak_from_this()] {
    if (const auto self = it.lock()) self->gone();
  });
}

void exchange::gone() {
  if (!count(client_gone)) return;
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    call = std::exchange(when_gone_, nullptr);
  }
  if (call) call();
}

void exchange::when_gone(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_gone_) {
      when_gone_ = std::move(call);
      return;
    }
  }
  call();
}

/// True for the first caller: the answer is his.
bool exchange::count(int status) {
  if (has_ended_.exchange(true)) return false;
  counts_->answered(route ? route->path : "other", request_->method, status);
  if (!is_scrape()) counts_->ended();
  return true;
}

void exchange::add_headers(std::vector<http_header>& headers) const {
  headers.push_back({"X-Request-Id", id_});
  if (request_->received_us > 0)
    headers.push_back(
      {"OpenAI-Processing-Ms", std::to_string((now_us() - request_->received_us) / 1000)});
  headers.insert(headers.end(), extra.begin(), extra.end());
}

void exchange::send(http_response whole) {
  if (!count(whole.status)) return;
  add_headers(whole.headers);
  reply_->send(std::move(whole));
}

void exchange::send_json(std::string body, int status) {
  send({status, {{"Content-Type", "application/json"}}, std::move(body)});
}

void exchange::begin(int status, std::vector<http_header> headers) {
  status_ = status;
  add_headers(headers);
  reply_->begin(status, std::move(headers));
}

void exchange::end() {
  if (count(status_)) reply_->end();
}

}  // namespace deepinfer
