// What of the API makes or counts tokens.
#include <chrono>

#include "runtime/http/api_rules.hpp"
#include "runtime/http/http_api.hpp"
#include "runtime/http/text_api.hpp"

namespace deepinfer {
namespace {

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

openai_frame frame_of(const exchange& on, const openai_job& job, const model_info& served) {
  openai_frame frame;
  frame.endpoint = job.endpoint;
  frame.id = on.id();
  frame.created = unix_seconds();
  frame.model = !job.model.empty() || served.names.empty() ? job.model : served.names.front();
  frame.fingerprint = served.fingerprint;
  frame.n = job.n;
  frame.thinking = job.thinking;
  frame.logprobs = job.logprobs;
  frame.include_usage = job.include_usage;
  frame.timings = job.timings;
  return frame;
}

void name_ignored(exchange& on, const std::vector<std::string>& fields) {
  if (!fields.empty()) on.extra.push_back({"X-Ignored-Fields", header_list(fields)});
}

}  // namespace

void http_api::generate(const exchange_ptr& on) {
  {
    const std::lock_guard lock(mutex_);
    if (is_draining_)
      return on->fail({errc::draining, "the server takes no new requests: it is stopping", {}});
  }
  if (!engine_of(on)) return;
  const auto endpoint =
    on->route->call == api_call::chat ? openai_endpoint::chat : openai_endpoint::completion;
  auto job = read_openai_request(endpoint, on->request().body, options_.limits);
  if (!job) return on->fail(job.error());
  name_ignored(*on, job->ignored);
  const auto name = job->model;
  with_model(on, name,
             [self = shared_from_this(), on,
              read = std::make_shared<openai_job>(std::move(*job))](const model_info& served) {
               if (const auto fits = check_served(*read, served); !fits)
                 return on->fail(fits.error());
               self->start(on, std::move(*read), served);
             });
}

void http_api::start(const exchange_ptr& on, openai_job job, const model_info& served) {
  const auto link = engine_of(on);
  if (!link) return;
  const auto& headers = on->request();
  for (auto& request : job.requests) {
    request.model = job.model;
    request.tenant = on->tenant;
    request.traceparent = traceparent_of(headers);
    request.client_request_id = client_request_id_of(headers);
  }
  const auto frame = frame_of(*on, job, served);
  std::uint64_t key = 0;
  auto answer = std::shared_ptr<generation>(
    new generation(on, std::move(job), frame, options_.answers, link, after_));
  {
    const std::lock_guard lock(mutex_);
    key = ++next_id_;
    generations_.emplace(key, answer);
  }
  answer->on_end([weak = weak_from_this(), key] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex_);
    self->generations_.erase(key);
    self->changed_.notify_all();
  });
  answer->start();
}

void http_api::tokenize(const exchange_ptr& on) {
  auto asked = read_tokenize(on->request().body, options_.limits);
  if (!asked) return on->fail(asked.error());
  name_ignored(*on, asked->ignored);
  with_model(on, asked->model,
             [self = shared_from_this(), on, asked = *asked](const model_info& served) {
               const auto limit = served.max_model_len;
               const auto verb = asked.call.chat_json ? verb::render : verb::tokenize;
               self->ask_for<token_list>(on, verb, to_wire(asked.call),
                                         [on, asked, limit](const token_list& tokens) {
                                           on->send_json(tokenize_json(asked, tokens, limit));
                                         });
             });
}

void http_api::detokenize(const exchange_ptr& on) {
  auto asked = read_detokenize(on->request().body, options_.limits);
  if (!asked) return on->fail(asked.error());
  name_ignored(*on, asked->ignored);
  with_model(on, asked->model,
             [self = shared_from_this(), on, asked = *asked](const model_info& served) {
               if (const auto fits = check_ids(asked.tokens, served.vocab_size); !fits)
                 return on->fail(fits.error());
               self->ask_for<text_reply>(
                 on, verb::detokenize, to_wire(asked.tokens),
                 [on](const text_reply& reply) { on->send_json(detokenize_json(reply.text)); });
             });
}

void http_api::render(const exchange_ptr& on) {
  auto asked = read_render(on->request().body, options_.limits);
  if (!asked) return on->fail(asked.error());
  name_ignored(*on, asked->ignored);
  with_model(on, asked->model,
             [self = shared_from_this(), on, asked = *asked](const model_info& served) {
               const auto limit = served.max_model_len;
               self->ask_for<token_list>(on, verb::render, to_wire(asked.call),
                                         [on, limit](const token_list& tokens) {
                                           on->send_json(render_json(tokens, limit));
                                         });
             });
}

}  // namespace deepinfer
