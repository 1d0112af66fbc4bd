/// What a node's door and the links to it say to each other over the network.
///
/// Messages hold atoms, numbers, strings and handles alone, and structs as Protobuf bytes, so that
/// the versions of both ends may differ:
///   link -> door      (hello, version, key, name)   answered (session, HelloReply)
///   link -> session   (generate, GenerateRequest)   answered with the request's id
///                     (cancel, id)                  answered with true where it was running
///                     (credit, id, chunks)
///                     (call, verb, bytes)           answered with bytes
///   session -> link   (chunk, ChunkList)            at most one for all that came together
/// A session obeys its link alone, ends when that has gone, and with it every request it had
/// started. An error is an answer that carries the bytes of Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "actors/caf_compat.hpp"
#include "actors/protocol.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

inline constexpr std::uint32_t wire_version = 1;

/// Chunks that a request over the network may have sent and not taken where it names no window, and
/// the most it may name: what a client that has stopped reading can cost the node.
inline constexpr std::int32_t wire_window = 64;
inline constexpr std::int32_t max_wire_window = 65'536;

using hello_atom = caf::atom_constant<caf::atom("hello")>;
using watch_atom = caf::atom_constant<caf::atom("watch")>;
using unwatch_atom = caf::atom_constant<caf::atom("unwatch")>;
using open_atom = caf::atom_constant<caf::atom("opened")>;
using link_tick_atom = caf::atom_constant<caf::atom("linktick")>;

caf::error to_remote(const error& why);
/// Of an answer that came over the network, or of one that did not come.
error from_remote(const caf::error& why);

/// How long a verb may take: a drain as long as it asks for, others seconds.
std::chrono::milliseconds time_limit_of(std::string_view verb, const std::string& bytes);

/// A node takes at most so long to accept a request, which it tokenizes first.
inline constexpr std::chrono::seconds accept_time_limit{60};
inline constexpr std::chrono::seconds control_time_limit{10};

/// A typed actor's note to an actor on another node, whose interface is the messages above.
template <class Self, class... Args>
void tell_remote(Self* self, const caf::actor& target, Args&&... args) {
  auto* there = caf::actor_cast<caf::abstract_actor*>(target);
  there->eq_impl(caf::make_message_id(), self->ctrl(), self->context(),
                 std::forward<Args>(args)...);
}

/// Whether the message in hand was sent by `wanted`.
template <class Self>
bool is_from(Self* self, const caf::actor& wanted) {
  const auto& sender = self->current_sender();
  return sender != nullptr && sender->address() == wanted.address();
}

/// Whether it was sent by an actor of this process.
template <class Self>
bool is_local_sender(Self* self) {
  const auto& sender = self->current_sender();
  return sender != nullptr && sender->node() == self->node();
}

/// Nothing a stranger sends makes this actor speak or leave.
template <class Self>
void ignore_strangers(Self* self) {
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::error&) {});
  self->set_exit_handler([](caf::exit_msg&) {});
}

}  // namespace deepinfer
