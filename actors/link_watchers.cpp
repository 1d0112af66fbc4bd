#include "actors/link_watchers.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/wire.hpp"
#include "runtime/base/log.hpp"

namespace deepinfer {
namespace {

using pointer = remote_link_pointer;

/// Why the node's model does not do; nothing: it does. What is expected may change while the node
/// is connected, so each answer is judged anew.
std::optional<std::string> judge(pointer self) {
  auto& state = self->state;
  auto misfit = state.model ? state.options.misfit(*state.model) : std::nullopt;
  if (misfit && misfit != state.misfit)
    log(severity::warning, "node at {}: {}", place(self), *misfit);
  state.misfit = misfit;
  return misfit;
}

/// A node that takes requests may serve something else. It says what once a connection; one that
/// does not know the verb is taken at its word.
void ask_model(pointer self, std::function<void(bool, const std::string&)> note) {
  auto& state = self->state;
  const auto hear = [self, connection = state.connections,
                     note = std::move(note)](std::optional<model_info> model) {
    auto& known = self->state;
    // What is late belongs to a connection that has gone: the next one asks for itself.
    if (!known.session || connection != known.connections) return;
    known.knows_model = true;
    known.model = std::move(model);
    known.misfit.reset();
    const auto misfit = judge(self);
    note(!misfit, misfit.value_or(""));
  };
  self
    ->request(state.session, control_time_limit, call_atom::value, std::string(verb::model),
              std::string())
    .then(
      [hear](const std::string& bytes) {
        auto model = from_wire<model_info>(bytes);
        hear(model ? std::optional(*std::move(model)) : std::nullopt);
      },
      [hear](const caf::error&) { hear(std::nullopt); });
}

/// What a node that does not say is sent stays as it was.
void tell_slots(pointer self, const remote_link_state::watcher& to) {
  const auto& model = self->state.model;
  if (model && model->capacity > 0)
    tell(self, to.actor, slots_atom::value, to.number, model->capacity);
}

}  // namespace

std::string place(pointer self) {
  return format_host_address(self->state.options.to);
}

void tell_ready(pointer self, bool is_ready, const std::string& why) {
  for (auto& it : self->state.watchers) {
    if (it.is_ready == is_ready && (is_ready || it.why == why)) continue;
    it.is_ready = is_ready;
    it.why = why;
    if (is_ready) tell_slots(self, it);
    tell(self, it.actor, ready_atom::value, it.number, is_ready, why);
  }
}

void ask_health(pointer self, std::uint64_t connection) {
  auto& state = self->state;
  if (!state.session || connection != state.connections) return;
  state.is_polling = !state.watchers.empty();
  if (!state.is_polling) return;
  const auto note = [self, connection](bool is_ready, const std::string& why) {
    if (!self->state.session || connection != self->state.connections) return;
    tell_ready(self, is_ready, why);
    self->delayed_send(self, self->state.options.health_interval, tick_atom::value, connection);
  };
  self
    ->request(state.session, state.options.health_timeout, call_atom::value,
              std::string(verb::health), std::string())
    .then(
      [self, note](const std::string& bytes) {
        const auto health = from_wire<node_health>(bytes);
        const auto now = health ? health->state : health_state::unspecified;
        const auto& known = self->state;
        const bool has_model = now == health_state::ready && known.session && known.options.misfit;
        if (has_model && !known.knows_model) return ask_model(self, note);
        if (const auto misfit = has_model ? judge(self) : std::nullopt) return note(false, *misfit);
        note(now == health_state::ready, fmt::format("the node is {}", name_of(now)));
      },
      [self, connection, note](const caf::error& why) {
        if (why == caf::sec::request_timeout || why == caf::sec::request_receiver_down)
          return on_silent(self, connection);
        const auto failure = from_remote(why);
        note(failure.code == errc::not_found, failure.message);
      });
}

void watch(pointer self, std::int32_t number, request_watcher_actor watcher) {
  auto& state = self->state;
  // What the others know already, the newcomer is told at once.
  const bool is_ready = !state.watchers.empty() && state.watchers.front().is_ready;
  const auto why = is_ready ? std::string() : state.last_failure;
  state.watchers.push_back({number, std::move(watcher), is_ready, why});
  if (is_ready) tell_slots(self, state.watchers.back());
  if (is_ready || !why.empty())
    tell(self, state.watchers.back().actor, ready_atom::value, number, is_ready, why);
  if (!state.is_polling) ask_health(self, state.connections);
}

void unwatch(pointer self, std::int32_t number, const request_watcher_actor& watcher) {
  const auto gone = std::erase_if(self->state.watchers, [&](const auto& it) {
    return it.number == number && it.actor == watcher;
  });
  if (gone > 0) tell(self, watcher, gone_atom::value, number, std::string("it was let go"));
}

}  // namespace deepinfer
