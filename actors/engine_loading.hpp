/// A node as its settings want it: over a checkpoint, or over a script of answers.
#pragma once

#include <memory>
#include <string>

#include "actors/node.hpp"

namespace deepinfer {

/// As `node::load`; where `model.script` is set, what the script answers stands in for the model.
result<std::unique_ptr<node>> load_engine(const engine_settings& settings, const std::string& path,
                                          const load_progress& on_progress = {},
                                          node_parts parts = {});

}  // namespace deepinfer
