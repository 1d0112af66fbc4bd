#include "config/scenario_engine_check.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace deepinfer {

namespace {

template <class... Args>
result<void> refuse(const char* field, fmt::format_string<Args...> format, Args&&... args) {
  return fail(errc::bad_config,
              fmt::format("{}: {}", field, fmt::format(format, std::forward<Args>(args)...)),
              field);
}

struct integer_range {
  const char* field;
  std::int64_t value, min, max;
};

// What the player makes memory for: sizes that a story could need, and some more.
constexpr std::int64_t many = 1 << 16;
constexpr std::int64_t long_ones = 1 << 20;
constexpr std::int64_t most_positions = 1 << 22;  // of all pools
constexpr std::int64_t most_drafts = 32;          // as in the product

result<void> check_ranges(const scenario_engine& e, const scenario_model& model) {
  constexpr std::int64_t any = 1 << 30;
  const integer_range table[] = {
    {"model.vocab", model.vocab, 24, long_ones},
    {"engine.depth", e.depth, 1, 3},
    {"engine.ranks", e.ranks, 1, 1024},
    {"engine.groups", e.groups, 1, e.ranks},
    {"engine.num_kv_blocks", e.num_kv_blocks, 1, long_ones},
    {"engine.block_size", e.block_size, 1, many},
    {"engine.state_slots", e.state_slots, 0, many},
    {"engine.max_num_seqs", e.max_num_seqs, 1, many},
    {"engine.max_num_batched_tokens", e.max_num_batched_tokens, 1, long_ones},
    {"engine.chunk_size", e.chunk_size, 0, any},
    {"engine.max_model_len", e.max_model_len, 2, long_ones},
    {"engine.num_drafts", e.num_drafts, 0, most_drafts},
    {"engine.draft_overhang", e.draft_overhang, 0, many},
    {"engine.watchdog", e.watchdog_us, 1, any * any},
    {"engine.client_credit", e.client_credit, 1, any},
    {"engine.vote.max_delay", e.vote.max_delay, 0, any},
    {"engine.vote.min_decode_gap", e.vote.min_decode_gap, 0, any},
    {"engine.vote.all_period", e.vote.all_period, 1, any},
    {"engine.vote.any_period", e.vote.any_period, 1, any},
    {"engine.vote.timeout", e.vote.timeout_us, 1, any * any},
    {"engine.eplb.window", e.eplb.window, 1, any},
    {"engine.eplb.period", e.eplb.period, 0, any},
    {"engine.eplb.slots_per_rank", e.eplb.slots_per_rank, 0, any},
    {"engine.eplb.max_moves", e.eplb.max_moves, 0, any},
    {"engine.eplb.stage_timeout", e.eplb.stage_timeout_us, 1, any * any},
  };
  for (const auto& row : table) {
    if (row.value >= row.min && row.value <= row.max) continue;
    if (row.max >= many && row.value < row.min)
      return refuse(row.field, "found {}, expected at least {}", row.value, row.min);
    return refuse(row.field, "found {}, expected {} to {}", row.value, row.min, row.max);
  }
  return {};
}

result<void> check_pools(const scenario_engine& e) {
  std::int64_t blocks = 0;
  for (std::int32_t rank = 0; rank < e.ranks; ++rank) blocks += e.blocks_of(rank);
  if (blocks * e.block_size <= most_positions) return {};
  return refuse("engine.num_kv_blocks",
                "found {} blocks of {} tokens on all ranks, expected at most {} tokens", blocks,
                e.block_size, most_positions);
}

result<void> check_shares(const scenario_engine& e) {
  if (!(e.vote.quorum > 0 && e.vote.quorum <= 1))
    return refuse("engine.vote.quorum", "found {}, expected more than 0, at most 1", e.vote.quorum);
  if (!(e.vote.used_share_max > 0 && e.vote.used_share_max <= 1))
    return refuse("engine.vote.used_share_max", "found {}, expected more than 0, at most 1",
                  e.vote.used_share_max);
  if (!(e.eplb.min_gain >= 0))
    return refuse("engine.eplb.min_gain", "found {}, expected at least 0", e.eplb.min_gain);
  return {};
}

result<void> check_ranks(const scenario_engine& e) {
  if (e.ranks % e.groups != 0)
    return refuse("engine.groups", "{} ranks can't be split evenly into {}", e.ranks, e.groups);
  if (e.rank_kv_blocks.empty()) return {};
  if (static_cast<std::int32_t>(e.rank_kv_blocks.size()) != e.ranks)
    return refuse("engine.rank_kv_blocks", "found {} sizes, expected one for each of {} ranks",
                  e.rank_kv_blocks.size(), e.ranks);
  for (const auto blocks : e.rank_kv_blocks) {
    if (blocks < 1) return refuse("engine.rank_kv_blocks", "found {}, expected at least 1", blocks);
    if (blocks > long_ones)
      return refuse("engine.rank_kv_blocks", "found {}, expected at most {}", blocks, long_ones);
  }
  return {};
}

/// A decode row that can't fit into a step would never be launched.
result<void> check_widths(const scenario_engine& e) {
  const auto row = 1 + e.num_drafts;
  if (e.max_num_batched_tokens < row)
    return refuse("engine.max_num_batched_tokens",
                  "found {}, but a decode row with num_drafts {} is {} wide",
                  e.max_num_batched_tokens, e.num_drafts, row);
  if (e.graph_buckets.empty())
    return e.warm_up ? refuse("engine.warm_up", "there are no graph_buckets to run")
                     : result<void>();
  for (std::size_t i = 0; i < e.graph_buckets.size(); ++i)
    if (e.graph_buckets[i] < 1 || (i > 0 && e.graph_buckets[i] <= e.graph_buckets[i - 1]))
      return refuse("engine.graph_buckets", "found {}, expected rising sizes from 1",
                    e.graph_buckets[i]);
  const auto widest =
    std::min<std::int64_t>(std::int64_t{e.max_num_seqs} * row, e.max_num_batched_tokens);
  if (e.graph_buckets.back() < widest)
    return refuse("engine.graph_buckets", "the last bucket is {}, but a decode step may be {} wide",
                  e.graph_buckets.back(), widest);
  return {};
}

result<void> check_verify(const scenario_engine& e) {
  if (e.verify == scenario_verify::fixed || e.num_drafts == 0) return {};  // nothing to decide
  if (e.verify_curve_us.empty())
    return refuse("engine.verify_curve", "verify: confidence needs the cost of some sizes");
  const auto widest = std::min<std::int64_t>(std::int64_t{e.max_num_seqs} * (1 + e.num_drafts),
                                             e.max_num_batched_tokens);
  if (e.verify_curve_us.begin()->first < 1 || e.verify_curve_us.rbegin()->first < widest)
    return refuse("engine.verify_curve", "covers {} to {} tokens, but a decode step has 1 to {}",
                  e.verify_curve_us.begin()->first, e.verify_curve_us.rbegin()->first, widest);
  return {};
}

result<void> check_experts(const scenario_engine& e, const scenario_model& model) {
  const auto& eplb = e.eplb;
  if (!model.experts) {
    if (eplb.period > 0)
      return refuse("engine.eplb.period", "found {}, but the model has no experts", eplb.period);
    if (eplb.slots_per_rank > 0)
      return refuse("engine.eplb.slots_per_rank", "found {}, but the model has no experts",
                    eplb.slots_per_rank);
    return {};
  }
  const auto ranks = e.ranks_per_group();
  const auto experts = model.experts->experts;
  if (eplb.slots_per_rank == 0 && experts % ranks != 0)
    return refuse("engine.eplb.slots_per_rank", "{} experts can't be split evenly over {} ranks",
                  experts, ranks);
  if (eplb.slots_per_rank > 0 && std::int64_t{eplb.slots_per_rank} * ranks < experts)
    return refuse("engine.eplb.slots_per_rank", "found {} on {} ranks, but there are {} experts",
                  eplb.slots_per_rank, ranks, experts);
  return {};
}

}  // namespace

result<void> check_engine(const scenario_engine& engine, const scenario_model& model) {
  DI_TRY_VOID(check_ranges(engine, model));
  DI_TRY_VOID(check_shares(engine));
  DI_TRY_VOID(check_ranks(engine));
  DI_TRY_VOID(check_pools(engine));
  DI_TRY_VOID(check_widths(engine));
  DI_TRY_VOID(check_verify(engine));
  return check_experts(engine, model);
}

}  // namespace deepinfer
