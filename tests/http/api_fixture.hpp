/// The API without sockets and without an engine: replies that are remembered, an engine that does
/// what a test says, a clock that runs when told.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "messages/wire.hpp"
#include "runtime/base/json.hpp"
#include "runtime/http/http_api.hpp"

namespace deepinfer::test {

struct remembered_reply final : http_reply {
  void send(http_response answer) override {
    whole = std::move(answer);
    status = whole.status;
    headers = whole.headers;
    body += whole.body;
    ++answers;
  }
  void begin(int code, std::vector<http_header> given) override {
    status = code;
    headers = std::move(given);
    has_begun = true;
  }
  void write(std::string piece) override { body += piece; }
  void end() override {
    is_ended = true;
    ++answers;
  }
  void cut() override { is_cut = true; }
  std::size_t pending_bytes() const override { return pending; }
  void on_gone(std::function<void()> call) override { gone = std::move(call); }
  void on_drained(std::size_t, std::function<void()> call) override { drained = std::move(call); }
  bool is_gone() const override { return false; }

  std::string header(std::string_view name) const {
    for (const auto& it : headers)
      if (it.name == name) return it.value;
    return {};
  }
  /// The data of a stream's events, comments left out.
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    for (std::size_t at = 0; at < body.size();) {
      const auto end = body.find("\n\n", at);
      if (end == std::string::npos) break;
      const auto event = body.substr(at, end - at);
      if (event.starts_with("data: ")) out.push_back(event.substr(6));
      at = end + 2;
    }
    return out;
  }
  json::value json() const { return parse_json(body).value(); }
  std::string code() const { return std::string(json().at("error").at("code").as_string()); }

  http_response whole;
  int status = 0;
  std::vector<http_header> headers;
  std::string body;
  int answers = 0;
  bool has_begun = false, is_ended = false, is_cut = false;
  std::size_t pending = 0;
  std::function<void()> gone, drained;
};

struct fake_engine final : engine_link {
  struct open_request {
    generate_request asked;
    std::shared_ptr<engine_listener> listener;
  };

  fake_engine() {
    model.names = {"tiny", "tiny-alias"};
    model.max_model_len = 1024;
    model.vocab_size = 1000;
    model.fingerprint = "fp_1";
    answers[std::string(verb::model)] = to_wire(model);
    node_health ready;
    ready.state = health_state::ready;
    answers[std::string(verb::health)] = to_wire(ready);
  }
  void start(generate_request request, std::shared_ptr<engine_listener> listener) override {
    requests.push_back({std::move(request), std::move(listener)});
    if (on_start) on_start();
  }
  void take(const std::string& id, std::int32_t chunks) override { taken[id] += chunks; }
  void drop(const std::string& id) override { dropped.push_back(id); }
  void call(std::string_view name, std::string bytes,
            std::function<void(result<std::string>)> answer, std::chrono::milliseconds) override {
    calls.emplace_back(std::string(name), std::move(bytes));
    const auto found = answers.find(std::string(name));
    if (found == answers.end())
      return answer(fail(errc::not_found, "no answer for " + std::string(name)));
    answer(found->second);
  }

  model_info model;
  std::function<void()> on_start;
  std::vector<open_request> requests;
  std::map<std::string, std::int32_t> taken;
  std::vector<std::string> dropped;
  std::vector<std::pair<std::string, std::string>> calls;
  std::map<std::string, std::string> answers;
};

inline token_chunk text_chunk(std::string text, std::int32_t index = 0) {
  token_chunk out;
  out.index = index;
  out.text = std::move(text);
  out.ids = {1};
  return out;
}

inline token_chunk final_chunk(finish_reason reason, std::int32_t index = 0, bool is_last = true,
                               std::int32_t completion = 3) {
  token_chunk out;
  out.index = index;
  out.finish = sequence_finish{};
  out.finish->reason = reason;
  out.finish->usage = {10, completion, 4, 1};
  out.timings = request_timings{1000, 2000, 4000, 0};
  out.is_last = is_last;
  return out;
}

struct api_bench {
  explicit api_bench(http_api_options options = {}, std::vector<std::string> keys = {},
                     bool has_engine = true, metrics* counts = nullptr)
    : api(std::make_shared<http_api>(
        [&] {
          options.id_stem = "t";
          options.version_json = R"({"version":"0"})";
          return options;
        }(),
        api_keys::read(keys).value(), counts,
        [this](std::chrono::milliseconds, std::function<void()> call) {
          timers.push_back(std::move(call));
        })) {
    if (has_engine) api->attach(engine);
  }
  ~api_bench() { api->close(std::chrono::milliseconds(0)); }

  std::shared_ptr<remembered_reply> ask(std::string method, std::string path, std::string body = {},
                                        std::vector<http_header> headers = {}) {
    auto request = std::make_shared<http_request>();
    request->method = std::move(method);
    const auto query = path.find('?');
    request->path = path.substr(0, query);
    if (query != std::string::npos) request->query = path.substr(query + 1);
    request->headers = std::move(headers);
    request->body = std::move(body);
    auto reply = std::make_shared<remembered_reply>();
    api->handle(request, reply);
    return reply;
  }
  std::shared_ptr<remembered_reply> chat(const std::string& rest = {}) {
    return ask("POST", "/v1/chat/completions",
               R"({"messages":[{"role":"user","content":"hi"}])" + rest + "}");
  }
  std::shared_ptr<remembered_reply> complete(const std::string& fields) {
    return ask("POST", "/v1/completions", "{" + fields + "}");
  }
  /// Lets all that was to happen after a delay happen.
  void pass_time() {
    auto due = std::exchange(timers, {});
    for (const auto& call : due) call();
  }
  engine_listener& open(std::size_t i = 0) { return *engine->requests.at(i).listener; }

  std::shared_ptr<fake_engine> engine = std::make_shared<fake_engine>();
  std::vector<std::function<void()>> timers;
  std::shared_ptr<http_api> api;
};

}  // namespace deepinfer::test
