// The API behind real sockets, over an engine that lives on a thread of its own and keeps to the
// credit it is given.
#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "tests/http/api_fixture.hpp"
#include "tests/http/raw_client.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// Says `piece` `max_tokens` times to every request, as far as its window lets it.
class paced_engine final : public engine_link {
public:
  explicit paced_engine(std::string text) : piece_(std::move(text)), thread_([this] { run(); }) {}
  ~paced_engine() override {
    post(nullptr);
    thread_.join();
  }

  void start(generate_request request, std::shared_ptr<engine_listener> listener) override {
    post([this, asked = std::move(request), to = std::move(listener)] {
      to->on_accepted();
      auto& it = open_[asked.request_id];
      it = {to, asked.window, asked.sampling.max_tokens.value_or(3)};
      pump(asked.request_id);
    });
  }
  void take(const std::string& id, std::int32_t chunks) override {
    post([this, id, chunks] {
      if (const auto found = open_.find(id); found != open_.end()) found->second.credit += chunks;
      pump(id);
    });
  }
  void drop(const std::string& id) override {
    post([this, id] { dropped += open_.erase(id) > 0 ? 1 : 0; });
  }
  void call(std::string_view, std::string, std::function<void(result<std::string>)> answer,
            std::chrono::milliseconds) override {
    post([answer = std::move(answer)] {
      model_info served;
      served.names = {"tiny"};
      answer(to_wire(served));
    });
  }

  std::atomic<int> dropped{0}, sent{0};

private:
  struct open_request {
    std::shared_ptr<engine_listener> listener;
    std::int32_t credit = 0, left = 0;
  };

  void pump(const std::string& id) {
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    auto& it = found->second;
    for (; it.left > 0 && it.credit > 0; --it.left, --it.credit) {
      ++sent;
      it.listener->on_chunk(text_chunk(piece_));
    }
    if (it.left > 0) return;
    const auto listener = it.listener;
    open_.erase(found);
    listener->on_chunk(final_chunk(finish_reason::stop));
  }
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_one();
  }
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!work) return;
      work();
    }
  }

  std::string piece_;
  std::map<std::string, open_request> open_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

struct served_api {
  explicit served_api(const std::string& piece = "word ")
    : engine(std::make_shared<paced_engine>(piece)) {
    http_api_options options;
    options.answers.window = 32;
    api = std::make_shared<http_api>(
      options, api_keys{}, &counts,
      [this](std::chrono::milliseconds delay, std::function<void()> call) {
        server->after(delay, std::move(call));
      });
    api->attach(engine);
    http_server_options listening;
    listening.refuse = [this](const error& why) { return api->refuse(why); };
    listening.admit = [this](const http_request& request) { return api->admit(request); };
    server = http_server::open(listening, [this](auto request, auto reply) {
               api->handle(std::move(request), std::move(reply));
             }).value();
  }
  ~served_api() {
    api->close(std::chrono::milliseconds(0));
    server->stop(std::chrono::milliseconds(0));
  }
  raw_client ask(const std::string& path, const std::string& body, int receive_bytes = 0) const {
    raw_client client(server->port(), receive_bytes);
    client.send("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    return client;
  }
  template <class Condition>
  static bool comes_true(Condition&& condition) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!condition() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }

  metrics counts;
  std::shared_ptr<paced_engine> engine;
  std::unique_ptr<http_server> server;
  std::shared_ptr<http_api> api;
};

std::string prompt(const std::string& rest) {
  return R"({"prompt":"a",)" + rest + "}";
}

}  // namespace

TEST_CASE("a whole answer and a streamed one say the same over a socket") {
  served_api bench;
  auto whole = bench.ask("/v1/completions", prompt(R"("max_tokens":200)")).read_answer();
  CHECK(whole.status == 200);
  const auto text =
    std::string(parse_json(whole.body).value().at("choices").at(0).at("text").as_string());
  CHECK(text.size() == 200 * 5);
  auto streamed =
    bench.ask("/v1/completions", prompt(R"("max_tokens":200,"stream":true)")).read_answer();
  CHECK(streamed.status == 200);
  CHECK(streamed.is_complete);
  CHECK(streamed.header("Content-Type") == "text/event-stream; charset=utf-8");
  CHECK(streamed.body.ends_with("data: [DONE]\n\n"));
  std::string pieces;
  for (std::size_t at = 0; (at = streamed.body.find("data: {", at)) != std::string::npos; ++at) {
    const auto line = streamed.body.substr(at + 6, streamed.body.find('\n', at) - at - 6);
    pieces += parse_json(line).value().at("choices").at(0).at("text").as_string();
  }
  CHECK(pieces == text);
}

TEST_CASE("clients that are cut off free what they asked for, and none stays in flight") {
  served_api bench;
  {
    std::vector<raw_client> clients;
    for (int i = 0; i < 20; ++i)
      clients.push_back(
        bench.ask("/v1/completions", prompt(R"("max_tokens":390000,"stream":true)"), 4096));
    for (auto& it : clients) CHECK(it.read_until("data: "));
    for (auto& it : clients) it.reset();
  }
  CHECK(served_api::comes_true([&] { return bench.engine->dropped == 20; }));
  CHECK(served_api::comes_true(
    [&] { return bench.counts.value(metric::http_requests_in_flight) == 0; }));
  CHECK(bench.counts.value(metric::http_requests_total, {"/v1/completions", "POST", "499"}) == 20);
  CHECK(bench.ask("/v1/completions", prompt(R"("max_tokens":2)")).read_answer().status == 200);
}

TEST_CASE("a client that reads nothing holds up its own request only, and then gets all of it") {
  served_api bench(std::string(1000, 'x'));
  constexpr int chunks = 20'000;  // some 22 MB
  auto slow = bench.ask("/v1/completions", prompt(R"("max_tokens":20000,"stream":true)"), 4096);
  REQUIRE(slow.read_until("data: "));
  // What the kernel and the reply's buffer hold is the bound; then the engine stands still.
  int before = -1;
  CHECK(served_api::comes_true([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return bench.engine->sent == std::exchange(before, bench.engine->sent.load());
  }));
  CHECK(bench.engine->sent < chunks / 2);
  CHECK(bench.ask("/v1/completions", prompt(R"("max_tokens":50)")).read_answer().status == 200);
  const auto answer = slow.read_answer();
  CHECK(answer.is_complete);
  CHECK(answer.body.ends_with("data: [DONE]\n\n"));
  CHECK(answer.body.size() > chunks * 1000);
  CHECK(bench.engine->dropped == 0);
}

TEST_CASE("pipelined requests of one connection are answered in order") {
  served_api bench;
  raw_client client(bench.server->port());
  const auto body = prompt(R"("max_tokens":40)");
  client.send(
    "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
    "\r\n\r\n" + body + "GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(client.read_answer().body.find("text_completion") != std::string::npos);
  CHECK(client.read_answer().body == R"({"status":"live"})");
}
