#include "runtime/model/hash_kv.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

hash_kv::hash_kv(const runner_config& config, const hash_model_config& model, canary_log* log)
  : config_(config),
    log_(log),
    window_(config.prefix_cache ? static_cast<std::size_t>(model.window) : 0) {
  DI_CHECK(config.block_size > 0 && config.num_kv_blocks > 0 && config.host_blocks >= 0,
           "{} blocks of {} tokens, {} on the host", config.num_kv_blocks, config.block_size,
           config.host_blocks);
  noted_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(config.num_kv_blocks));
  reset();
}

void hash_kv::reset() {
  const auto blocks = static_cast<std::size_t>(config_.num_kv_blocks);
  const auto places = blocks + static_cast<std::size_t>(config_.host_blocks);
  entries_.assign((places + 1) * static_cast<std::size_t>(config_.block_size), {});
  points_.assign(places, {});
  windows_.assign(places * window_, 0);
  leases_.assign(blocks, {});
  holes_.assign(blocks, 0);
  for (std::size_t i = 0; i < blocks; ++i) noted_[i] = false;
}

void hash_kv::take(block_id block, const hash_lease& holder) {
  lease(block) = holder;
  resume_point(block) = {};
  holes_[static_cast<std::size_t>(block.value)] = 0;
  note_shared(block, false);
  for (auto& entry : entries(block))
    if (entry.state == hash_entry_state::freed) entry.state = hash_entry_state::unwritten;
}

void hash_kv::note_shared(block_id block, bool is_shared) {
  DI_CHECK(is_block(block), "block {} of {}", block.value, config_.num_kv_blocks);
  noted_[static_cast<std::size_t>(block.value)].store(is_shared, std::memory_order_relaxed);
}

void hash_kv::copy_place(std::int32_t from, std::int32_t to) {
  std::copy_n(entries_at(from).begin(), config_.block_size, entries_at(to).begin());
  std::copy_n(window_at(from).begin(), window_, window_at(to).begin());
  points_[static_cast<std::size_t>(to)] = points_[static_cast<std::size_t>(from)];
}

void hash_kv::move(step_id step, const block_move& what) {
  const bool is_legal = is_block(what.block) && what.host >= 0 && what.host < config_.host_blocks;
  if (!is_legal) {
    log_->add("write_trap_block",
              fmt::format("step {}: moves block {} of {}, host place {} of {}", step.value,
                          what.block.value, config_.num_kv_blocks, what.host, config_.host_blocks));
    return;
  }
  const auto host = config_.num_kv_blocks + what.host;
  const auto from = what.to_host ? what.block.value : host;
  for (const auto& entry : entries_at(from)) {
    if (entry.state == hash_entry_state::written) continue;
    log_->add(entry.state == hash_entry_state::freed ? "read_freed_block" : "read_beyond_length",
              fmt::format("step {}: moves block {} and host place {}, and what it reads there was "
                          "last written by step {}",
                          step.value, what.block.value, what.host, entry.writer.value));
    break;
  }
  copy_place(from, what.to_host ? host : what.block.value);
  if (!what.to_host) lease(what.block) = {{-1}, {}, 0, true};
}

void hash_kv::poison(block_id block) {
  DI_CHECK(is_block(block), "block {} of {}", block.value, config_.num_kv_blocks);
  for (auto& entry : entries(block)) {
    entry.state = hash_entry_state::freed;
    entry.chain = ~entry.chain;
    entry.compressed = ~entry.compressed;
    entry.position = -1;
  }
  for (auto& chain : resume_window(block)) chain = ~chain;
  resume_point(block) = {};
  holes_[static_cast<std::size_t>(block.value)] = 0;
  noted_[static_cast<std::size_t>(block.value)].store(false, std::memory_order_relaxed);
}

void hash_kv::write_padding(step_id step, std::int32_t offset) {
  const auto reserved = config_.num_kv_blocks + config_.host_blocks;
  auto& entry = entries_at(reserved)[static_cast<std::size_t>(offset % config_.block_size)];
  entry = {hash_entry_state::written, -1, offset, 0, 0, step};
}

}  // namespace deepinfer
