#include <algorithm>
#include <chrono>
#include <functional>

#include <fmt/format.h>

#include "actors/node/bench/serve_beside.hpp"
#include "actors/node/bench/serve_load.hpp"
#include "actors/node/bench/serve_record.hpp"
#include "actors/node/bench/serve_request.hpp"
#include "actors/node/commands.hpp"
#include "actors/node/interrupt.hpp"
#include "runtime/base/file.hpp"
#include "runtime/http/load_client.hpp"

namespace deepinfer {
namespace {

constexpr std::int64_t most_count = 1 << 20;

struct serve_bench_settings {
  http_url url;
  serve_load_settings load;
  serve_request_form form;  ///< without a model: the first one that the server names
  std::int32_t most_open = 0;
  std::int32_t warmup = 0;
  std::int64_t timeout_ns = 0;
  goodput_bounds bounds;
};

result<serve_bench_settings> read_settings(const parsed_flags& flags) {
  serve_bench_settings out;
  DI_TRY(out.url, parse_url(flags.text("url").value_or("http://127.0.0.1:8000")), "--url");
  auto& load = out.load;
  load.dataset = flags.text("dataset").value_or("random");
  const auto number = [&flags](const char* name, std::int64_t least, std::int32_t usual,
                               auto& to) -> result<void> {
    DI_TRY(const auto given, flags.integer(name, least, most_count));
    to = static_cast<std::int32_t>(given.value_or(usual));
    return {};
  };
  DI_TRY_VOID(number("num-prompts", 1, 100, load.requests));
  DI_TRY_VOID(number("input-len", 1, 128, load.input_len));
  DI_TRY_VOID(number("output-len", 1, 64, load.output_len));
  DI_TRY_VOID(number("prefix-len", 1, 64, load.prefix_len));
  DI_TRY_VOID(number("vocab-size", 1, 2048, load.vocab_size));
  DI_TRY_VOID(number("max-concurrency", 1, 4096, out.most_open));
  DI_TRY_VOID(number("warmup", 0, 1, out.warmup));
  DI_TRY(const auto seed, flags.integer("seed", 0, INT64_MAX));
  load.seed = static_cast<std::uint64_t>(seed.value_or(1));
  if (flags.text("request-rate").value_or("inf") != "inf") {
    DI_TRY(const auto rate, flags.number("request-rate", 1e-6, 1e6));
    load.rate = *rate;
  }
  DI_TRY(const auto burstiness, flags.number("burstiness", 1e-3, 1e3));
  load.burstiness = burstiness.value_or(1);
  DI_TRY(const auto timeout, flags.number("timeout", 1e-3, 1e6));
  out.timeout_ns = static_cast<std::int64_t>(timeout.value_or(600) * 1e9);
  DI_TRY(out.bounds, parse_goodput(flags.text("goodput").value_or("")));
  out.form.model = flags.text("served-model").value_or("");
  out.form.api_key = flags.text("key").value_or("");
  out.form.is_stream = flags.is_on("stream", true);
  out.form.ignores_eos = flags.is_on("ignore-eos", true);
  return out;
}

/// Asks the server which model it serves.
result<std::string> model_of(const serve_bench_settings& it) {
  if (!it.form.model.empty()) return it.form.model;
  const std::string where = fmt::format("{}:{}/v1/models", it.url.host, it.url.port);
  constexpr std::int64_t timeout_ns = 10'000'000'000;
  DI_TRY(const auto answer,
         fetch(it.url, "GET", "/v1/models", serve_headers(it.form.api_key), "", timeout_ns), where);
  if (answer.status != 200)
    return fail(errc::io_failed,
                fmt::format("{}: status {}: {}", where, answer.status, answer.body.substr(0, 200)));
  DI_TRY(const auto body, parse_json(answer.body), where);
  const auto* object = body.if_object();
  const auto* data = object ? object->if_contains("data") : nullptr;
  const auto* first = data && data->is_array() && !data->as_array().empty()
                        ? data->as_array().front().if_object()
                        : nullptr;
  const auto* id = first ? first->if_contains("id") : nullptr;
  if (!id || !id->is_string()) return fail(errc::io_failed, where + ": names no model");
  return std::string(id->as_string());
}

struct server_gauges {
  std::optional<double> busy_seconds, idle_seconds, overlap_ratio;
};

/// What our own servers tell of themselves; nothing of others.
server_gauges gauges_of(const serve_bench_settings& it) {
  server_gauges out;
  constexpr std::int64_t timeout_ns = 10'000'000'000;
  const auto answer =
    fetch(it.url, "GET", "/metrics", serve_headers(it.form.api_key), "", timeout_ns);
  if (!answer || answer->status != 200) return out;
  out.busy_seconds = metric_in(answer->body, "device_busy_seconds_total");
  // A device that nobody has asked for anything is not idle by the scheduler's doing.
  const auto idle = metric_in(answer->body, "device_idle_seconds_total");
  const auto no_work =
    metric_in(answer->body, "device_idle_seconds_total", "cause=\"no_work\"").value_or(0);
  if (idle) out.idle_seconds = *idle - no_work;
  out.overlap_ratio = metric_in(answer->body, "overlap_ratio");
  return out;
}

std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

struct measured {
  std::vector<serve_record> records;  ///< of requests that have ended
  double client_load = 0;
  std::optional<double> idle_share, overlap_ratio;
  bool was_interrupted = false;
};

/// Before the measurement, and not counted.
result<void> warm_up(const serve_bench_settings& it, const std::function<bool()>& is_stopped) {
  if (it.warmup == 0) return {};
  auto load = it.load;
  load.seed = ~load.seed;
  load.requests = it.warmup;
  DI_TRY(const auto warm, make_prompts(load));
  DI_TRY(const auto client, load_client::make(it.url, it.warmup));
  std::vector<serve_record> records(warm.size());
  for (std::size_t i = 0; i < warm.size(); ++i)
    client->add(serve_request_of(it.form, warm[i], steady_ns(), records[i]));
  client->run(it.timeout_ns, is_stopped);
  return {};
}

result<measured> measure(const serve_bench_settings& it, const std::vector<serve_prompt>& prompts) {
  const auto arrivals = arrival_times(it.load);
  const interrupt_guard interrupts;
  const auto is_stopped = [&interrupts] { return interrupts.is_asked(); };
  DI_TRY_VOID(warm_up(it, is_stopped));
  const auto before = gauges_of(it);
  measured out;
  out.records.resize(prompts.size());
  {
    DI_TRY(const auto client, load_client::make(it.url, it.most_open));
    const auto begin = steady_ns();
    for (std::size_t i = 0; i < prompts.size(); ++i)
      client->add(serve_request_of(it.form, prompts[i], begin + arrivals[i], out.records[i]));
    out.client_load = client->run(it.timeout_ns, is_stopped);
  }
  out.was_interrupted = interrupts.is_asked();
  std::erase_if(out.records, [](const serve_record& record) { return !record.has_ended(); });
  const auto after = gauges_of(it);
  if (before.busy_seconds && after.busy_seconds && before.idle_seconds && after.idle_seconds) {
    const double busy = *after.busy_seconds - *before.busy_seconds;
    const double idle = *after.idle_seconds - *before.idle_seconds;
    if (busy + idle > 0) out.idle_share = idle / (busy + idle);
  }
  out.overlap_ratio = after.overlap_ratio;
  return out;
}

json::value number_or_null(const std::optional<double>& it) {
  return it ? json::value(*it) : json::value(nullptr);
}

json::object result_object(const serve_bench_settings& it, const std::string& model,
                           const measured& made) {
  json::object out{{"backend", "openai"},
                   {"model_id", model},
                   {"dataset", it.load.dataset},
                   {"num_prompts", it.load.requests},
                   {"burstiness", it.load.burstiness},
                   {"max_concurrency", it.most_open},
                   {"seed", it.load.seed}};
  out["request_rate"] = it.load.rate > 0 ? json::value(it.load.rate) : json::value("inf");
  for (auto& entry : report_object(report_of(made.records, it.bounds)))
    out[entry.key()] = entry.value();
  out["device_idle_share"] = number_or_null(made.idle_share);
  out["overlap_ratio"] = number_or_null(made.overlap_ratio);
  out["client_load"] = made.client_load;
  out["interrupted"] = made.was_interrupted;
  return out;
}

std::string threads_text(const step_settings& engine) {
  return engine.num_threads ? std::to_string(*engine.num_threads) : "all";
}

/// The engine of this process and its server, side by side.
result<int> bench_beside(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto config, settings_of(context, flags));
  DI_TRY(const auto path, model_directory(context, config.settings));
  beside_settings of;
  DI_TRY(const auto streams, flags.integer("max-concurrency", 1, most_count));
  DI_TRY(const auto input, flags.integer("input-len", 1, most_count));
  DI_TRY(const auto output, flags.integer("output-len", 8, most_count));
  of.streams = static_cast<std::int32_t>(streams.value_or(of.streams));
  of.input_len = static_cast<std::int32_t>(input.value_or(of.input_len));
  of.output_len = static_cast<std::int32_t>(output.value_or(of.output_len));
  DI_TRY(const auto made, measure_beside(config, path, of));
  if (flags.is_on("json"))
    fmt::print(context.out, "{}\n", to_text(beside_object(made)));
  else
    fmt::print(context.out, "{} streams of {} tokens behind {}, {} threads of kernels\n{}",
               of.streams, of.output_len, of.input_len, threads_text(config.settings.engine),
               beside_text(made));
  return 0;
}

/// Settings are those of the engine beside which `--beside-offline` measures.
result<void> check_alone(const parsed_flags& flags) {
  const auto refuse = [](const std::string& found) {
    return fail(errc::bad_config,
                fmt::format("{}: found it without --beside-offline, which alone has an engine with "
                            "settings",
                            found));
  };
  if (flags.has("config")) return refuse("--config");
  for (const auto& it : engine_flags())
    if (flags.has(it.name) && it.name != "seed")
      return refuse((it.is_negatable && !flags.is_on(it.name) ? "--no-" : "--") + it.name);
  return {};
}

void print_result(const cli_context& context, const serve_bench_settings& settings,
                  const measured& made) {
  fmt::print(context.out, "{} at {}:{}\n", settings.form.model, settings.url.host,
             settings.url.port);
  if (made.was_interrupted)
    fmt::print(context.out, "interrupted after {} of {} requests: this is of those alone\n",
               made.records.size(), settings.load.requests);
  if (made.records.empty()) return;
  fmt::print(context.out, "{}", report_text(report_of(made.records, settings.bounds)));
  if (made.idle_share)
    fmt::print(context.out, "device idle {:.1f} % of the time it had work, overlap ratio {:.2f}\n",
               100 * *made.idle_share, made.overlap_ratio.value_or(0));
}

void print_warnings(const cli_context& context, const measured& made) {
  for (const auto& it : made.records) {
    if (it.failure.empty()) continue;
    warn(context, fmt::format("the first that failed: {}: {}", it.failure, it.failure_text));
    break;
  }
  constexpr double busy_client = 0.8;
  if (made.client_load > busy_client)
    warn(context, fmt::format("this client computed {:.0f} % of the time: it may be what is slow",
                              100 * made.client_load));
}

result<int> bench_serve(const cli_context& context, const parsed_flags& flags) {
  if (flags.is_on("beside-offline")) return bench_beside(context, flags);
  DI_TRY_VOID(check_alone(flags));
  DI_TRY(auto settings, read_settings(flags));
  const auto path = flags.text("save-result");
  if (path) DI_TRY_VOID(check_output(*path, "--save-result"));
  DI_TRY(const auto prompts, make_prompts(settings.load));
  DI_TRY(settings.form.model, model_of(settings));
  DI_TRY(const auto made, measure(settings, prompts));
  const auto is_json = flags.is_on("json");
  const auto object = to_text(result_object(settings, settings.form.model, made));
  if (path) DI_TRY_VOID(write_file(*path, object + "\n"));
  if (is_json) fmt::print(context.out, "{}\n", object);
  const bool has_success = std::any_of(made.records.begin(), made.records.end(),
                                       [](const auto& it) { return it.failure.empty(); });
  // A table of zeros says nothing.
  if (!has_success && !made.was_interrupted) {
    const auto& first = made.records.front();
    return fail(errc::io_failed,
                fmt::format("every request failed, {} in all; the first: {}: {}",
                            made.records.size(), first.failure, first.failure_text));
  }
  if (!is_json) print_result(context, settings, made);
  print_warnings(context, made);
  return made.was_interrupted ? 130 : 0;
}

}  // namespace

command bench_serve_command() {
  command it;
  it.name = "bench serve";
  it.summary = "load on a server over HTTP: throughput, time to first token, goodput";
  it.flags = {
    value_flag("url", "the server", "URL", "http://127.0.0.1:8000"),
    value_flag("dataset",
               "random, prefix-repeat, a ShareGPT .json, or a .jsonl of prompts or messages",
               "NAME|FILE", "random"),
    value_flag("num-prompts", "requests", "N", "100"),
    value_flag("request-rate", "requests per second, sent when due whatever has been answered",
               "RATE|inf", "inf"),
    value_flag("burstiness", "shape of the gaps between them; 1: Poisson, less: in bursts",
               "NUMBER", "1"),
    value_flag("max-concurrency", "most open requests; others wait, and their time counts", "N",
               "4096"),
    value_flag("input-len", "prompt ids of a random request", "N", "128"),
    value_flag("output-len", "outputs of a request", "N", "64"),
    value_flag("prefix-len", "ids that all prompts of prefix-repeat begin with", "N", "64"),
    value_flag("vocab-size", "random ids are below", "N", "2048"),
    value_flag("seed", "of prompts and of the gaps between requests", "N", "1"),
    value_flag("warmup", "requests before the measurement", "N", "1"),
    value_flag("goodput", "bounds of a good request: ttft, tpot, itl, e2el", "NAME:TIME,...",
               "none"),
    value_flag("timeout", "a request without a byte for so many seconds has failed", "SECONDS",
               "600"),
    value_flag("served-model", "name of the model", "NAME", "the server's first"),
    value_flag("key", "API key", "KEY", "none"),
    value_flag("save-result", "the JSON, as a file", "FILE", "none"),
    switch_flag("beside-offline",
                "no server: this process' own, beside its engine alone, with the settings of "
                "'deepinfer serve --help' (--num-threads 1 leaves a core for it)"),
    switch_flag("stream", "answers are streamed", true),
    switch_flag("ignore-eos", "every answer has its full length", true),
    switch_flag("json", "one JSON object, with the keys of vLLM's result files")};
  it.takes_settings = true;
  it.uses_setting = [](const std::string&) { return false; };  // but for --beside-offline
  it.run = bench_serve;
  return it;
}

}  // namespace deepinfer
