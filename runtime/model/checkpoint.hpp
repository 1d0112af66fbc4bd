/// A checkpoint directory, opened and found in order: what the model is built from.
///
/// Opening reads config.json and the headers of all shards, checks every tensor's name, type and
/// shape and every scale, and maps the files; weights are touched when the model packs them.
/// Errors: bad_checkpoint (exit code 3), naming file, tensor, found and expected.
#pragma once

#include <string>

#include "runtime/base/error.hpp"
#include "runtime/model/checkpoint_check.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/safetensors.hpp"

namespace deepinfer {

struct checkpoint {
  model_config config;
  tensor_set tensors;        ///< owns the mappings; views live as long as this
  checkpoint_report report;  ///< clean; has totals and warnings
};

result<checkpoint> open_checkpoint(const std::string& directory, const check_options& options = {});

}  // namespace deepinfer
