#include "runtime/core/json_grammar.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

void set_bit(std::span<std::uint32_t> words, token_id id) {
  words[static_cast<std::size_t>(id) / 32] |= std::uint32_t{1} << (static_cast<unsigned>(id) % 32);
}

bool counts_spaces(json_place place) {
  return place <= json_place::after_value;
}
bool counts_digits(json_place place) {
  return place >= json_place::zero && place <= json_place::fraction;
}

}  // namespace

json_masks::json_masks(std::shared_ptr<const token_trie> trie)
  : trie_(std::move(trie)),
    path_(trie_->longest() + 1) {
  for (token_id id = 0; id < trie_->vocabulary(); ++id) {
    int spaces = 0, digits = 0, opens = 0, closes = 0;
    for (const char byte : trie_->bytes(id)) {
      spaces += byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
      digits += byte >= '0' && byte <= '9';
      opens += byte == '{' || byte == '[';
      closes += byte == '}' || byte == ']';
    }
    most_spaces_ = std::max(most_spaces_, spaces);
    most_digits_ = std::max(most_digits_, digits);
    most_opens_ = std::max(most_opens_, opens);
    most_closes_ = std::max(most_closes_, closes);
  }
}

json_masks::top_key json_masks::key_of(const json_state& state) const {
  // Counts are kept as what is left, and no further than a token can reach.
  int count = state.count;
  if (counts_spaces(state.place)) count = std::min(json_space_limit - count, most_spaces_);
  if (counts_digits(state.place)) count = std::min(json_digit_limit - count, most_digits_ + 1);
  return {state.place, state.is_key, state.is_in_array(), count,
          std::min(json_depth_limit - state.depth, most_opens_)};
}

json_masks::stack_key json_masks::key_of(const json_state& state, const top_key& top) const {
  const int below = std::min(std::max(state.depth - 1, 0), most_closes_);
  if (below == 0) return {top, 0, 0};
  const auto shown = state.arrays >> (state.depth - 1 - below);
  return {top, below, shown & ((std::uint64_t{1} << below) - 1)};
}

template <class Allow, class Close>
void json_masks::walk(std::uint32_t first, std::uint32_t last, const json_state& state, int floor,
                      Allow&& allow, Close&& close) {
  if (first == last) return;
  const auto nodes = trie_->nodes();
  const auto top = nodes[first].depth;
  path_[0] = state;
  for (auto at = first; at < last;) {
    ++visited_nodes_;
    const auto& node = nodes[at];
    const std::size_t depth = node.depth - top;
    auto& next = path_[depth + 1] = path_[depth];
    if (!next.step(node.byte)) {
      at = node.end;
    } else if (next.depth < floor) {
      close(at);
      at = node.end;
    } else {
      for (const auto id : trie_->ids_at(at)) allow(id);
      ++at;
    }
  }
}

const json_masks::top_mask& json_masks::top_of(const json_state& state, const top_key& key) {
  if (const auto found = masks_.find(key); found != masks_.end()) return found->second;
  if (masks_.size() == mask_limit) masks_.clear();
  auto& mask = masks_[key];
  mask.words.assign(mask_words(trie_->vocabulary()), 0);
  const auto end = static_cast<std::uint32_t>(trie_->nodes().size());
  walk(
    0, end, state, state.depth,
    [&](token_id id) {
      set_bit(mask.words, id);
      mask.is_empty = false;
    },
    [&](std::uint32_t at) { mask.closers.push_back(at); });
  return mask;
}

const std::vector<token_id>& json_masks::tail_of(const json_state& state, const top_mask& top,
                                                 const stack_key& key) {
  if (const auto found = tails_.find(key); found != tails_.end()) return found->second;
  if (tails_.size() == tail_limit) tails_.clear();
  auto& ids = tails_[key];
  // Whatever a token did before it closed the container, this is where it is afterwards.
  auto closed = state;
  closed.is_key = false;
  closed.place = json_place::after_value;
  closed.step(state.is_in_array() ? ']' : '}');
  for (const auto at : top.closers) {
    for (const auto id : trie_->ids_at(at)) ids.push_back(id);
    walk(
      at + 1, trie_->nodes()[at].end, closed, 0, [&](token_id id) { ids.push_back(id); },
      [](std::uint32_t) {});
  }
  return ids;
}

bool json_masks::fill(const json_state& state, std::span<std::uint32_t> words) {
  DI_CHECK(!state.has_ended(), "a mask behind the end of an object");
  const auto key = key_of(state);
  const auto& top = top_of(state, key);
  std::copy(top.words.begin(), top.words.end(), words.begin());
  if (top.closers.empty()) return !top.is_empty;
  const auto& tail = tail_of(state, top, key_of(state, key));
  for (const auto id : tail) set_bit(words, id);
  return !top.is_empty || !tail.empty();
}

json_matcher::json_matcher(json_masks& masks, std::vector<token_id> end_ids)
  : masks_(masks),
    end_ids_(std::move(end_ids)),
    history_(static_cast<std::size_t>(grammar_rewind_limit)) {
  const auto vocabulary = masks_.trie().vocabulary();
  std::erase_if(end_ids_, [&](token_id id) { return id < 0 || id >= vocabulary; });
}

bool json_matcher::fill_mask(std::span<std::uint32_t> words) {
  const auto size = mask_words(masks_.trie().vocabulary());
  DI_CHECK(words.size() == size, "a mask of {} words, not {}", words.size(), size);
  if (!has_ended()) return masks_.fill(state_, words);
  std::fill(words.begin(), words.end(), 0);
  for (const auto id : end_ids_) set_bit(words, id);
  return !end_ids_.empty();
}

bool json_matcher::advance(token_id token) {
  auto next = state_;
  if (has_ended()) {
    if (std::find(end_ids_.begin(), end_ids_.end(), token) == end_ids_.end()) return false;
  } else {
    const auto spelled = masks_.trie().bytes(token);
    if (spelled.empty()) return false;
    for (const char byte : spelled)
      if (!next.step(static_cast<std::uint8_t>(byte))) return false;
  }
  history_[static_cast<std::size_t>(advanced_ % grammar_rewind_limit)] = state_;
  state_ = next;
  ++advanced_;
  rewindable_ = std::min(rewindable_ + 1, grammar_rewind_limit);
  return true;
}

void json_matcher::rewind(std::int32_t ids) {
  DI_CHECK(ids >= 0 && ids <= rewindable_, "{} ids taken back of {}", ids, rewindable_);
  if (ids == 0) return;
  advanced_ -= ids;
  rewindable_ -= ids;
  state_ = history_[static_cast<std::size_t>(advanced_ % grammar_rewind_limit)];
}

json_grammar_source::json_grammar_source(std::shared_ptr<const token_trie> trie, token_id eos,
                                         std::vector<token_id> eos_ids)
  : masks_(std::move(trie)),
    eos_ids_(std::move(eos_ids)) {
  if (eos >= 0) eos_ids_.push_back(eos);
}

std::unique_ptr<grammar_matcher> json_grammar_source::poll(seq_id, const sampling_params& params,
                                                           std::string& error) {
  if (params.grammar != "json_object") {
    error = fmt::format("grammar \"{}\" is unknown; there is json_object", params.grammar);
    return nullptr;
  }
  auto end_ids = params.stop_token_ids;
  if (!params.ignore_eos) end_ids.insert(end_ids.end(), eos_ids_.begin(), eos_ids_.end());
  const auto vocabulary = masks_.trie().vocabulary();
  if (std::none_of(end_ids.begin(), end_ids.end(),
                   [&](token_id id) { return id >= 0 && id < vocabulary; })) {
    error = "grammar json_object: no id ends the text (ignore_eos without stop_token_ids)";
    return nullptr;
  }
  return std::make_unique<json_matcher>(masks_, std::move(end_ids));
}

}  // namespace deepinfer
