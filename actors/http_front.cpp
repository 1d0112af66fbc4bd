#include "actors/http_front.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "actors/key_file.hpp"
#include "actors/product_version.hpp"
#include "runtime/http/http_api.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {
namespace {

/// What is still on its way to clients may leave once everything has ended.
constexpr std::chrono::milliseconds last_bytes{1'000};

class listener_sink final : public chunk_sink {
public:
  explicit listener_sink(std::shared_ptr<engine_listener> to) : to_(std::move(to)) {}
  void on_accepted(const std::string&) override { to_->on_accepted(); }
  void on_chunk(token_chunk chunk) override { to_->on_chunk(std::move(chunk)); }
  void on_error(const error& failure) override { to_->on_error(failure); }

private:
  std::shared_ptr<engine_listener> to_;
};

class client_link final : public engine_link {
public:
  explicit client_link(client engine) : engine_(std::move(engine)) {}
  void start(generate_request request, std::shared_ptr<engine_listener> listener) override {
    engine_.start(std::move(request), std::make_shared<listener_sink>(std::move(listener)));
  }
  void take(const std::string& request_id, std::int32_t chunks) override {
    engine_.take(request_id, chunks);
  }
  void drop(const std::string& request_id) override { engine_.drop(request_id); }
  void call(std::string_view verb, std::string bytes,
            std::function<void(result<std::string>)> answer,
            std::chrono::milliseconds timeout) override {
    engine_.call(verb, std::move(bytes), std::move(answer), timeout);
  }

private:
  client engine_;
};

http_api_options api_options(const server_settings& s) {
  http_api_options out;
  out.limits.max_n = s.max_n;
  out.limits.max_depth = static_cast<std::size_t>(s.max_json_depth);
  out.limits.strict_fields = s.strict_fields;
  out.answers.window = s.client_window;
  out.answers.keep_alive_interval = s.keep_alive_interval;
  out.answers.nonstream_keep_alive = s.nonstream_keep_alive;
  out.open_metrics = s.open_metrics;
  out.cors_origins = s.cors_origins;
  out.version_json = product_version_json();
  std::random_device source;
  out.id_stem = fmt::format("{:08x}{:08x}", source(), source());
  return out;
}

http_server_options server_options(const server_settings& s, const std::shared_ptr<http_api>& api) {
  http_server_options out;
  out.host = s.host;
  out.port = s.port;
  out.server_name = fmt::format("deepinfer/{}", product_version());
  out.max_body_bytes = static_cast<std::size_t>(s.max_request_bytes);
  out.max_connections = s.max_connections;
  out.header_timeout = s.header_timeout;
  out.body_timeout = s.body_timeout;
  out.idle_timeout = s.idle_timeout;
  out.eof_is_gone = s.eof_is_gone;
  out.refuse = [api](const error& why) { return api->refuse(why); };
  out.admit = [api](const http_request& request) { return api->admit(request); };
  return out;
}

result<api_keys> keys_of(const server_settings& s) {
  DI_TRY(const auto file, key_file_text(s));
  DI_TRY(auto keys, api_keys::read(s.api_keys, file), "server.api_keys");
  if (keys.empty() && !s.api_key_file.empty())
    return fail(errc::bad_config, "server.api_key_file: " + s.api_key_file + " holds no key");
  return keys;
}

/// The server runs calls after a delay, but it exists only once the API does.
struct late_timer {
  std::mutex mutex;
  http_server* server = nullptr;

  void after(std::chrono::milliseconds delay, std::function<void()> call) {
    const std::lock_guard lock(mutex);
    if (server) server->after(delay, std::move(call));
  }
};

class http_front_impl final : public http_front {
public:
  http_front_impl(std::shared_ptr<http_api> api, std::shared_ptr<late_timer> timer,
                  std::unique_ptr<http_server> server)
    : api_(std::move(api)),
      timer_(std::move(timer)),
      server_(std::move(server)) {
    const std::lock_guard lock(timer_->mutex);
    timer_->server = server_.get();
  }
  ~http_front_impl() override { stop(std::chrono::milliseconds(0)); }

  std::uint16_t port() const override { return server_->port(); }
  void note_loading(double progress, const std::string& stage) override {
    api_->note_loading(progress, stage);
  }
  void attach(client engine) override {
    api_->attach(std::make_shared<client_link>(std::move(engine)));
  }
  void begin_drain() override { api_->begin_drain(); }
  void stop(std::chrono::milliseconds deadline) override {
    if (std::exchange(has_stopped_, true)) return;
    api_->close(deadline);
    server_->stop(last_bytes);
    const std::lock_guard lock(timer_->mutex);
    timer_->server = nullptr;
  }

private:
  std::shared_ptr<http_api> api_;
  std::shared_ptr<late_timer> timer_;
  std::unique_ptr<http_server> server_;
  bool has_stopped_ = false;
};

}  // namespace

result<std::unique_ptr<http_front>> http_front::open(const engine_settings& settings,
                                                     metrics* counts) {
  DI_TRY(auto keys, keys_of(settings.server));
  auto timer = std::make_shared<late_timer>();
  auto api = std::make_shared<http_api>(
    api_options(settings.server), std::move(keys), counts,
    [timer](std::chrono::milliseconds delay, std::function<void()> call) {
      timer->after(delay, std::move(call));
    });
  auto server = http_server::open(
    server_options(settings.server, api),
    [api](std::shared_ptr<const http_request> request, std::shared_ptr<http_reply> reply) {
      api->handle(std::move(request), std::move(reply));
    });
  if (!server) {
    auto why = std::move(server).error();
    const auto* at_fault = why.code == errc::port_in_use ? "server.port" : "server.host";
    return tl::unexpected<error>(std::move(why).within(at_fault));
  }
  return std::unique_ptr<http_front>(
    std::make_unique<http_front_impl>(std::move(api), std::move(timer), *std::move(server)));
}

}  // namespace deepinfer
