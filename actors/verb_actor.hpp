/// Who answers verbs, and no more is asked of it.
#pragma once

#include <string>

#include "actors/protocol.hpp"

namespace deepinfer {

using verb_actor = caf::typed_actor<
  // The answer of a verb, both as Protobuf bytes.
  rpc<std::string, call_atom, std::string, std::string>>;

}  // namespace deepinfer
