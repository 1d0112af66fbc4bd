/// The API of a node: who may do what, and what each path means in terms of the client API. Knows
/// neither sockets nor actors: a server gives it requests, an `engine_link` leads to the engine.
///
/// Nothing here blocks but `close`. A handler may be called from one thread while answers of the
/// engine come from another.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "messages/control.hpp"
#include "messages/wire.hpp"
#include "runtime/base/metrics.hpp"
#include "runtime/http/api_keys.hpp"
#include "runtime/http/body_worker.hpp"
#include "runtime/http/engine_link.hpp"
#include "runtime/http/exchange.hpp"
#include "runtime/http/generation.hpp"
#include "runtime/http/openai_request.hpp"

namespace deepinfer {

struct http_api_options {
  openai_limits limits;
  generation_settings answers;
  bool open_metrics = false;
  std::vector<std::string> cors_origins;
  std::string version_json;  ///< what /version says
  std::string id_stem;       ///< what ids of this process begin with, unique among processes
  std::chrono::milliseconds event_interval{500};
  std::size_t large_body =
    256 << 10;  ///< and answers: from so many bytes on a thread of its own reads
};

class http_api : public std::enable_shared_from_this<http_api> {
public:
  /// `counts` may be null. `after` runs a call on the server's io thread.
  http_api(http_api_options options, api_keys keys, metrics* counts, http_timer after);
  ~http_api();

  void note_loading(double progress, const std::string& stage);
  void attach(std::shared_ptr<engine_link> engine);
  void begin_drain();
  /// Waits for the answers that are being made, at most until `deadline` has passed; then ends them
  /// with server_shutdown. The engine is let go.
  void close(std::chrono::milliseconds deadline);

  /// The answer to what never becomes a request.
  http_response refuse(const error& why);
  /// Whether the body of a request may come.
  result<void> admit(const http_request& request) const;
  void handle(std::shared_ptr<const http_request> request, std::shared_ptr<http_reply> reply);

private:
  using exchange_ptr = std::shared_ptr<exchange>;

  struct loading_state {
    double progress = 0.0;
    std::string stage = "starting";
  };

  void dispatch(const exchange_ptr& on);
  void show_openapi(const exchange_ptr& on);
  void dispatch_operator(const exchange_ptr& on);
  result<void> admit_route(const http_request& request, const api_route* route) const;
  std::string next_id(const api_route* route);

  // The engine; null with an error told where there is none.
  std::shared_ptr<engine_link> engine_of(const exchange_ptr& on);
  std::shared_ptr<engine_link> engine() const;
  /// Calls a verb; `then` gets the answer's bytes, an error goes to the client.
  void ask(const exchange_ptr& on, std::string_view verb, std::string bytes,
           std::function<void(const std::string&)> then,
           std::chrono::milliseconds timeout = std::chrono::seconds(10));
  void read_apart(const exchange_ptr& on, std::string answer,
                  std::function<void(const std::string&)> then);
  /// The same for an answer of type T.
  template <class T>
  void ask_for(const exchange_ptr& on, std::string_view verb, std::string bytes,
               std::function<void(const T&)> then,
               std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    ask(
      on, verb, std::move(bytes),
      [on, then = std::move(then)](const std::string& answer) {
        const auto read = from_wire<T>(answer);
        if (!read) return on->fail({errc::internal, read.error().message, {}});
        then(*read);
      },
      timeout);
  }
  /// What is served; asked for again where `name` is not known.
  void note_served(const model_info& served);
  void with_model(const exchange_ptr& on, const std::string& name,
                  std::function<void(const model_info&)> then);

  // http_api_generate.cpp
  void generate(const exchange_ptr& on);
  void start(const exchange_ptr& on, openai_job job, const model_info& served);
  void tokenize(const exchange_ptr& on);
  void detokenize(const exchange_ptr& on);
  void render(const exchange_ptr& on);

  // http_api_operator.cpp
  void show_health(const exchange_ptr& on);
  void show_models(const exchange_ptr& on);
  void show_metrics(const exchange_ptr& on);
  void show_requests(const exchange_ptr& on);
  void cancel_request(const exchange_ptr& on);
  void show_stats(const exchange_ptr& on);
  void drain(const exchange_ptr& on);
  void tell(const exchange_ptr& on, std::string_view verb);
  void show_config(const exchange_ptr& on);
  void change_config(const exchange_ptr& on);
  void start_profile(const exchange_ptr& on);
  void stop_profile(const exchange_ptr& on);
  void show_trace(const exchange_ptr& on, std::int64_t steps);
  void show_snapshot(const exchange_ptr& on);
  void show_page(const exchange_ptr& on);
  void begin_events(const exchange_ptr& on);

  http_api_options options_;
  api_keys keys_;
  metrics* metrics_;
  std::shared_ptr<api_counts> counts_;
  http_timer after_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<engine_link> engine_;
  loading_state loading_;
  bool is_draining_ = false;
  std::uint64_t next_id_ = 0;
  std::optional<model_info> served_;
  std::chrono::steady_clock::time_point served_at_{};
  std::optional<std::uint64_t> profile_begin_;  ///< steps settled when a profile was started
  std::map<std::uint64_t, std::weak_ptr<generation>> generations_;
  body_worker worker_;  // the last: its thread uses what is above
};

}  // namespace deepinfer
