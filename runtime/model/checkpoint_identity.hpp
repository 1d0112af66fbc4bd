/// Which model a directory holds, in a few digits: nodes that say the same give the same tokens, as
/// far as weights, config and tokenizer go.
///
/// Of weights, names, types and shapes count, and samples of the values: so much is read at any
/// size, and other weights of the same shape are told apart. How they are cut into shards, and
/// where the directory lies, makes no difference. Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/model/safetensors.hpp"

namespace deepinfer {

struct model_texts {
  std::string_view config;
  std::string_view tokenizer;
};

std::string checkpoint_identity(const model_texts& texts, const tensor_set& tensors);

/// Of weights that are drawn from a seed.
std::string drawn_identity(const model_texts& texts, std::uint64_t seed);

}  // namespace deepinfer
