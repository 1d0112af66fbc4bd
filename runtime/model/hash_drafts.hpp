/// The drafter of the hash model, and how a step's query tokens are split over its rows.
///
/// Drafts for the next decode row j of a sequence (from 0 in each epoch): draft i is the true token
/// if i < accept[j mod n], else the true token plus one, wrapping in the words. Pure.
/// Source: scenarios 3; messages/plan.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/hash_model.hpp"

namespace deepinfer {

/// Where a sequence stands when its drafter runs.
struct hash_draft_start {
  const hash_script* script = nullptr;  ///< may be null
  std::uint64_t chain = 0;              ///< of the position before the newest id
  std::int32_t position = 0;            ///< of the newest id
  std::int32_t prompt_tokens = 0;
  token_id newest = -1;
  hash_history history;  ///< of the outputs before the newest id
  std::int32_t decode_row = 0;
};

/// Fills `drafts` with the ids behind the newest one.
void hash_make_drafts(const hash_model_config& model, std::span<const hash_expert> experts,
                      const hash_sampling& sampling, const hash_draft_start& from,
                      std::span<token_id> drafts);

/// Raw confidences of those drafts; what is not given is 1. Whether any is given.
bool hash_fill_confidences(const hash_model_config& model, const hash_script* script,
                           std::span<float> out);

/// Query tokens of each row of a decode step of `total`: one each, and the rest to the drafts of
/// the largest cumulative confidence (ties: the lower row), at most most[i] - 1. A row that is not
/// alive gets none, and leaves the one it had a place for. confidences: [rows, drafts].
void hash_split_widths(std::int32_t total, std::span<const std::int32_t> most,
                       std::span<const std::uint8_t> is_alive, std::span<const float> confidences,
                       std::span<std::int32_t> widths);

}  // namespace deepinfer
