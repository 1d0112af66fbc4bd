/// How many blocks the KV pool gets, and what whoever set its size should know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"

namespace deepinfer {

struct kv_pool_wish {
  std::optional<std::int32_t> num_kv_blocks;     ///< as set
  std::optional<std::uint64_t> kv_cache_memory;  ///< bytes, as set; not together with the other
  std::int32_t max_num_seqs = 1;
  std::int32_t max_model_len = 1;
  std::int32_t block_size = 1;     ///< tokens
  std::int64_t blocks_of_one = 1;  ///< that a request of max_model_len takes
  std::int64_t block_bytes = 1;
  std::int64_t machine_bytes = 0;  ///< all of the machine's memory
};

struct kv_pool_size {
  std::int32_t blocks = 0;
  std::vector<std::string> warnings;
};

/// What is set; of memory no more than every sequence can use at full length, and without either
/// setting at most 1 GiB. Errors: bad_config where the memory holds no block.
result<kv_pool_size> size_kv_pool(const kv_pool_wish& wish);

}  // namespace deepinfer
