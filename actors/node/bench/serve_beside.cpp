#include "actors/node/bench/serve_beside.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>

#include <fmt/format.h>

#include "actors/node/bench/bench_offline.hpp"
#include "actors/node/bench/bench_statistics.hpp"
#include "actors/node/bench/serve_request.hpp"
#include "actors/request_intake.hpp"
#include "actors/service.hpp"
#include "runtime/http/load_client.hpp"

namespace deepinfer {
namespace {

constexpr std::int64_t timeout_ns = 120'000'000'000;

std::int64_t clock_ns(clockid_t which) {
  timespec it{};
  clock_gettime(which, &it);
  return std::int64_t{it.tv_sec} * 1'000'000'000 + it.tv_nsec;
}

/// What a batch of requests took.
struct batch_cost {
  double seconds = 0;
  double cpu_seconds = 0;  ///< of the process, less that of the client's thread
  std::int64_t tokens = 0;
  sample_list ttft_ms;
};

/// Tells when the last of a batch has ended; times of the first tokens.
struct batch_watch {
  explicit batch_watch(std::ptrdiff_t requests) : left(requests) {}
  std::latch left;
  std::atomic<std::int64_t> tokens{0};

  void fail(const std::string& why) {
    const std::lock_guard lock(mutex);
    if (failure.empty()) failure = why;
  }
  std::mutex mutex;
  std::string failure;  ///< the first; read when all have ended
};

class counting_sink final : public chunk_sink {
public:
  counting_sink(std::shared_ptr<batch_watch> watch, std::int64_t& first_ns)
    : watch_(std::move(watch)),
      first_ns_(first_ns) {}

  void on_accepted(const std::string&) override {}
  void on_chunk(token_chunk chunk) override {
    if (!chunk.text.empty() && first_ns_ == 0) first_ns_ = clock_ns(CLOCK_MONOTONIC);
    watch_->tokens += std::ssize(chunk.ids);
    if (chunk.finish && chunk.finish->code != errc::ok) watch_->fail(chunk.finish->message);
    if (chunk.is_last) watch_->left.count_down();
  }
  void on_error(const error& why) override {
    watch_->fail(why.message);
    watch_->left.count_down();
  }

private:
  std::shared_ptr<batch_watch> watch_;
  std::int64_t& first_ns_;
};

class beside_bench {
public:
  beside_bench(service& served, const beside_settings& settings)
    : served_(served),
      settings_(settings) {}

  result<batch_cost> in_process(std::int32_t streams, std::int32_t output_len) {
    DI_TRY(const auto prompts, prompts_of(streams, output_len));
    const auto client = served_.engine()->connect();
    auto watch = std::make_shared<batch_watch>(streams);
    std::vector<std::int64_t> first(prompts.size(), 0);
    const auto begin = clock_ns(CLOCK_MONOTONIC);
    const auto cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    const auto own = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      generate_request request;
      request.ids.emplace();
      for (const auto& id : prompts[i].prompt.as_array())
        request.ids->push_back(static_cast<token_id>(id.as_int64()));
      request.sampling.temperature = 0.0f;
      request.sampling.max_tokens = output_len;
      request.sampling.ignore_eos = true;
      client.start(std::move(request), std::make_shared<counting_sink>(watch, first[i]));
    }
    watch->left.wait();
    auto out = cost_of(begin, cpu, own);
    out.tokens = watch->tokens;
    if (!watch->failure.empty())
      return fail(errc::internal, "a request in process: " + watch->failure);
    for (const auto at : first)
      if (at > 0) out.ttft_ms.add(static_cast<double>(at - begin) / 1e6);
    return out;
  }

  result<batch_cost> over_http(std::int32_t streams, std::int32_t output_len) {
    DI_TRY(const auto prompts, prompts_of(streams, output_len));
    DI_TRY(const auto url, parse_url(served_.url()));
    DI_TRY(const auto client, load_client::make(url, streams));
    std::vector<serve_record> records(prompts.size());
    const auto begin = clock_ns(CLOCK_MONOTONIC);
    for (std::size_t i = 0; i < prompts.size(); ++i)
      client->add(serve_request_of({}, prompts[i], begin, records[i]));
    const auto cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    const auto own = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    client->run(timeout_ns);
    auto out = cost_of(begin, cpu, own);
    for (const auto& it : records) {
      if (!it.failure.empty()) return fail(errc::internal, "a request over HTTP: " + it.failure);
      out.tokens += it.output_tokens;
      if (it.first_ns > 0) out.ttft_ms.add(static_cast<double>(it.first_ns - begin) / 1e6);
    }
    return out;
  }

private:
  /// Every batch has prompts of its own: nothing is cached.
  result<std::vector<serve_prompt>> prompts_of(std::int32_t count, std::int32_t output_len) {
    serve_load_settings load;
    load.requests = count;
    load.input_len = settings_.input_len;
    load.output_len = output_len;
    load.vocab_size = served_.engine()->intake().facts().vocab_size;
    load.seed = ++batches_;
    return make_prompts(load);
  }

  static batch_cost cost_of(std::int64_t begin, std::int64_t cpu, std::int64_t own) {
    batch_cost out;
    out.seconds = static_cast<double>(clock_ns(CLOCK_MONOTONIC) - begin) / 1e9;
    const auto used = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    out.cpu_seconds = static_cast<double>(used - (clock_ns(CLOCK_THREAD_CPUTIME_ID) - own)) / 1e9;
    return out;
  }

  service& served_;
  const beside_settings settings_;
  std::uint64_t batches_ = 0;
};

double rate_of(const batch_cost& it) {
  return static_cast<double>(it.tokens) / std::max(it.seconds, 1e-9);
}

/// The same batch by `bench offline`, on a node of its own.
result<double> offline_rate(const effective_config& config, const std::string& path,
                            const beside_settings& of) {
  step_meters meters;
  DI_TRY(const auto engine, node::load(config.settings, path, {}, &meters.for_device()));
  offline_settings settings;
  settings.batches = {of.streams};
  settings.prompt = of.input_len;
  settings.tokens = of.output_len;
  settings.repeats = of.repeats;
  settings.seed = 1;
  offline_bench bench(*engine, meters, settings);
  DI_TRY(const auto measured, bench.run([](std::string_view) {}));
  const auto seconds = measured.decode.front().request_seconds.median();
  return static_cast<double>(of.streams) * of.output_len / std::max(seconds, 1e-9);
}

}  // namespace

result<beside_result> measure_beside(effective_config config, const std::string& model_path,
                                     const beside_settings& of) {
  auto& settings = config.settings;
  settings.engine.min_decode_gap = 0;  // a batch starts whole, as that of bench offline
  settings.server.port = 0;
  settings.actor.is_enabled = false;
  settings.observability.stats_interval = {};
  settings.observability.log_requests = request_logging::off;
  settings.server.max_queued_requests =
    std::max(settings.server.max_queued_requests, of.many_streams);
  if (of.streams > settings.engine.max_num_seqs)
    return fail(errc::bad_config,
                fmt::format("--max-concurrency: found {} streams, expected at most {}, "
                            "engine.max_num_seqs",
                            of.streams, settings.engine.max_num_seqs));
  beside_result out;
  DI_TRY(out.offline_tokens_per_second, offline_rate(config, model_path, of));
  DI_TRY(const auto served, service::open(config, "model"));
  DI_TRY_VOID(served->load(model_path, {}));
  beside_bench bench(*served, of);
  sample_list in_process, http, in_process_ttft, http_ttft, cpu_us;
  constexpr std::int32_t light_requests = 20;
  for (std::int32_t repeat = 0; repeat <= of.repeats; ++repeat) {
    DI_TRY(const auto inside, bench.in_process(of.streams, of.output_len));
    DI_TRY(const auto outside, bench.over_http(of.streams, of.output_len));
    DI_TRY(const auto many_inside, bench.in_process(of.many_streams, of.output_len));
    DI_TRY(const auto many_outside, bench.over_http(of.many_streams, of.output_len));
    if (repeat == 0) continue;  // warms up
    in_process.add(rate_of(inside));
    http.add(rate_of(outside));
    cpu_us.add((many_outside.cpu_seconds - many_inside.cpu_seconds) * 1e6 /
               static_cast<double>(many_outside.tokens));
    for (std::int32_t i = 0; i < light_requests; ++i) {
      DI_TRY(const auto one_inside, bench.in_process(1, 4));
      DI_TRY(const auto one_outside, bench.over_http(1, 4));
      in_process_ttft.add(one_inside.ttft_ms);
      http_ttft.add(one_outside.ttft_ms);
    }
  }
  out.in_process_tokens_per_second = in_process.median();
  out.http_tokens_per_second = http.median();
  out.in_process_ttft_ms = in_process_ttft.median();
  out.http_ttft_ms = http_ttft.median();
  out.http_cpu_us_per_token = cpu_us.median();
  return out;
}

json::object beside_object(const beside_result& it) {
  const auto share = [&it](double rate) {
    return it.offline_tokens_per_second > 0 ? rate / it.offline_tokens_per_second : 0.0;
  };
  return {{"offline_tokens_per_second", it.offline_tokens_per_second},
          {"in_process_tokens_per_second", it.in_process_tokens_per_second},
          {"http_tokens_per_second", it.http_tokens_per_second},
          {"in_process_share", share(it.in_process_tokens_per_second)},
          {"http_share", share(it.http_tokens_per_second)},
          {"in_process_ttft_ms", it.in_process_ttft_ms},
          {"http_ttft_ms", it.http_ttft_ms},
          {"http_adds_ms", it.http_ttft_ms - it.in_process_ttft_ms},
          {"http_cpu_us_per_token", it.http_cpu_us_per_token}};
}

std::string beside_text(const beside_result& it) {
  const auto share = [&it](double rate) {
    return 100 * rate / std::max(it.offline_tokens_per_second, 1e-9);
  };
  return fmt::format(
    "bench offline        {:>9.0f} tokens/s\n"
    "client in process    {:>9.0f} tokens/s  {:>5.1f} %\n"
    "over HTTP            {:>9.0f} tokens/s  {:>5.1f} %\n"
    "first token          {:>9.2f} ms in process, {:.2f} ms over HTTP: {:+.2f} ms\n"
    "CPU of HTTP          {:>9.1f} us a streamed token\n",
    it.offline_tokens_per_second, it.in_process_tokens_per_second,
    share(it.in_process_tokens_per_second), it.http_tokens_per_second,
    share(it.http_tokens_per_second), it.in_process_ttft_ms, it.http_ttft_ms,
    it.http_ttft_ms - it.in_process_ttft_ms, it.http_cpu_us_per_token);
}

}  // namespace deepinfer
