/// What one request alone sees: how fast its tokens come, with drafts and without, against what
/// the parts of a step promise; and when its first token comes, by where its prompt's KV is.
/// What `bench latency` measures.
///
/// Decode. t(1) is a step of one id, t(1+k) one that verifies k drafts, t(draft) the pass that
/// makes them: each driven by hand (model_session) with the node's threads, numeric mode and
/// kernels, each with its logits. E is what a step of the drafting engine gave in the mean.
/// Speculation then promises the gain E t(1) / (t(1+k) + t(draft)). The gain itself is that of
/// tokens per second between first and last token of the same greedy request on two engines, one
/// of them without drafts. Engines and parts take turns, `repeats` times; the first turn warms up
/// and isn't counted.
///
/// First token. An engine with KV for one such prompt and a host tier behind it; each turn asks for
///   a new prompt (miss), the same again (hit), a new one that takes all the blocks (a miss too),
///   the first again (host hit).
/// Errors: those of loading and of requests; bad_config where the model takes no prompt so long.
///
/// JSON: "decode": null without drafts, else {"drafts": k, "step_seconds", "verify_seconds",
/// "draft_seconds": summaries of t(1), t(1+k), t(draft), "tokens_per_step": E,
/// "plain_tokens_per_second", "tokens_per_second": summaries, "gain", "promised_gain",
/// "gain_share": gain over promised_gain}; "first_token": {"miss_seconds", "hit_seconds",
/// "host_hit_seconds": summaries, "hit_tokens", "host_hit_tokens": of the prompt's ids, "hit_gain",
/// "host_hit_gain": miss over hit}.
/// Source: model-v41.md 11; Leviathan et al. 2023 (arXiv 2211.17192) for the promised gain.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "actors/model_loading.hpp"
#include "actors/node.hpp"
#include "actors/node/bench/bench_offline.hpp"
#include "actors/node/bench/bench_statistics.hpp"
#include "config/engine_settings.hpp"

namespace deepinfer {

struct latency_settings {
  std::string text;         ///< continued by both engines
  std::int32_t tokens = 0;  ///< outputs
  std::int32_t prompt = 0;  ///< random ids whose first token is awaited
  std::int32_t repeats = 0;
  std::int32_t drafts = 0;  ///< k; 0: decode is not measured
};

struct decode_latency {
  sample_list step, verify, draft;            ///< seconds
  sample_list plain_rate, rate;               ///< tokens per second
  std::int64_t gained = 0, decode_steps = 0;  ///< of the drafting engine

  double tokens_per_step() const;
  double gain() const { return rate.median() / plain_rate.median(); }
  double promised_gain() const;
};

struct first_token_latency {
  sample_list miss, hit, host_hit;  ///< seconds
  std::int32_t hit_tokens = 0, host_hit_tokens = 0;
};

struct latency_result {
  std::optional<decode_latency> decode;
  first_token_latency first_token;
};

/// The checkpoint at `path` is loaded for each engine. `show` is told what comes next.
result<latency_result> measure_latency(const engine_settings& engine, const std::string& path,
                                       const latency_settings& settings,
                                       const std::function<void(std::string_view)>& show);

void add_latency(const latency_result& made, const latency_settings& settings, json::object& out);
std::string latency_text(const latency_result& made, const latency_settings& settings);

}  // namespace deepinfer
