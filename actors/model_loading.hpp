/// A checkpoint directory as everything an engine needs of it: checked config, packed weights,
/// tokenizer.
#pragma once

#include <memory>
#include <string>

#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"
#include "runtime/model/step_runner.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

numeric_mode numeric_of(const step_settings& settings);

/// The kernels that `settings` name. Error bad_config where this machine doesn't run them.
result<kernels::isa> kernels_of(const step_settings& settings);

/// Threads of the kernel team that `settings` ask for: one per core where they name none.
std::int32_t threads_of(const step_settings& settings);

struct loaded_model {
  std::shared_ptr<const model_weights> weights;  ///< with the config
  tokenizer words;
  std::string identity;  ///< of weights, config and tokenizer

  const model_config& config() const { return weights->config; }
};

/// Reads and checks config, tokenizer, every shard's header and every scale, then packs the
/// weights for `numeric`. Drawn weights need no shards, and are the same in every process. Errors:
/// bad_checkpoint, naming file, tensor, found and expected.
result<loaded_model> load_model(const std::string& directory, numeric_mode numeric,
                                const load_progress& on_progress = {},
                                load_format format = load_format::automatic);

}  // namespace deepinfer
