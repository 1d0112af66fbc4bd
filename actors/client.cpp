#include "actors/client.hpp"

#include <fmt/format.h>

#include "actors/client_state.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

/// Starting a request tokenizes its prompt; the answer comes when that is done.
constexpr auto start_timeout = 60s;
constexpr auto control_timeout = 10s;

error node_gone() {
  return {errc::server_shutdown, "the node has stopped", {}};
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

struct stream::state {
  explicit state(client::state& node) : sink(*node.system, true) {}

  caf::scoped_actor sink;
  std::string id;
  bool has_ended = false;
};

stream::stream(std::unique_ptr<state> opened) : state_(std::move(opened)) {}
stream::stream(stream&&) noexcept = default;
stream& stream::operator=(stream&&) noexcept = default;
stream::~stream() = default;  // the sink leaves; the gateway, which monitors it, cancels

const std::string& stream::id() const {
  return state_->id;
}

result<std::optional<token_chunk>> stream::next(std::chrono::milliseconds timeout) {
  if (state_->has_ended) return std::optional<token_chunk>{};
  result<std::optional<token_chunk>> out =
    fail(errc::deadline_exceeded, fmt::format("no chunk within {} ms", timeout.count()));
  state_->sink->receive(
    [&](chunk_atom, token_chunk& chunk) {
      state_->has_ended = chunk.finish.has_value();
      out = std::optional(std::move(chunk));
    },
    [&](const caf::down_msg&) {
      state_->has_ended = true;
      out = tl::unexpected<error>(node_gone());
    },
    caf::after(timeout) >> [] {});
  return out;
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
}

result<stream> client::generate(const generate_request& request) const {
  auto opened = std::make_unique<stream::state>(*state_);
  opened->sink->monitor(state_->gateway);
  result<stream> out = fail(errc::internal, "no answer");
  opened->sink
    ->request(state_->gateway, start_timeout, generate_atom::value, request,
              caf::actor_cast<caf::actor>(opened->sink))
    .receive(
      [&](std::string& id) {
        opened->id = std::move(id);
        out = stream(std::move(opened));
      },
      [&](caf::error& failure) { out = tl::unexpected<error>(from_caf(failure)); });
  return out;
}

result<generate_result> client::generate_sync(const generate_request& request,
                                              std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  DI_TRY(auto chunks, generate(request));
  generate_result out;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
    DI_TRY(auto chunk, chunks.next(std::max(left, std::chrono::milliseconds(0))));
    if (!chunk) break;
    out.add(*chunk);
  }
  if (out.finish.code != errc::ok && out.finish.reason != finish_reason::abort)
    return fail(out.finish.code, out.finish.message);
  return out;
}

result<bool> client::cancel(const std::string& request_id) const {
  return ask_and_wait<bool>(*state_->system, state_->gateway, control_timeout, cancel_atom::value,
                            request_id);
}

result<node_stats> client::stats() const {
  return ask_and_wait<node_stats>(*state_->system, state_->supervisor, control_timeout,
                                  stats_atom::value);
}

}  // namespace deepinfer
