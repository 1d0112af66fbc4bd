/// What the two sources of the gateway share. Private to it.
#pragma once

#include "actors/gateway.hpp"

namespace deepinfer::gateway_parts {

using pointer = gateway_actor::stateful_pointer<gateway_state>;

std::int64_t now_us(const gateway_state& state);

/// The sink is monitored from its first request to its last.
client_sink* use_sink(pointer self, const caf::actor& sink);
void release_sink(pointer self, client_sink* sink);

/// A tick comes as long as requests are open.
void arm_tick(pointer self);

// gateway_intake.cpp
caf::typed_response_promise<std::string> generate(pointer self, generate_request& asked,
                                                  const caf::actor& sink);
/// The request's long prompt is being tokenized: it is no more, and its caller is told why.
bool drop_intake(pointer self, const std::string& id, const error& why);
void drop_intakes_of(pointer self, const client_sink* sink, const error& why);
void drop_all_intakes(pointer self, const error& why);

}  // namespace deepinfer::gateway_parts
