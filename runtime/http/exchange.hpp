/// One request and its answer: the headers that every answer has, the counts, and that it is
/// answered once, whatever happens. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/metrics.hpp"
#include "runtime/http/api_routes.hpp"
#include "runtime/http/error_envelope.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {

/// Requests of a process, counted: http_requests_total, http_requests_in_flight.
class api_counts {
public:
  explicit api_counts(metrics* to) : to_(to) {}
  void began();
  void ended();
  void answered(std::string_view handler, std::string_view method, int status);

private:
  metrics* to_;
  std::mutex mutex_;
  std::int64_t in_flight_ = 0;
};

class exchange : public std::enable_shared_from_this<exchange> {
public:
  exchange(std::shared_ptr<const http_request> request, std::shared_ptr<http_reply> reply,
           std::shared_ptr<api_counts> counts, std::string id);
  ~exchange();  ///< unanswered: 500
  exchange(const exchange&) = delete;
  exchange& operator=(const exchange&) = delete;

  const http_request& request() const { return *request_; }
  http_reply& reply() { return *reply_; }
  const std::string& id() const { return id_; }

  const api_route* route = nullptr;  ///< null: no such path
  std::string rest;
  std::string tenant;
  std::vector<http_header> extra;  ///< headers of the answer beside the usual ones

  /// To be called once it is shared and its route is known: counts it, and listens for a client
  /// that leaves.
  void watch();
  /// Called when the client has left before the end, at once where it has.
  void when_gone(std::function<void()> call);

  void send(http_response whole);
  void fail(const error& why) { send(error_response(why)); }
  void send_json(std::string body, int status = 200);

  void begin(int status, std::vector<http_header> headers);
  void write(std::string piece) { reply_->write(std::move(piece)); }
  void end();

  bool has_ended() const { return has_ended_; }

private:
  void add_headers(std::vector<http_header>& headers) const;
  bool count(int status);
  bool is_scrape() const;
  void gone();

  std::shared_ptr<const http_request> request_;
  std::shared_ptr<http_reply> reply_;
  std::shared_ptr<api_counts> counts_;
  std::string id_;
  std::atomic<bool> has_ended_{false};
  int status_ = 0;  ///< of a stream that has begun
  std::mutex mutex_;
  bool is_gone_ = false;
  std::function<void()> when_gone_;
};

}  // namespace deepinfer
