#include "runtime/core/stop_rule.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

/// border[n]: length of the longest proper prefix of text[0, n) that is also its suffix.
std::vector<std::int32_t> borders_of(std::string_view text) {
  std::vector<std::int32_t> border(text.size() + 1, 0);
  std::int32_t length = 0;
  for (std::size_t n = 2; n <= text.size(); ++n) {
    while (length > 0 && text[static_cast<std::size_t>(length)] != text[n - 1])
      length = border[static_cast<std::size_t>(length)];
    if (text[static_cast<std::size_t>(length)] == text[n - 1]) ++length;
    border[n] = length;
  }
  return border;
}

std::vector<token_id> sorted_stop_ids(const sampling_params& params, token_id eos,
                                      std::span<const token_id> eos_ids) {
  auto ids = params.stop_token_ids;
  if (!params.ignore_eos) {
    if (eos >= 0) ids.push_back(eos);
    ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

stop_matcher::stop_matcher(std::span<const std::string> stops) {
  patterns_.reserve(stops.size());
  for (const auto& stop : stops) patterns_.push_back({stop, borders_of(stop), 0});
}

std::optional<stop_matcher::match> stop_matcher::feed(std::string_view bytes, bool armed) {
  for (const char byte : bytes) {
    ++text_bytes_;
    std::optional<match> found;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      auto& it = patterns_[i];
      if (it.text.empty()) continue;
      while (it.matched > 0 && it.text[static_cast<std::size_t>(it.matched)] != byte)
        it.matched = it.border[static_cast<std::size_t>(it.matched)];
      if (it.text[static_cast<std::size_t>(it.matched)] == byte) ++it.matched;
      const auto length = static_cast<std::int32_t>(it.text.size());
      if (it.matched < length) continue;
      it.matched = it.border[it.text.size()];
      const auto before = text_bytes_ - length;
      if (armed && (!found || before < found->stop_bytes))
        found = match{static_cast<std::int32_t>(i), before, text_bytes_};
    }
    if (found) return found;
  }
  return std::nullopt;
}

std::int64_t stop_matcher::safe_bytes() const {
  std::int32_t held = 0;
  for (const auto& it : patterns_) held = std::max(held, it.matched);
  return text_bytes_ - held;
}

stop_rule::stop_rule(const sampling_params& params, token_id eos, std::span<const token_id> eos_ids,
                     std::int64_t limit, const token_texts* texts)
  : stop_ids_(sorted_stop_ids(params, eos, eos_ids)),
    stops_(params.stop),
    matcher_(stops_),
    texts_(texts),
    limit_(limit),
    min_tokens_(params.min_tokens),
    skip_special_(params.skip_special_tokens) {
  DI_CHECK(limit > 0, "a sequence of at most {} outputs", limit);
  DI_CHECK(stops_.empty() || texts_, "{} stop strings and no token texts", stops_.size());
}

bool stop_rule::is_stop_id(token_id token) const {
  return std::binary_search(stop_ids_.begin(), stop_ids_.end(), token);
}

std::string_view stop_rule::text_of(token_id token) const {
  if (skip_special_ && texts_->is_special(token)) return {};
  return texts_->bytes(token);
}

stop_rule::verdict stop_rule::check(std::span<const token_id> run) {
  DI_CHECK(!has_ended_, "{} tokens after the end of a sequence", run.size());
  verdict out;
  for (const auto token : run) {
    ++outputs_;
    ++out.kept;
    const bool armed = outputs_ >= min_tokens_;
    if (armed && is_stop_id(token)) {
      out.reason = finish_reason::stop;
      out.detail = std::to_string(token);
    } else if (!stops_.empty()) {
      if (const auto found = matcher_.feed(text_of(token), armed && spared_until_ < 0)) {
        out.reason = finish_reason::stop;
        out.detail = stops_[static_cast<std::size_t>(found->stop)];
        out.stop_bytes = found->stop_bytes;
      }
    }
    if (token == spared_until_) {
      spared_until_ = -1;
      matcher_.forget();
    }
    if (out.reason == finish_reason::none && outputs_ >= limit_) out.reason = finish_reason::length;
    if (out.reason == finish_reason::none) continue;
    has_ended_ = true;
    break;
  }
  return out;
}

}  // namespace deepinfer
