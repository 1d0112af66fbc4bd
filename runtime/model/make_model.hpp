/// Writes a complete random checkpoint in the form of a config: safetensors and, last, config.json.
///
/// Without a config.json a directory is no checkpoint, so one that was not finished can't be taken
/// for a whole one. Tensors go to `model.safetensors`, or, above `shard_bytes`, to
/// `model-00001-of-0000N.safetensors` with `model.safetensors.index.json`; the tokenizer's files
/// are the caller's. Values: runtime/model/make_model_values.hpp.
/// Errors (io_failed): "PATH: No space left on device"; no file that failed is left behind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {

struct random_checkpoint {
  std::string directory;    ///< exists
  std::string config_text;  ///< as `random_model_config` gives it
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = std::uint64_t{1} << 30;  ///< a tensor is never cut
};

struct written_checkpoint {
  std::int64_t shards = 0;
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;  ///< of tensors
};

/// Told after every megabyte or so.
using write_progress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

result<written_checkpoint> write_random_checkpoint(const random_checkpoint& wanted,
                                                   const write_progress& progress = {});

/// Bytes of all tensors that `config` asks for.
std::uint64_t random_checkpoint_bytes(const model_config& config);

/// Removes what a checkpoint of `write_random_checkpoint` consists of, config.json first. Files of
/// other names stay. Error io_failed.
result<void> remove_checkpoint_files(const std::string& directory);

}  // namespace deepinfer
