#include "runtime/model/model_session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/step/store_tokens.hpp"

namespace deepinfer {

namespace {

std::int32_t default_block_size(const model_config& config) {
  constexpr std::int32_t least = 16;
  std::int32_t common = 1;
  for (const auto& layer : config.layers)
    if (layer.ratio > 0) common = std::lcm(common, layer.ratio);
  return (least + common - 1) / common * common;
}

forward_limits limits_of(const session_config& sizes) {
  forward_limits limits;
  limits.tokens = sizes.max_tokens;
  limits.positions = sizes.max_positions;
  return limits;
}

result<void> check_id(token_id id, std::int32_t vocab) {
  if (id >= 0 && id < vocab) return {};
  return fail(errc::invalid_argument,
              fmt::format("token id: found {}, expected 0 to {}", id, vocab - 1));
}

}  // namespace

result<std::unique_ptr<model_session>>
model_session::make(std::shared_ptr<const model_weights> weights, const session_config& config) {
  auto sizes = config;
  if (sizes.max_tokens == 0) sizes.max_tokens = sizes.max_positions;
  if (sizes.block_size == 0) sizes.block_size = default_block_size(weights->config);
  runner_config runner;
  runner.depth = 1;
  runner.num_drafts = sizes.num_drafts;
  runner.draft_overhang = sizes.draft_overhang;
  runner.max_num_seqs = sizes.slots;
  runner.state_slots = sizes.slots;
  runner.max_num_batched_tokens = sizes.max_tokens;
  runner.max_model_len = sizes.max_positions;
  runner.block_size = sizes.block_size;
  runner.num_kv_blocks = 1;
  runner.prefix_cache = sizes.prefix_cache;
  runner.resume_stride = sizes.resume_stride;
  runner.replay = sizes.replay;
  if (sizes.replay != replay_mode::off) runner.keep_tokens = weights->config.window;
  DI_TRY(auto layout, make_kv_layout(weights->config, runner, sizes.with_draft));
  layout.blocks = layout.slots * layout.table_stride;
  return std::unique_ptr<model_session>(
    new model_session(std::move(weights), std::move(layout), sizes));
}

model_session::model_session(std::shared_ptr<const model_weights> weights, kv_layout layout,
                             const session_config& config)
  : sizes_(config),
    state_(std::move(layout)),
    model_(std::move(weights), limits_of(config), config.numeric, config.kernels,
           config.with_draft) {
  // Neighbouring blocks of a sequence lie apart, as they do in a pool that has been in use.
  const auto slots = state_.layout.slots, stride = state_.layout.table_stride;
  for (std::int32_t slot = 0; slot < slots; ++slot)
    for (std::int32_t i = 0; i < stride; ++i)
      state_.tables[std::int64_t{slot} * stride + i] = i * slots + slot;
}

result<void> model_session::check_rows(std::span<const session_row> rows) const {
  std::int64_t tokens = 0;
  std::set<std::int32_t> named;
  for (const auto& row : rows) {
    const auto end = std::int64_t{row.position} + static_cast<std::int64_t>(row.ids.size());
    if (row.slot < 0 || row.slot >= sizes_.slots || !named.insert(row.slot).second)
      return fail(
        errc::invalid_argument,
        fmt::format("slot: found {}, expected one of {}, named once", row.slot, sizes_.slots));
    if (row.ids.empty() || row.position < 0 || end > sizes_.max_positions)
      return fail(errc::invalid_argument,
                  fmt::format("row of slot {}: found positions {} to {}, expected within {}",
                              row.slot, row.position, end, sizes_.max_positions));
    for (const auto id : row.ids) DI_TRY_VOID(check_id(id, config().vocab_size));
    tokens += static_cast<std::int64_t>(row.ids.size());
  }
  if (tokens > sizes_.max_tokens)
    return fail(
      errc::invalid_argument,
      fmt::format("tokens of a step: found {}, expected at most {}", tokens, sizes_.max_tokens));
  return {};
}

result<void> model_session::run(const stream_ref& stream, std::span<const session_row> rows,
                                model_observer* observer) {
  DI_TRY_VOID(check_rows(rows));
  for (auto* column : {&token_id_, &slot_, &position_, &row_token_, &row_first_}) column->clear();
  step_tokens step;
  std::int32_t kept = 0;
  for (const auto& row : rows) {
    const auto first = static_cast<std::int32_t>(token_id_.size());
    auto position = row.position;
    for (const auto id : row.ids) {
      if (sizes_.replay == replay_mode::compact)
        kept += position >= state_.late_begin[row.slot] ? 1 : 0;
      token_id_.push_back(id);
      slot_.push_back(row.slot);
      position_.push_back(position++);
      row_token_.push_back(first);
      row_first_.push_back(row.position);
    }
    step.position_limit = std::max<std::int64_t>(step.position_limit, position);
  }
  auto& batch = step.batch;
  batch.tokens = static_cast<std::int32_t>(token_id_.size());
  batch.slot = slot_.data();
  batch.position = position_.data();
  batch.row_first_token = row_token_.data();
  batch.row_first_position = row_first_.data();
  batch.block_table = state_.tables.data();
  batch.max_blocks = state_.layout.table_stride;
  batch.block_size = state_.layout.block_size;
  step.token_id = token_id_.data();
  if (sizes_.replay == replay_mode::compact) step.kept_tokens = kept;
  kernels::store_tokens_ref(stream, {token_id_.data(), slot_.data(), position_.data(), batch.tokens,
                                     batch.block_table, batch.max_blocks, batch.block_size,
                                     state_.tokens.data()});
  model_.forward(stream, step, state_, observer);
  return {};
}

std::vector<float> model_session::logits(const stream_ref& stream) {
  std::vector<std::int32_t> all(token_id_.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> out(all.size() * static_cast<std::size_t>(config().vocab_size));
  model_.logits(stream, all.data(), static_cast<std::int64_t>(all.size()), state_, out.data());
  return out;
}

result<std::vector<float>> model_session::run_all(const stream_ref& stream,
                                                  std::span<const token_id> ids, std::int32_t chunk,
                                                  model_observer* observer) {
  const auto step =
    chunk > 0 ? static_cast<std::size_t>(chunk) : std::max<std::size_t>(ids.size(), 1);
  std::vector<float> all;
  for (std::size_t first = 0; first < ids.size(); first += step) {
    const session_row row{0, static_cast<std::int32_t>(first),
                          ids.subspan(first, std::min(step, ids.size() - first))};
    DI_TRY_VOID(run(stream, {&row, 1}, observer));
    const auto part = logits(stream);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

result<session_drafts> model_session::draft(const stream_ref& stream,
                                            std::span<const std::int32_t> slots,
                                            std::span<const std::int32_t> positions,
                                            std::span<const token_id> anchors, std::int32_t drafts,
                                            model_observer* observer) {
  if (!model_.has_draft())
    return fail(errc::invalid_argument,
                "draft: found no drafter, expected one asked for and in the "
                "checkpoint");
  if (drafts < 1 || drafts > sizes_.max_tokens)
    return fail(errc::invalid_argument,
                fmt::format("drafts: found {}, expected 1 to {}", drafts, sizes_.max_tokens));
  if (positions.size() != slots.size() || anchors.size() != slots.size())
    return fail(errc::invalid_argument,
                fmt::format("draft: found {} slots, {} positions, {} anchors, "
                            "expected as many",
                            slots.size(), positions.size(), anchors.size()));
  for (const auto id : anchors) DI_TRY_VOID(check_id(id, config().vocab_size));
  session_drafts out;
  out.ids.resize(slots.size() * static_cast<std::size_t>(drafts));
  out.confidence.resize(out.ids.size());
  draft_pass pass;
  pass.sequences = static_cast<std::int32_t>(slots.size());
  pass.drafts = drafts;
  pass.slot = slots.data();
  pass.position = positions.data();
  pass.anchor = anchors.data();
  pass.ids = out.ids.data();
  pass.confidence = out.confidence.data();
  model_.draft(stream, pass, state_, observer);
  return out;
}

}  // namespace deepinfer
