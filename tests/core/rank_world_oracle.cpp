// The hash model, the tokens it gives from the rules alone, and what must hold at the end of a run.
#include <algorithm>

#include "tests/core/rank_world.hpp"

namespace deepinfer::test {

std::uint64_t mix(std::uint64_t x) {
  constexpr std::uint64_t k = 0x9E3779B97F4A7C15u;
  x ^= x >> 32;
  x *= k;
  x ^= x >> 29;
  x *= k;
  return x ^ (x >> 32);
}

std::uint64_t next_chain(std::uint64_t chain, token_id id) {
  return mix(chain ^ (static_cast<std::uint64_t>(id + 1) * 0x9E3779B97F4A7C15u));
}

token_id word(std::uint64_t number) {
  return 8 + static_cast<token_id>(number % (vocab - 8));
}

void rank_world::grow(request_view& view, std::int64_t position) const {
  const auto& prompt = *view.request.prompt;
  while (std::ssize(view.ids) <= position) {
    const auto chain = view.chains.empty() ? mix(seed_) : view.chains.back();
    const auto p = view.ids.size();
    const auto output = static_cast<std::int64_t>(p) - std::ssize(prompt) + 1;
    view.ids.push_back(p < prompt.size() ? prompt[p] : next_token(view, chain, output));
    view.chains.push_back(next_chain(chain, view.ids.back()));
  }
}

token_id rank_world::truth(request_view& view, std::int64_t position) const {
  grow(view, position);
  return view.ids[static_cast<std::size_t>(position)];
}

expected_output rank_world::expected(const request_view& view) const {
  const auto& prompt = *view.request.prompt;
  const auto& params = *view.request.params;
  auto chain = mix(seed_);
  for (const auto id : prompt) chain = next_chain(chain, id);
  expected_output out;
  std::string text;
  const auto length = [&] { return static_cast<std::int64_t>(prompt.size() + out.tokens.size()); };
  for (std::int64_t k = 1;; ++k) {
    if (k == view.fails_at) {
      out.reason = finish_reason::error;
      return out;
    }
    const auto token = next_token(view, chain, k);
    chain = next_chain(chain, token);
    out.tokens.push_back(token);
    const auto old_size = text.size();
    if (!params.skip_special_tokens || !texts_.is_special(token)) text += texts_.bytes(token);
    const bool counts = k >= params.min_tokens;
    const auto& ids = params.stop_token_ids;
    const bool is_eos = (token == eos_id || token == 2) && !params.ignore_eos;
    if (counts && (is_eos || std::find(ids.begin(), ids.end(), token) != ids.end())) {
      out.reason = finish_reason::stop;
      return out;
    }
    for (auto end = old_size + 1; counts && end <= text.size(); ++end) {
      for (const auto& stop : params.stop) {
        if (stop.empty() || stop.size() > end) continue;
        if (text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
        const auto before = static_cast<std::int64_t>(end - stop.size());
        if (out.stop_bytes < 0 || before < out.stop_bytes) out.stop_bytes = before;
        out.reason = finish_reason::stop;
      }
      if (out.reason != finish_reason::none) return out;
    }
    if (k == params.max_tokens || length() == config_.max_model_len) {
      out.reason = finish_reason::length;
      return out;
    }
  }
}

void rank_world::check_end() {
  for (const auto& [id, view] : views_) {
    require(view.finals == 1, "[I54] sequence {} has {} final records", id, view.finals);
    // An abort may come while all launched steps still have to settle.
    const auto most = view.was_aborted ? config_.depth : config_.depth - 1;
    require(view.overrun_rows <= most, "[I37] sequence {} has {} over-run rows", id,
            view.overrun_rows);
    if (view.launches == 0) continue;
    const auto want = expected(view);
    const bool was_failed =
      view.had_failure && config_.policy.on_step_failure == failure_rule::fail_rows;
    if (view.was_aborted || was_failed || view.finish.reason == finish_reason::resource) {
      const bool fits = view.got.size() <= want.tokens.size() &&
                        std::equal(view.got.begin(), view.got.end(), want.tokens.begin());
      require(fits, "[I38] sequence {} got {} tokens before it was ended by {}, of {}", id,
              view.got.size(), name_of(view.finish.reason), want.tokens.size());
      continue;
    }
    require(view.got == want.tokens, "[I38] sequence {} got {} tokens, expected {}", id,
            view.got.size(), want.tokens.size());
    require(view.finish.reason == want.reason, "[I36] sequence {} ended by {}, expected {}", id,
            name_of(view.finish.reason), name_of(want.reason));
    require(view.finish.stop_bytes == want.stop_bytes, "[I36] sequence {}: stop at byte {} not {}",
            id, view.finish.stop_bytes, want.stop_bytes);
    require(want.reason != finish_reason::length || config_.num_drafts > 0 ||
              view.overrun_rows == 0,
            "[I40] sequence {} ended by length with {} over-run rows", id, view.overrun_rows);
    require(view.first_token_step == view.first_yield_step || view.preemptions > 0 ||
              view.had_failure || want.tokens.empty(),
            "[I41] sequence {}: first token of step {} left at {}", id, view.first_yield_step,
            view.first_token_step);
  }
  const auto s = core_.stats();
  require(s.inflight_steps == 0, "{} steps in flight at the end", s.inflight_steps);
  require(!core_.has_work(), "work at the end");
  require(collector_.parked_blocks() == 0, "[I20] {} blocks parked at the end",
          collector_.parked_blocks());
  require(collector_.parked_slots() == 0, "[I20] {} slots parked at the end",
          collector_.parked_slots());
  require(s.table_blocks == 0 && s.deferred_blocks == 0, "[I12] blocks held at the end");
  const auto idle = pool_.free_blocks() + pool_.cached_blocks() + s.credit_blocks;
  require(idle == config_.num_kv_blocks, "[I12] {} blocks free, cached or credit of {}", idle,
          config_.num_kv_blocks);
}

}  // namespace deepinfer::test
