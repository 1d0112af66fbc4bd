#include "actors/client.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>

#include <fmt/format.h>

#include "actors/actor_host.hpp"
#include "actors/client_state.hpp"
#include "actors/remote_link.hpp"
#include "messages/wire.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

/// A request may wait in the node's queue, as long as the node lets it.
constexpr auto start_timeout = 24h;
constexpr auto control_timeout = 10s;

error node_gone() {
  return {errc::server_shutdown, "the node has stopped", {}};
}

/// Tells a sink or a caller that the node has gone where the hub drops the message instead.
class guarded_sink final : public chunk_sink {
public:
  explicit guarded_sink(std::shared_ptr<chunk_sink> to) : to_(std::move(to)) {}
  ~guarded_sink() override {
    if (!has_ended_) to_->on_error(node_gone());
  }
  guarded_sink(const guarded_sink&) = delete;
  guarded_sink& operator=(const guarded_sink&) = delete;

  void on_accepted(const std::string& id) override { to_->on_accepted(id); }
  void on_chunk(token_chunk chunk) override {
    has_ended_ = chunk.is_last;
    to_->on_chunk(std::move(chunk));
  }
  void on_error(const error& failure) override {
    has_ended_ = true;
    to_->on_error(failure);
  }

private:
  std::shared_ptr<chunk_sink> to_;
  bool has_ended_ = false;
};

struct guarded_answer {
  explicit guarded_answer(call_answer to) : tell(std::move(to)) {}
  ~guarded_answer() {
    if (tell) tell(tl::unexpected<error>(node_gone()));
  }
  guarded_answer(const guarded_answer&) = delete;
  guarded_answer& operator=(const guarded_answer&) = delete;

  call_answer tell;
};

std::string random_name() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

}  // namespace

error from_caf(const caf::error& failure) {
  error out{errc::internal, caf::to_string(failure), {}};
  if (failure == caf::sec::request_timeout)
    return {errc::deadline_exceeded, "no answer within the deadline", {}};
  if (failure == caf::sec::request_receiver_down) return node_gone();
  caf::message context = failure.context();
  context.apply([&out](std::uint8_t code, std::string& message, std::string& param) {
    out = {static_cast<errc>(code), std::move(message), std::move(param)};
  });
  return out;
}

caf::error to_caf(const error& failure) {
  return caf::make_error(caf::sec::invalid_argument, static_cast<std::uint8_t>(failure.code),
                         failure.message, failure.param);
}

client::state::state(caf::actor_system& of, node_door_actor door_there, std::shared_ptr<void> kept)
  : owner(std::move(kept)),
    system(&of),
    door(std::move(door_there)),
    hub(of.spawn(client_hub, door)),
    name(random_name()) {}

client::state::~state() {
  tell_from_outside(hub, stop_atom::value);
}

node_door_actor door_of(const client& engine) {
  return engine.inside().door;
}

namespace {

/// Chunks wait here from the hub's thread to the reader's.
class inbox final : public chunk_sink {
public:
  void on_accepted(const std::string&) override {
    const std::lock_guard lock(mutex_);
    is_accepted_ = true;
    changed_.notify_one();
  }
  void on_chunk(token_chunk chunk) override {
    const std::lock_guard lock(mutex_);
    has_ended_ = chunk.is_last;
    chunks_.push_back(std::move(chunk));
    changed_.notify_one();
  }
  void on_error(const error& why) override {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    failure_ = why;
    changed_.notify_one();
  }

  result<void> wait_accepted(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const bool has_come =
      changed_.wait_for(lock, timeout, [this] { return is_accepted_ || has_ended_; });
    if (!has_come) return fail(errc::deadline_exceeded, "the node has not taken the request");
    if (!is_accepted_ && failure_) return tl::unexpected<error>(*failure_);
    return {};
  }

  result<std::optional<token_chunk>> next(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [this] { return has_ended_ || !chunks_.empty(); }))
      return fail(errc::deadline_exceeded, fmt::format("no chunk within {} ms", timeout.count()));
    if (chunks_.empty()) {
      if (failure_) return tl::unexpected<error>(*failure_);
      return std::optional<token_chunk>{};
    }
    auto chunk = std::optional(std::move(chunks_.front()));
    chunks_.pop_front();
    return chunk;
  }

  bool has_ended() const {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }

private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<token_chunk> chunks_;
  std::optional<error> failure_;
  bool is_accepted_ = false;
  bool has_ended_ = false;
};

}  // namespace

/// The reader's end. The hub holds the inbox alone: the client ends with its user, never inside one
/// of its own actors.
class stream::state {
public:
  state(std::shared_ptr<client::state> of, std::string name, std::int32_t window)
    : id(std::move(name)),
      of_(std::move(of)),
      window_(window) {}

  result<std::optional<token_chunk>> next(std::chrono::milliseconds timeout) {
    auto chunk = box->next(timeout);
    // A quarter of a window at a time: a message per chunk would double their number.
    if (chunk && *chunk && window_ > 0 && !(*chunk)->is_last &&
        ++taken_ >= std::max(window_ / 4, 1))
      tell_from_outside(of_->hub, credit_atom::value, id, std::exchange(taken_, 0));
    return chunk;
  }

  void drop() {
    if (!box->has_ended()) tell_from_outside(of_->hub, cancel_atom::value, id);
  }

  const std::string id;
  const std::shared_ptr<inbox> box = std::make_shared<inbox>();

private:
  std::shared_ptr<client::state> of_;
  std::int32_t window_;
  std::int32_t taken_ = 0;  ///< and not told
};

stream::stream(std::shared_ptr<state> opened) : state_(std::move(opened)) {}
stream::stream(stream&&) noexcept = default;
stream& stream::operator=(stream&& from) noexcept {
  if (state_) state_->drop();
  state_ = std::move(from.state_);
  return *this;
}
stream::~stream() {
  if (state_) state_->drop();
}

const std::string& stream::id() const {
  return state_->id;
}

result<std::optional<token_chunk>> stream::next(std::chrono::milliseconds timeout) {
  return state_->next(timeout);
}

void generate_result::add(const token_chunk& chunk) {
  id = chunk.request_id;
  text += chunk.text;
  reasoning_text += chunk.reasoning_text;
  ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
  logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
  for (const auto& delta : chunk.tool_calls) {
    if (tool_calls.empty() || tool_calls.back().index != delta.index) tool_calls.emplace_back();
    auto& call = tool_calls.back();
    call.index = delta.index;
    call.id += delta.id;
    call.name += delta.name;
    call.arguments += delta.arguments;
  }
  if (chunk.finish) finish = *chunk.finish;
  if (chunk.timings) timings = *chunk.timings;
}

std::string client::start(generate_request request, std::shared_ptr<chunk_sink> sink) const {
  if (request.request_id.empty())
    request.request_id = fmt::format("{}-{}", state_->name, ++state_->started);
  auto id = request.request_id;
  tell_from_outside(state_->hub, generate_atom::value, std::move(request),
                    sink_ptr(std::make_shared<guarded_sink>(std::move(sink))));
  return id;
}

/// Starts `request` on `at`, whose node is `of`, and waits until it has been taken.
static result<stream> open_stream(const client& at, const std::shared_ptr<client::state>& of,
                                  generate_request request, std::chrono::milliseconds timeout) {
  if (request.request_id.empty())
    request.request_id = fmt::format("{}-{}", of->name, ++of->started);
  if (request.window <= 0) request.window = of->stream_window;
  auto opened = std::make_shared<stream::state>(of, request.request_id, request.window);
  at.start(std::move(request), opened->box);
  stream out(opened);
  DI_TRY_VOID(opened->box->wait_accepted(timeout));
  return out;
}

result<stream> client::generate(const generate_request& request) const {
  return open_stream(*this, state_, request, start_timeout);
}

result<generate_result> client::generate_sync(const generate_request& request,
                                              std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  if (request.sampling.n != 1)
    return fail(errc::invalid_argument,
                fmt::format("n: found {}, expected 1 for one answer", request.sampling.n), "n");
  DI_TRY(auto chunks, open_stream(*this, state_, request, timeout));
  generate_result out;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
    auto chunk = chunks.next(std::max(left, std::chrono::milliseconds(0)));
    if (!chunk && chunk.error().code == errc::deadline_exceeded)
      return fail(errc::deadline_exceeded,
                  fmt::format("no whole answer within {} ms", timeout.count()));
    if (!chunk) return tl::unexpected<error>(chunk.error());
    if (!*chunk) break;
    out.add(**chunk);
  }
  if (out.finish.code != errc::ok && out.finish.reason != finish_reason::abort)
    return fail(out.finish.code, out.finish.message);
  return out;
}

void client::take(const std::string& request_id, std::int32_t chunks) const {
  tell_from_outside(state_->hub, credit_atom::value, request_id, chunks);
}

void client::drop(const std::string& request_id) const {
  tell_from_outside(state_->hub, cancel_atom::value, request_id);
}

result<bool> client::cancel(const std::string& request_id) const {
  return ask_and_wait<bool>(*state_->system, state_->hub, control_timeout, cancel_atom::value,
                            request_id);
}

void client::call(std::string_view verb, std::string bytes,
                  std::function<void(result<std::string>)> answer,
                  std::chrono::milliseconds timeout) const {
  auto guard = std::make_shared<guarded_answer>(std::move(answer));
  tell_from_outside(state_->hub, call_atom::value, std::string(verb), std::move(bytes),
                    static_cast<std::uint32_t>(timeout.count()),
                    call_answer([guard](result<std::string> reply) {
                      std::exchange(guard->tell, nullptr)(std::move(reply));
                    }));
}

result<std::string> client::call(std::string_view verb, std::string bytes,
                                 std::chrono::milliseconds timeout) const {
  struct slot {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<result<std::string>> answer;
  };
  const auto shared = std::make_shared<slot>();
  call(
    verb, std::move(bytes),
    [shared](result<std::string> answer) {
      const std::lock_guard lock(shared->mutex);
      shared->answer = std::move(answer);
      shared->changed.notify_one();
    },
    timeout);
  std::unique_lock lock(shared->mutex);
  // The hub keeps the deadline; where it has gone nobody answers.
  if (!shared->changed.wait_for(lock, timeout + 1s, [&] { return shared->answer.has_value(); }))
    return tl::unexpected<error>(node_gone());
  return std::move(*shared->answer);
}

result<node_stats> client::stats() const {
  DI_TRY(const auto bytes, call(verb::stats, {}));
  return from_wire<node_stats>(bytes);
}

result<node_health> client::health() const {
  DI_TRY(const auto bytes, call(verb::health, {}));
  return from_wire<node_health>(bytes);
}

result<model_info> client::model() const {
  DI_TRY(const auto bytes, call(verb::model, {}));
  return from_wire<model_info>(bytes);
}

result<token_list> client::tokenize(const tokenize_call& asked) const {
  DI_TRY(const auto bytes, call(verb::tokenize, to_wire(asked)));
  return from_wire<token_list>(bytes);
}

result<std::string> client::detokenize(const std::vector<token_id>& ids) const {
  DI_TRY(const auto bytes, call(verb::detokenize, to_wire(token_list{ids, {}, {}})));
  DI_TRY(auto reply, from_wire<text_reply>(bytes));
  return std::move(reply.text);
}

result<token_list> client::render(const std::string& chat_json) const {
  DI_TRY(const auto bytes, call(verb::render, to_wire(tokenize_call{{}, chat_json, false})));
  return from_wire<token_list>(bytes);
}

result<request_list> client::requests() const {
  DI_TRY(const auto bytes, call(verb::requests, {}));
  return from_wire<request_list>(bytes);
}

result<std::string> client::drain(std::chrono::milliseconds timeout) const {
  DI_TRY(const auto bytes, call(verb::drain, to_wire(number_call{timeout.count()}), timeout + 5s));
  DI_TRY(auto reply, from_wire<text_reply>(bytes));
  return std::move(reply.text);
}

result<std::string> client::trace(std::int32_t steps) const {
  DI_TRY(const auto bytes, call(verb::trace, to_wire(number_call{steps})));
  DI_TRY(auto reply, from_wire<text_reply>(bytes));
  return std::move(reply.text);
}

namespace {

/// What a client over the network runs on: ended after its hub.
struct remote_side {
  std::shared_ptr<actor_host> host;
  remote_link_actor link;

  remote_side() = default;
  remote_side(const remote_side&) = delete;
  remote_side& operator=(const remote_side&) = delete;
  ~remote_side() {
    if (link) tell_from_outside(link, stop_atom::value);
  }
};

result<std::shared_ptr<remote_side>> open_side(const actor_settings& network,
                                               const client_options& options,
                                               std::chrono::milliseconds patience) {
  auto side = std::make_shared<remote_side>();
  DI_TRY(side->host, actor_host::open(network, {.threads = 1}));
  auto& system = side->host->system();
  remote_link_options link;
  link.to = {options.host, options.port};
  link.api_key = options.api_key;
  link.name = random_name();
  link.connect_timeout = options.connect_timeout;
  link.wait_timeout = patience;
  link.reconnects = options.reconnects;
  side->link = system.spawn(remote_link, network_of(*side->host), std::move(link));
  // The link keeps the time; an attempt that began before it was over may end after it.
  DI_TRY_VOID(ask_and_wait<std::string>(system, side->link, patience + 2 * options.connect_timeout,
                                        open_atom::value));
  return side;
}

std::shared_ptr<client::state> make_state(std::shared_ptr<remote_side> side) {
  auto& system = side->host->system();
  const node_door_actor door = side->link;
  auto made = std::make_shared<client::state>(system, door, std::move(side));
  made->stream_window = wire_window;
  return made;
}

}  // namespace

result<client> client::connect(const client_options& options) {
  actor_settings network;
  network.heartbeat_interval = options.heartbeat_interval;
  network.connection_timeout = options.connection_timeout;
  network.tls_certificate = options.tls_certificate;
  network.tls_key = options.tls_key;
  network.tls_ca = options.tls_ca;
  const auto deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  // A connection whose hello got no answer is useless, and the library would take it again: each
  // attempt has an actor system of its own, and more patience than the one before.
  for (auto patience = 1'000ms;; patience *= 2) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
    auto opened = open_side(network, options, std::clamp(left, 1ms, patience));
    if (opened) return client(make_state(std::move(*opened)));
    if (opened.error().code != errc::not_ready || left <= patience)
      return tl::unexpected<error>(opened.error());
  }
}

}  // namespace deepinfer
