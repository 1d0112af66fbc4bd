#include "actors/kv_pool_size.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/model/memory_plan.hpp"

namespace deepinfer {
namespace {

constexpr std::int64_t bytes_by_default = std::int64_t{1} << 30;

result<std::int32_t> blocks_of(const kv_pool_wish& wish, std::vector<std::string>& warnings) {
  if (wish.num_kv_blocks) return *wish.num_kv_blocks;
  const auto& set = wish.kv_cache_memory;
  const auto bytes = set ? static_cast<std::int64_t>(*set) : bytes_by_default;
  const auto fitting = bytes / std::max<std::int64_t>(1, wish.block_bytes);
  const auto useful = wish.blocks_of_one * wish.max_num_seqs;
  const auto blocks = static_cast<std::int32_t>(std::min(fitting, useful));
  if (blocks < 1)
    return fail(errc::bad_config,
                fmt::format("engine.kv_cache_memory: found {} bytes, one block of {} "
                            "tokens takes {}",
                            bytes, wish.block_size, wish.block_bytes));
  if (set && bytes > wish.machine_bytes)
    warnings.push_back(fmt::format(
      "engine.kv_cache_memory: found {}, the machine has {}; the KV pool takes {}, which is all "
      "that engine.max_num_seqs {} can use",
      bytes_text(bytes), bytes_text(wish.machine_bytes), bytes_text(blocks * wish.block_bytes),
      wish.max_num_seqs));
  return blocks;
}

}  // namespace

result<kv_pool_size> size_kv_pool(const kv_pool_wish& wish) {
  kv_pool_size out;
  DI_TRY(out.blocks, blocks_of(wish, out.warnings));
  if (out.blocks < wish.blocks_of_one)
    out.warnings.push_back(
      fmt::format("the KV pool has {} blocks of {} tokens, a request of model.max_model_len {} "
                  "takes {}: one that grows so long ends with {}",
                  out.blocks, wish.block_size, wish.max_model_len, wish.blocks_of_one,
                  name_of(errc::no_blocks)));
  return out;
}

}  // namespace deepinfer
