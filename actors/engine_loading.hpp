/// A node as its settings want it: over a checkpoint, or over a script of answers.
#pragma once

#include <memory>
#include <string>

#include "actors/live_config.hpp"
#include "actors/node.hpp"

namespace deepinfer {

/// Settings that are changed while it runs are changed in `config`. As `node::load`, and with the verbs of operators; where `model.script` is set, what the script answers stands in for the model.
result<std::unique_ptr<node>> load_engine(std::shared_ptr<live_config> config,
                                          const std::string& path,
                                          const load_progress& on_progress = {},
                                          node_parts parts = {});

}  // namespace deepinfer
