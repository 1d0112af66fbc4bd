/// A node as its settings want it: over a checkpoint, or over a script of answers.
#pragma once

#include <memory>
#include <string>

#include "actors/live_config.hpp"
#include "actors/node.hpp"

namespace deepinfer {

/// As `node::load`, and with the verbs of operators; where `model.script` is set, what the script
/// answers stands in for the model. What is changed while it runs is changed in `config`.
result<std::unique_ptr<node>> load_engine(std::shared_ptr<live_config> config,
                                          const std::string& path,
                                          const load_progress& on_progress = {},
                                          node_parts parts = {});

}  // namespace deepinfer
