#include "actors/node/generation.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>

#include <fmt/format.h>

#include "actors/engine_loading.hpp"
#include "actors/node/load_bar.hpp"
#include "actors/node/remote_flags.hpp"
#include "actors/node/stats_report.hpp"
#include "runtime/base/counted.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/positive_float.hpp"

namespace deepinfer {
namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

constexpr std::int32_t most_by_default = 256;

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

/// "12:-3.5" as an id and a bias.
result<std::pair<token_id, float>> read_bias(const std::string& text) {
  const auto colon = text.find(':');
  token_id id = 0;
  float bias = 0.0f;
  const auto* end = text.data() + text.size();
  bool is_good = colon != std::string::npos;
  if (is_good) {
    const auto id_read = std::from_chars(text.data(), text.data() + colon, id);
    const auto bias_read = std::from_chars(text.data() + colon + 1, end, bias);
    is_good = id_read.ec == std::errc{} && id_read.ptr == text.data() + colon &&
              bias_read.ec == std::errc{} && bias_read.ptr == end;
  }
  if (!is_good)
    return fail(errc::bad_config, fmt::format("--logit-bias: found '{}', expected ID:BIAS", text));
  return std::pair{id, bias};
}

template <class Wide, class Narrow>
void put(const std::optional<Wide>& from, std::optional<Narrow>& to) {
  if (from) to = static_cast<Narrow>(*from);
}

/// Writes chunks of an answer as they come: content to the output, reasoning dimmed to stderr.
class text_writer {
public:
  explicit text_writer(const cli_context& context) : context_(context) {}

  void write(const token_chunk& chunk) {
    if (!chunk.reasoning_text.empty()) {
      const bool is_dim = context_.err_is_coloured;
      print_err("{}{}{}", is_dim ? "\033[2m" : "", chunk.reasoning_text, is_dim ? "\033[0m" : "");
      was_thinking_ = true;
    }
    if (!chunk.text.empty()) {
      if (std::exchange(was_thinking_, false)) print_err("\n");
      fmt::print(context_.out, "{}", chunk.text);
      std::fflush(context_.out);
    }
  }

  /// An answer that was cut while thinking leaves its line open.
  ~text_writer() {
    if (was_thinking_) print_err("\n");
  }
  text_writer(const text_writer&) = delete;
  text_writer& operator=(const text_writer&) = delete;

private:
  const cli_context& context_;
  bool was_thinking_ = false;
};

json::array logprobs_array(const std::vector<token_logprobs>& logprobs) {
  json::array out;
  for (const auto& position : logprobs) {
    json::array top;
    for (std::size_t i = 1; i < position.ids.size(); ++i)
      top.push_back(json::object{{"id", position.ids[i]}, {"logprob", position.logprobs[i]}});
    if (position.ids.empty()) continue;
    out.push_back(json::object{
      {"id", position.ids[0]}, {"logprob", position.logprobs[0]}, {"top", std::move(top)}});
  }
  return out;
}

/// Of an engine that can't say, nothing but zeros.
node_stats stats_of(const client& engine) {
  return engine.stats().value_or(node_stats{});
}

/// Without a limit of the user's an answer has `most_by_default` tokens, or what the context leaves
/// where that is less.
result<stream> open_answer(const client& engine, generate_request request) {
  const bool is_limited = request.sampling.max_tokens.has_value();
  if (!is_limited) request.sampling.max_tokens = most_by_default;
  auto opened = engine.generate(request);
  if (opened || is_limited) return opened;
  const auto& why = opened.error();
  if (why.code != errc::context_length_exceeded || why.param != "max_tokens") return opened;
  request.sampling.max_tokens.reset();
  return engine.generate(request);
}

double rate_of(const answer& it) {
  return static_cast<double>(it.content.ids.size()) / std::max(it.total_seconds, 1e-9);
}

}  // namespace

std::vector<flag> sampling_flags() {
  const std::string group = "Sampling";
  const auto value = [&group](const char* name, const char* help, const char* what,
                              const char* otherwise, bool is_repeatable = false) {
    auto it = value_flag(name, help, what, otherwise);
    it.group = group;
    it.is_repeatable = is_repeatable;
    return it;
  };
  const auto on = [&group](const char* name, const char* help) {
    auto it = switch_flag(name, help);
    it.group = group;
    return it;
  };
  return {
    value("max-tokens", "most output tokens", "N", "256"),
    value("min-tokens", "stop tokens are not chosen before this many outputs", "N", "0"),
    value("temperature", "0 = greedy", "X", "1"),
    value("top-p", "keep the likeliest tokens that make up this share, above 0", "X", "1"),
    value("top-k", "keep the K likeliest tokens; 0 = all", "K", "0"),
    value("min-p", "drop tokens less likely than this share of the likeliest", "X", "0"),
    value("presence-penalty", "off tokens that occurred in the output", "X", "0"),
    value("frequency-penalty", "the same, per occurrence", "X", "0"),
    value("repetition-penalty", "divides logits of tokens that occurred at all, 0.01 to 100", "X",
          "1"),
    value("stop", "end where the text would contain this", "TEXT", "none", true),
    value("stop-id", "end after this token id", "ID", "none", true),
    value("logit-bias", "add a bias, -100 to 100, to a token's logit", "ID:BIAS", "none", true),
    value("logprobs", "with --json: log-probabilities of the chosen token and K others", "K",
          "off"),
    on("ignore-eos", "go on after the end-of-sequence token"),
    on("json-object", "the answer is one JSON object"),
    on("include-stop", "keep the matched stop string in the text"),
  };
}

flag stats_flag() {
  return switch_flag(
    "stats", "show what the engine counted: steps, idle time of the device by cause, KV, drafts");
}

flag cache_salt_flag() {
  return value_flag("cache-salt", "share cached prefixes only with requests of the same salt",
                    "TEXT", "none");
}

result<sampling_request> read_sampling(const parsed_flags& flags) {
  if (flags.has("logprobs") && !flags.is_on("json"))
    return fail(errc::bad_config, "--logprobs: found no --json, which alone can show them");
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  sampling_request out;
  DI_TRY(const auto max_tokens, flags.integer("max-tokens", 1, most));
  DI_TRY(const auto min_tokens, flags.integer("min-tokens", 0, most));
  DI_TRY(const auto temperature, flags.number("temperature", 0.0, 1e6));
  DI_TRY(const auto top_p, flags.positive("top-p", 1.0));
  DI_TRY(const auto top_k, flags.integer("top-k", 0, most));
  DI_TRY(const auto min_p, flags.number("min-p", 0.0, 1.0));
  DI_TRY(const auto presence, flags.number("presence-penalty", -2.0, 2.0));
  DI_TRY(const auto frequency, flags.number("frequency-penalty", -2.0, 2.0));
  DI_TRY(const auto repetition, flags.number("repetition-penalty", 0.01, 100.0));
  DI_TRY(const auto logprobs, flags.integer("logprobs", 0, 20));
  put(max_tokens, out.max_tokens);
  out.min_tokens = static_cast<std::int32_t>(min_tokens.value_or(0));
  put(temperature, out.temperature);
  if (top_p) out.top_p = positive_float(*top_p);
  put(top_k, out.top_k);
  put(min_p, out.min_p);
  put(presence, out.presence_penalty);
  put(frequency, out.frequency_penalty);
  put(repetition, out.repetition_penalty);
  put(logprobs, out.logprobs);
  out.ignore_eos = flags.is_on("ignore-eos");
  if (flags.is_on("json-object")) out.grammar = "json_object";
  out.include_stop = flags.is_on("include-stop");
  if (const auto found = flags.values.find("stop"); found != flags.values.end())
    out.stop = found->second;
  if (const auto found = flags.values.find("stop-id"); found != flags.values.end()) {
    for (const auto& text : found->second) {
      DI_TRY(const auto ids, parse_ids(text), "--stop-id");
      out.stop_token_ids.insert(out.stop_token_ids.end(), ids.begin(), ids.end());
    }
  }
  if (const auto found = flags.values.find("logit-bias"); found != flags.values.end()) {
    for (const auto& text : found->second) {
      DI_TRY(const auto bias, read_bias(text));
      out.logit_bias.push_back(bias);
    }
  }
  return out;
}

result<opened_engine> open_engine(const cli_context& context, const parsed_flags& flags,
                                  const effective_config& config) {
  if (const auto& trace = config.settings.observability.trace_file; !trace.empty())
    DI_TRY_VOID(check_output(trace, "observability.trace_file"));
  if (flags.has("connect")) {
    DI_TRY(auto engine, connect_remote(context, flags));
    DI_TRY(const auto model, engine.model());
    auto name = model.names.empty() ? std::string() : model.names.front();
    return opened_engine{nullptr, std::move(engine), std::move(name), model.device, {}};
  }
  DI_TRY(const auto path, model_directory(context, config.settings));
  load_bar bar(context.err_is_terminal && context.verbosity >= 0);
  DI_TRY(auto here,
         load_engine(std::make_shared<live_config>(config), path,
                     [&bar](std::uint64_t done, std::uint64_t total) { bar.draw(done, total); }));
  auto engine = here->connect();
  const auto facts = here->facts();
  return opened_engine{std::move(here), std::move(engine), facts.model_name, facts.device_name,
                       facts.model_path};
}

result<answer> run_request(const cli_context& context, const client& engine,
                           const generate_request& request, bool stream_text,
                           const interrupt_guard& interrupts) {
  answer out;
  const auto begin = clock_type::now();
  DI_TRY(auto chunks, open_answer(engine, request));
  text_writer writer(context);
  while (true) {
    auto chunk = chunks.next(100ms);
    if (!chunk && chunk.error().code == errc::deadline_exceeded) {
      if (interrupts.is_asked() && !std::exchange(out.was_interrupted, true))
        DI_TRY_VOID(engine.cancel(chunks.id()));
      continue;
    }
    if (!chunk) return tl::unexpected<error>(std::move(chunk).error());
    if (!*chunk) break;
    if (out.content.ids.empty() && !(*chunk)->ids.empty())
      out.first_token_seconds = seconds_since(begin);
    out.content.add(**chunk);
    if (stream_text) writer.write(**chunk);
    if (interrupts.is_asked() && !std::exchange(out.was_interrupted, true))
      DI_TRY_VOID(engine.cancel(chunks.id()));
  }
  out.total_seconds = seconds_since(begin);
  const auto& finish = out.content.finish;
  if (finish.reason == finish_reason::error || finish.reason == finish_reason::resource)
    return fail(finish.code, finish.message);
  return out;
}

std::string figures_line(const answer& it, const node_stats& stats) {
  const auto& content = it.content;
  if (content.ids.empty()) return "no token";
  return fmt::format("{}, {:.1f} tok/s, first token after {:.1f} ms, {}, seed {}",
                     counted(static_cast<std::int64_t>(content.ids.size()), "token"), rate_of(it),
                     it.first_token_seconds * 1e3, idle_text(stats), content.finish.seed);
}

void show_figures(const cli_context& context, const answer& it, const client& engine,
                  bool with_stats) {
  const auto stats = stats_of(engine);
  if (context.verbosity >= 0) print_err("{}\n", figures_line(it, stats));
  if (with_stats) print_err("{}", stats_text(stats));
}

json::object answer_object(const answer& it, const client& engine, bool is_chat, bool with_stats) {
  const auto stats = stats_of(engine);
  const auto& content = it.content;
  json::object out;
  out["ids"] = json::array(content.ids.begin(), content.ids.end());
  out["text"] = content.text;
  if (is_chat) {
    out["reasoning"] = content.reasoning_text;
    json::array calls;
    for (const auto& call : content.tool_calls)
      calls.push_back(
        json::object{{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    out["tool_calls"] = std::move(calls);
  }
  out["finish_reason"] = name_of(content.finish.reason);
  if (!content.finish.stop_detail.empty()) out["stop_detail"] = content.finish.stop_detail;
  out["seed"] = content.finish.seed;
  const auto& usage = content.finish.usage;
  out["usage"] = json::object{{"prompt_tokens", usage.prompt_tokens},
                              {"completion_tokens", usage.completion_tokens},
                              {"cached_tokens", usage.cached_tokens},
                              {"reasoning_tokens", usage.reasoning_tokens}};
  if (!content.logprobs.empty()) out["logprobs"] = logprobs_array(content.logprobs);
  out["timings"] = json::object{{"first_token_ms", it.first_token_seconds * 1e3},
                                {"total_ms", it.total_seconds * 1e3},
                                {"tokens_per_second", rate_of(it)},
                                {"device_idle_share", idle_share(stats)}};
  if (with_stats) out["stats"] = stats_object(stats);
  return out;
}

result<void> write_trace(const cli_context& context, const effective_config& config,
                         const opened_engine& opened) {
  const auto& observability = config.settings.observability;
  if (observability.trace_file.empty()) return {};
  DI_TRY(const auto trace, opened.engine.trace(observability.trace_buffer_steps));
  DI_TRY_VOID(write_file(observability.trace_file, trace));
  show_note(context,
            "step trace written to " + observability.trace_file + " (open it in ui.perfetto.dev)");
  return {};
}

}  // namespace deepinfer
