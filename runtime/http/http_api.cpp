#include "runtime/http/http_api.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/quoted.hpp"
#include "runtime/http/api_rules.hpp"
#include "runtime/http/dashboard.hpp"
#include "runtime/http/openapi.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t most_large_bodies = 16;
constexpr std::chrono::milliseconds model_timeout{10'000};
/// How long what is served is taken for granted: the node behind a gateway may change.
constexpr std::chrono::seconds model_memory{10};

bool is_open(const api_route& route, bool open_metrics) {
  return route.is_open || (open_metrics && route.call == api_call::metrics);
}

/// One is there, or its header promises one.
bool has_body(const http_request& request) {
  const auto* length = request.header("content-length");
  return !request.body.empty() || request.header("transfer-encoding") || (length && *length != "0");
}

std::string_view id_prefix(const api_route* route) {
  if (route && route->call == api_call::chat) return "chatcmpl-";
  if (route && route->call == api_call::completion) return "cmpl-";
  return "req-";
}

}  // namespace

http_api::http_api(http_api_options options, api_keys keys, metrics* counts, http_timer after)
  : options_(std::move(options)),
    keys_(std::move(keys)),
    metrics_(counts),
    counts_(std::make_shared<api_counts>(counts)),
    after_(std::move(after)),
    worker_(most_large_bodies) {}

http_api::~http_api() = default;

void http_api::note_loading(double progress, const std::string& stage) {
  const std::lock_guard lock(mutex_);
  loading_ = {progress, stage};
}

void http_api::attach(std::shared_ptr<engine_link> engine) {
  const std::lock_guard lock(mutex_);
  engine_ = std::move(engine);
}

void http_api::begin_drain() {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
}

void http_api::close(std::chrono::milliseconds deadline) {
  begin_drain();
  std::vector<std::shared_ptr<generation>> open;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, deadline, [this] { return generations_.empty(); });
    for (const auto& [key, it] : generations_)
      if (auto one = it.lock()) open.push_back(std::move(one));
  }
  for (const auto& it : open)
    it->stop({errc::server_shutdown, "the server is stopping: this answer is not complete", {}});
  worker_.stop();
  std::shared_ptr<engine_link> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(engine_);
}

http_response http_api::refuse(const error& why) {
  auto out = error_response(why);
  counts_->answered("refused", "other", out.status);
  out.headers.push_back({"X-Request-Id", next_id(nullptr)});
  return out;
}

std::string http_api::next_id(const api_route* route) {
  const std::lock_guard lock(mutex_);
  return fmt::format("{}{}{:08x}", id_prefix(route), options_.id_stem, ++next_id_);
}

result<void> http_api::admit_route(const http_request& request, const api_route* route) const {
  const bool is_public = route && is_open(*route, options_.open_metrics);
  if (!is_public && request.method != "OPTIONS")
    if (const auto tenant = keys_.tenant_of(request); !tenant)
      return tl::unexpected<error>(tenant.error());
  if (!route || !route->takes_json || !has_body(request)) return {};
  DI_TRY_VOID(check_content_encoding(request));
  return check_content_type(request);
}

result<void> http_api::admit(const http_request& request) const {
  if (!has_body(request)) return {};  // `handle` says the same, and more
  return admit_route(request, match_route(request.method, request.path).route);
}

void http_api::handle(std::shared_ptr<const http_request> request,
                      std::shared_ptr<http_reply> reply) {
  auto match = match_route(request->method, request->path);
  auto on = std::make_shared<exchange>(request, std::move(reply), counts_, next_id(match.route));
  on->route = match.route;
  on->rest = std::move(match.rest);
  on->extra = cors_headers(*request, options_.cors_origins);
  on->watch();
  if (const auto admitted = admit_route(*request, match.route); !admitted)
    return on->fail(admitted.error());
  if (match.route && !is_open(*match.route, options_.open_metrics))
    on->tenant = keys_.tenant_of(*request).value_or("");
  if (match.route && match.route->takes_json && request->body.size() >= options_.large_body) {
    if (!worker_.post([this, on] { dispatch(on); }))
      on->fail({errc::overloaded, "too many large requests are waiting to be read", {}});
    return;
  }
  if (match.route) return dispatch(on);
  if (match.allow.empty())
    return on->fail(
      {errc::not_found,
       fmt::format("nothing is served at {} {}", quoted(request->method), quoted(request->path)),
       {}});
  if (request->method == "OPTIONS") return on->send(options_response(*request, match.allow));
  on->extra.push_back({"Allow", match.allow});
  on->fail({errc::method_not_allowed,
            fmt::format("{} is not served at {}, only {}", quoted(request->method),
                        quoted(request->path), match.allow),
            {}});
}

void http_api::dispatch(const exchange_ptr& on) {
  switch (on->route->call) {
  case api_call::chat:
  case api_call::completion: return generate(on);
  case api_call::models:
  case api_call::model: return show_models(on);
  case api_call::tokenize: return tokenize(on);
  case api_call::detokenize: return detokenize(on);
  case api_call::render: return render(on);
  case api_call::live: return on->send_json(R"({"status":"live"})");
  case api_call::health:
  case api_call::ready: return show_health(on);
  case api_call::metrics: return show_metrics(on);
  case api_call::version: return on->send_json(options_.version_json);
  case api_call::openapi: return show_openapi(on);
  case api_call::page: return show_page(on);
  default: return dispatch_operator(on);
  }
}

void http_api::show_openapi(const exchange_ptr& on) {
  std::int32_t vocab_size = 0;
  {
    const std::lock_guard lock(mutex_);
    if (served_) vocab_size = served_->vocab_size;
  }
  on->send_json(openapi_text(options_.limits.max_n, vocab_size));
}

std::shared_ptr<engine_link> http_api::engine() const {
  const std::lock_guard lock(mutex_);
  return engine_;
}

std::shared_ptr<engine_link> http_api::engine_of(const exchange_ptr& on) {
  loading_state loading;
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    if (engine_) return engine_;
    loading = loading_;
    is_over = is_draining_;
  }
  if (is_over) {
    on->fail({errc::server_shutdown, "the server is stopping", {}});
    return nullptr;
  }
  on->fail({errc::not_ready,
            fmt::format("the model is being loaded: {}, {:.0f} % done", loading.stage,
                        loading.progress * 100.0),
            {}});
  return nullptr;
}

void http_api::ask(const exchange_ptr& on, std::string_view verb, std::string bytes,
                   std::function<void(const std::string&)> then,
                   std::chrono::milliseconds timeout) {
  const auto link = engine_of(on);
  if (!link) return;
  link->call(
    verb, std::move(bytes),
    [weak = weak_from_this(), on, then = std::move(then)](result<std::string> answer) {
      if (!answer) return on->fail(answer.error());
      if (const auto self = weak.lock(); self && answer->size() >= self->options_.large_body)
        return self->read_apart(on, *std::move(answer), then);
      then(*answer);
    },
    timeout);
}

/// Who brings the answer brings the chunks of all requests, which would wait meanwhile.
void http_api::read_apart(const exchange_ptr& on, std::string answer,
                          std::function<void(const std::string&)> then) {
  if (!worker_.post([answer = std::move(answer), then = std::move(then)] { then(answer); }))
    on->fail({errc::overloaded, "too many large requests are waiting to be answered", {}});
}

void http_api::note_served(const model_info& served) {
  const std::lock_guard lock(mutex_);
  served_ = served;
  served_at_ = std::chrono::steady_clock::now();
}

void http_api::with_model(const exchange_ptr& on, const std::string& name,
                          std::function<void(const model_info&)> then) {
  std::optional<model_info> known;
  {
    const std::lock_guard lock(mutex_);
    const auto age = std::chrono::steady_clock::now() - served_at_;
    if (age < model_memory) known = served_;
  }
  if (known && check_model_name(name, *known)) return then(*known);
  ask(
    on, verb::model, {},
    [self = shared_from_this(), on, name, then = std::move(then)](const std::string& bytes) {
      const auto served = from_wire<model_info>(bytes);
      if (!served) return on->fail({errc::internal, "model: " + served.error().message, {}});
      self->note_served(*served);
      if (const auto fits = check_model_name(name, *served); !fits) return on->fail(fits.error());
      then(*served);
    },
    model_timeout);
}

}  // namespace deepinfer
