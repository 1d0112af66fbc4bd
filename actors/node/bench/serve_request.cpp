#include "actors/node/bench/serve_request.hpp"

#include <memory>

#include "runtime/http/event_reader.hpp"

namespace deepinfer {
namespace {

std::string body_of(const serve_request_form& form, const serve_prompt& prompt) {
  json::object body{
    {"max_tokens", prompt.output_len}, {"temperature", 0}, {"stream", form.is_stream}};
  if (!form.model.empty()) body["model"] = form.model;
  if (form.is_stream) body["stream_options"] = json::object{{"include_usage", true}};
  if (form.ignores_eos) body["ignore_eos"] = true;
  if (prompt.messages.is_null())
    body["prompt"] = prompt.prompt;
  else
    body["messages"] = prompt.messages;
  return to_text(body);
}

}  // namespace

std::vector<http_header> serve_headers(const std::string& api_key) {
  std::vector<http_header> out{{"Content-Type", "application/json"}};
  if (!api_key.empty()) out.push_back({"Authorization", "Bearer " + api_key});
  return out;
}

load_request serve_request_of(const serve_request_form& form, const serve_prompt& prompt,
                              std::int64_t start_ns, serve_record& record) {
  struct reading {
    std::string body;
    std::int64_t now_ns = 0;
    std::unique_ptr<event_reader> events;
  };
  const auto shared = std::make_shared<reading>();
  auto* to = shared.get();
  shared->events = std::make_unique<event_reader>(
    [to, &record](std::string_view data) { record.take_event(data, to->now_ns); });
  record.sent_ns = start_ns;
  load_request out;
  out.start_ns = start_ns;
  out.path = prompt.messages.is_null() ? "/v1/completions" : "/v1/chat/completions";
  out.headers = serve_headers(form.api_key);
  out.body = body_of(form, prompt);
  out.on_body = [shared, is_stream = form.is_stream](int status, std::string_view piece,
                                                     std::int64_t now_ns) {
    shared->now_ns = now_ns;
    if (status == 200 && is_stream)
      shared->events->feed(piece);
    else
      shared->body += piece;
  };
  out.on_end = [shared, &record, is_stream = form.is_stream](const result<int>& status,
                                                             std::int64_t now_ns) {
    if (status && *status == 200 && !is_stream) record.take_body(shared->body, now_ns);
    record.end(status, shared->body, now_ns);
  };
  return out;
}

}  // namespace deepinfer
