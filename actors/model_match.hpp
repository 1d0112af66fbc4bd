/// Whether a node may be given what was asked of another: both must serve the same.
#pragma once

#include <optional>
#include <string>

#include "messages/control.hpp"

namespace deepinfer {

/// Why a request that a node with model `here` takes can't go to one with `there`, which has to
/// know all its names, hold as long a context and have the same weights, config and tokenizer, as
/// far as both say which; nothing: it can. Nodes may run it with other settings, also such as can
/// change a token (`model_info::fingerprint`): how they compute is their operators' choice.
std::optional<std::string> mismatch_of(const model_info& here, const model_info& there);

}  // namespace deepinfer
