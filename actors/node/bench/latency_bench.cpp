#include "actors/node/bench/latency_bench.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/latency_parts.hpp"
#include "actors/request_intake.hpp"
#include "runtime/base/work_meter.hpp"
#include "runtime/core/capacity.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;

constexpr auto answer_timeout = 600s;  // of one chunk
constexpr auto rest_timeout = 10s;

/// One request, alone on its engine, in seconds from its start.
struct timed_answer {
  double first = 0.0, last = 0.0;  ///< of its ids
  std::size_t first_ids = 0;       ///< that came at once
  generate_result content;
};

result<timed_answer> ask(const node& engine, const generate_request& request) {
  timed_answer out;
  const auto begin = work_meter::now_ns();
  DI_TRY(auto chunks, engine.connect().generate(request));
  while (true) {
    DI_TRY(const auto chunk, chunks.next(answer_timeout));
    if (!chunk) break;
    if (!chunk->ids.empty()) {
      out.last = 1e-9 * static_cast<double>(work_meter::now_ns() - begin);
      if (out.content.ids.empty()) {
        out.first = out.last;
        out.first_ids = chunk->ids.size();
      }
    }
    out.content.add(*chunk);
  }
  const auto& finish = out.content.finish;
  if (finish.code != errc::ok) return fail(finish.code, finish.message);
  return out;
}

generate_request greedy(std::int32_t tokens) {
  generate_request out;
  out.sampling.max_tokens = tokens;
  out.sampling.ignore_eos = true;
  out.sampling.temperature = 0.0f;
  return out;
}

class decode_bench {
public:
  static result<decode_bench> make(engine_settings engine, const std::string& path,
                                   const latency_settings& settings) {
    decode_bench out;
    out.request_ = greedy(settings.tokens);
    out.request_.text = settings.text;
    DI_TRY(const auto model, load_model(path, numeric_of(engine.engine)));
    const auto context =
      static_cast<std::int32_t>(model.words.encode(settings.text, specials::on).size());
    DI_TRY(auto parts,
           latency_parts::make(engine, model, context + settings.tokens / 2 + 1, settings));
    out.parts_ = std::make_unique<latency_parts>(std::move(parts));
    engine.engine.prefix_cache = false;  // each turn computes the same
    engine.engine.num_drafts = 0;
    DI_TRY(out.plain_, node::load(engine, path));
    const auto most = out.plain_->facts().max_model_len;
    if (const auto length = settings.tokens + context + 1; length > most)  // BOS is the intake's
      return fail(errc::bad_config,
                  fmt::format("--tokens: found {} behind a text of {}, the engine takes {} in all",
                              settings.tokens, context + 1, most));
    engine.engine.num_drafts = settings.drafts;
    engine.engine.drafter = drafter_setting::dspark;
    DI_TRY(out.drafting_, node::load(engine, path));
    return out;
  }

  result<void> turn(decode_latency& out) {
    DI_TRY_VOID(parts_->run(out));
    DI_TRY(const auto plain, ask(*plain_, request_));
    out.plain_rate.add(rate_of(plain));
    DI_TRY(const auto before, drafting_->connect().stats());
    DI_TRY(const auto drafted, ask(*drafting_, request_));
    out.rate.add(rate_of(drafted));
    // Answered when the last step has settled, that which had nothing left to do included.
    DI_TRY_VOID(drafting_->pause());
    DI_TRY(const auto after, drafting_->connect().stats());
    DI_TRY_VOID(drafting_->resume());
    out.gained += static_cast<std::int64_t>(after.tokens_out - before.tokens_out) - 1;
    const auto over_run = after.overrun_rows - before.overrun_rows;
    out.decode_steps += static_cast<std::int64_t>(after.steps - before.steps - over_run) - 1;
    if (drafted.content.ids != plain.content.ids)
      return fail(errc::internal, "found other ids with drafts than without, expected the same");
    return {};
  }

private:
  static double rate_of(const timed_answer& it) {
    return static_cast<double>(it.content.ids.size() - it.first_ids) / (it.last - it.first);
  }

  generate_request request_;
  std::unique_ptr<latency_parts> parts_;
  std::unique_ptr<node> plain_, drafting_;
};

class first_token_bench {
public:
  static result<first_token_bench> make(engine_settings engine, const std::string& path,
                                        const latency_settings& settings) {
    const auto& steps = engine.engine;
    const pipeline_shape shape{steps.depth, 0, 0};
    const auto blocks = blocks_for(settings.prompt + 1 + shape.margin(), steps.block_size);
    constexpr std::int32_t prompts_kept = 4;
    engine.engine.num_drafts = 0;
    engine.engine.prefix_cache = true;
    engine.engine.kv_cache_memory.reset();
    engine.engine.num_kv_blocks = static_cast<std::int32_t>(blocks);
    engine.engine.prefix_host_blocks = static_cast<std::int32_t>(prompts_kept * blocks);
    first_token_bench out;
    out.prompt_ = settings.prompt;
    DI_TRY(out.engine_, node::load(engine, path));
    const auto& facts = out.engine_->facts();
    if (settings.prompt >= facts.max_model_len)
      return fail(errc::bad_config, fmt::format("--prompt: found {} tokens, the engine takes {}",
                                                settings.prompt, facts.max_model_len - 1));
    out.ids_.emplace(steps.seed.value_or(1), out.engine_->intake().facts().vocab_size);
    return out;
  }

  result<void> turn(first_token_latency& out) {
    const auto one = request();
    const auto other = request();
    std::int32_t cached = 0;
    DI_TRY_VOID(ask_first(one, out.miss, cached));
    DI_TRY_VOID(ask_first(one, out.hit, out.hit_tokens));
    DI_TRY_VOID(ask_first(other, out.miss, cached));
    return ask_first(one, out.host_hit, out.host_hit_tokens);
  }

private:
  generate_request request() {
    auto out = greedy(1);
    out.ids = ids_->draw(prompt_);
    return out;
  }

  /// The last request's blocks are back: a prompt that comes while they are in use finds no room in
  /// so small a pool to come back to from host memory.
  result<void> await_rest() const {
    const auto deadline = std::chrono::steady_clock::now() + rest_timeout;
    while (std::chrono::steady_clock::now() < deadline) {
      DI_TRY(const auto stats, engine_->connect().stats());
      if (stats.kv_blocks_free + stats.kv_blocks_cached == stats.kv_blocks_total) return {};
      std::this_thread::yield();
    }
    return fail(errc::internal, "blocks of a request that has ended are still held after 10 s");
  }

  result<void> ask_first(const generate_request& request, sample_list& seconds,
                         std::int32_t& cached) {
    DI_TRY_VOID(await_rest());
    DI_TRY(const auto answer, ask(*engine_, request));
    seconds.add(answer.first);
    cached = answer.content.finish.usage.cached_tokens;
    return {};
  }

  std::unique_ptr<node> engine_;
  std::optional<random_ids> ids_;
  std::int32_t prompt_ = 0;
};

}  // namespace

double decode_latency::tokens_per_step() const {
  return static_cast<double>(gained) / static_cast<double>(decode_steps);
}

double decode_latency::promised_gain() const {
  return tokens_per_step() * step.median() / (verify.median() + draft.median());
}

result<latency_result> measure_latency(const engine_settings& engine, const std::string& path,
                                       const latency_settings& settings,
                                       const std::function<void(std::string_view)>& show) {
  latency_result out;
  if (settings.drafts > 0) {
    show("decode");
    DI_TRY(auto bench, decode_bench::make(engine, path, settings));
    decode_latency warm_up;
    DI_TRY_VOID(bench.turn(warm_up));
    out.decode.emplace();
    for (std::int32_t i = 0; i < settings.repeats; ++i) DI_TRY_VOID(bench.turn(*out.decode));
  }
  show("first token");
  DI_TRY(auto bench, first_token_bench::make(engine, path, settings));
  first_token_latency warm_up;
  DI_TRY_VOID(bench.turn(warm_up));
  for (std::int32_t i = 0; i < settings.repeats; ++i) DI_TRY_VOID(bench.turn(out.first_token));
  return out;
}

}  // namespace deepinfer
