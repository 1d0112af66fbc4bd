#include "runtime/model/hash_drafts.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

// A wrong draft.
token_id word_after(const hash_model_config& model, token_id id) {
  const auto next = id + 1;
  return next >= hash_first_word && next < model.vocab ? next : hash_first_word;
}

}  // namespace

void hash_make_drafts(const hash_model_config& model, std::span<const hash_expert> experts,
                      const hash_sampling& sampling, const hash_draft_start& from,
                      std::span<token_id> drafts) {
  const auto& accept =
    from.script && !from.script->accept.empty() ? from.script->accept : model.accept;
  const auto right = accept.empty()
                       ? static_cast<std::int32_t>(drafts.size())
                       : accept[static_cast<std::size_t>(from.decode_row) % accept.size()];
  auto history = from.history;
  auto chain = from.chain;
  auto id = from.newest;
  auto position = from.position;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    chain = hash_chain_at(model, experts, chain, position, id);
    history.add(id);
    ++position;
    id = hash_true_token(model, sampling, from.script, chain, position,
                         position - from.prompt_tokens + 1, history);
    drafts[i] = static_cast<std::int32_t>(i) < right ? id : word_after(model, id);
  }
}

bool hash_fill_confidences(const hash_model_config& model, const hash_script* script,
                           std::span<float> out) {
  const auto& raw = script && !script->confidence.empty() ? script->confidence : model.confidence;
  const auto given = std::min(out.size(), raw.size());
  std::copy_n(raw.begin(), given, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(given), out.end(), 1.0f);
  return !raw.empty();
}

void hash_split_widths(std::int32_t total, std::span<const std::int32_t> most,
                       std::span<const std::uint8_t> is_alive, std::span<const float> confidences,
                       std::span<std::int32_t> widths) {
  const auto rows = most.size();
  DI_CHECK(widths.size() == rows && is_alive.size() == rows, "{} rows, {} widths", rows,
           widths.size());
  const auto drafts = rows == 0 ? 0 : confidences.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) widths[row] = is_alive[row] != 0 ? 1 : 0;
  // The cumulative confidence of the next draft of a row, as a product from its first.
  const auto next_of = [&](std::size_t row) {
    const auto verified = static_cast<std::size_t>(widths[row]);  // the next draft's, from 1
    if (is_alive[row] == 0 || widths[row] >= most[row] || verified > drafts) return -1.0f;
    const auto first = confidences.begin() + static_cast<std::ptrdiff_t>(row * drafts);
    return std::accumulate(first, first + static_cast<std::ptrdiff_t>(verified), 1.0f,
                           std::multiplies<float>());
  };
  for (auto left = total - static_cast<std::int32_t>(rows); left > 0; --left) {
    std::size_t best = rows;
    float best_is = -1.0f;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto it = next_of(row);
      if (it > best_is) best = row, best_is = it;
    }
    if (best == rows) return;
    ++widths[best];
  }
}

}  // namespace deepinfer
