#include "actors/simulate/simulation_flags.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/nearest.hpp"
#include "runtime/core/capacity.hpp"

namespace deepinfer {

namespace {

constexpr std::int64_t most = 1 << 24;
constexpr std::int64_t most_requests = 1 << 20;
constexpr std::int64_t most_drafts = 32;  // as in the product
constexpr std::int64_t most_workload_tokens = 1 << 28;
constexpr double most_host_us = 1e9;
constexpr const char* drawn = "Drawn workload";
constexpr std::string_view workload_flags[] = {"requests", "rate", "prompt", "output",
                                               "shared-prefix"};

constexpr std::array<std::string_view, 3> policy_flags{"victim", "preempt-output",
                                                       "min-decode-gap"};

template <typename Value>
using named = std::pair<std::string_view, Value>;
constexpr std::array<named<victim_rule>, 4> victims{
  {{"youngest", victim_rule::youngest},
   {"longest-output", victim_rule::longest_output},
   {"lowest-cost", victim_rule::lowest_cost},
   {"lowest-priority", victim_rule::lowest_priority}}};
constexpr std::array<named<preempt_rule>, 2> preempt_outputs{
  {{"deliver", preempt_rule::deliver}, {"drop", preempt_rule::drop}}};

template <typename Value, std::size_t N>
result<void> take_name(const parsed_flags& flags, const char* name,
                       const std::array<named<Value>, N>& table, Value& to) {
  const auto given = flags.text(name);
  if (!given) return {};
  std::vector<std::string_view> names;
  for (const auto& [text, value] : table) {
    names.push_back(text);
    if (text == *given) to = value;
  }
  if (std::find(names.begin(), names.end(), *given) != names.end()) return {};
  return fail(errc::bad_config, fmt::format("--{}: found '{}', expected one of {}", name, *given,
                                            fmt::join(names, ", ")));
}

result<void> take_count(const parsed_flags& flags, const char* name, std::int64_t min,
                        std::int64_t max, std::int32_t& to) {
  DI_TRY(const auto given, flags.integer(name, min, max));
  if (given) to = static_cast<std::int32_t>(*given);
  return {};
}

result<void> take_host_time(const parsed_flags& flags, const char* name, std::int64_t& to_ns) {
  DI_TRY(const auto given, flags.number(name, 0.0, most_host_us));
  if (given) to_ns = std::llround(*given * 1000.0);
  return {};
}

/// What `parse` makes of the flag's text, where it was given.
template <typename Value>
result<void> take_parsed(const parsed_flags& flags, const char* name,
                         result<Value> (*parse)(std::string_view), Value& to) {
  const auto given = flags.text(name);
  if (!given) return {};
  auto parsed = parse(*given);
  if (!parsed) return tl::unexpected(std::move(parsed).error().within(std::string("--") + name));
  to = std::move(*parsed);
  return {};
}

result<void> take_seed(const parsed_flags& flags, std::uint64_t& to) {
  DI_TRY(const auto given, flags.integer("seed", 0, std::int64_t{1} << 62));
  if (given) to = static_cast<std::uint64_t>(*given);
  return {};
}

/// "TOKENS:SHARE"
result<void> take_shared_prefix(const parsed_flags& flags, synthetic_workload& to) {
  const auto given = flags.text("shared-prefix");
  if (!given) return {};
  std::int32_t tokens = 0;
  const auto* last = given->data() + given->size();
  const auto [colon, code] = std::from_chars(given->data(), last, tokens);
  if (code == std::errc() && colon != last && *colon == ':') {
    double share = 0;
    const auto [end, share_code] = std::from_chars(colon + 1, last, share);
    if (share_code == std::errc() && end == last && tokens >= 0 && tokens <= most && share >= 0 &&
        share <= 1) {
      to.prefix_tokens = tokens;
      to.prefix_share = share;
      return {};
    }
  }
  return fail(errc::bad_config, fmt::format("--shared-prefix: found '{}', expected TOKENS:SHARE "
                                            "with a share from 0 to 1, such as 256:0.8",
                                            *given));
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(at, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// The flags with those that --policy stands for.
result<parsed_flags> with_policy(const parsed_flags& flags) {
  auto out = flags;
  const auto given = flags.text("policy");
  if (!given) return out;
  for (const auto& rule : split(*given, ',')) {
    const auto equals = rule.find('=');
    const auto key = equals == std::string::npos ? std::string("victim") : rule.substr(0, equals);
    if (std::find(policy_flags.begin(), policy_flags.end(), key) == policy_flags.end())
      return fail(errc::bad_config, fmt::format("--policy: found '{}', expected a victim or one of "
                                                "{}, each with = and a value",
                                                rule, fmt::join(policy_flags, ", ")));
    if (out.has(key))
      return fail(errc::bad_config, fmt::format("--{}: found twice, the other in --policy", key));
    out.values[key] = {equals == std::string::npos ? rule : rule.substr(equals + 1)};
  }
  return out;
}

flag workload_flag(const char* name, const char* help, const char* what, const char* usual) {
  auto it = value_flag(name, help, what, usual);
  it.group = drawn;
  return it;
}

}  // namespace

std::vector<flag> simulation_flags() {
  return {
    value_flag("workload",
               "requests: a CSV file with the columns arrival_ms, prompt_tokens, "
               "output_tokens and, if wanted, prefix_group, prefix_tokens, priority; or drawn",
               "FILE|synthetic", "synthetic"),
    value_flag("step-model",
               "what a step costs the device: base, per query token, per row, per position "
               "attended to, sampling, each copy; ns, us, ms or s",
               "KEY=TIME,...", "base=4ms,token=10us,row=20us,context=1ns,sample=200us,copy=20us"),
    value_flag("plan-us", "what planning a step costs the host", "US", "100"),
    value_flag("settle-us", "what settling a step costs the host", "US", "50"),
    value_flag("depth", "most steps in flight", "N", "2"),
    value_flag("num-drafts", "drafts of a decode row", "N", "0"),
    value_flag("acceptance", "chance that the 1st, 2nd, ... draft is right if those before it are",
               "P,P,...", "1"),
    value_flag("blocks", "KV blocks of the pool", "N", "4096"),
    value_flag("block-size", "tokens of a block", "N", "64"),
    value_flag("chunk-size", "most prompt tokens of a request in one step; 0: the step's limit",
               "N", "2048"),
    value_flag("max-num-seqs", "most requests that run at a time", "N", "256"),
    value_flag("max-num-batched-tokens", "most tokens of a step", "N", "8192"),
    value_flag("victim", "who is preempted first",
               "youngest|longest-output|lowest-cost|lowest-priority", "lowest-cost"),
    value_flag("preempt-output", "what becomes of tokens that a preempted request has in flight",
               "deliver|drop", "deliver"),
    {.name = "prefix-cache",
     .help = "share the KV of equal prefixes; on unless refused",
     .is_negatable = true},
    {.name = "mixed-steps",
     .help = "a step may hold prompt chunks and decode rows together",
     .is_negatable = true},
    value_flag("policy",
               "several of these rules: a victim, or victim=..., preempt-output=... and "
               "min-decode-gap=..., set apart by commas",
               "RULE,...", "lowest-cost"),
    value_flag("min-decode-gap", "decode steps between prefill steps, while rows decode", "N", "4"),
    value_flag("max-prefill-run",
               "most prefill steps in a row while rows decode; 0: 1 with a gap, else no bound", "N",
               "0"),
    value_flag("seed", "of everything that is drawn", "N", "1"),
    workload_flag("requests", "how many", "N", "100"),
    workload_flag("rate", "arrivals per second, Poisson; 0: all at once", "R", "0"),
    workload_flag("prompt", "tokens of a prompt: MEAN, or uniform within MEAN +- SPREAD",
                  "MEAN[:SPREAD]", "512"),
    workload_flag("output", "tokens of an output, the same way", "MEAN[:SPREAD]", "128"),
    workload_flag("shared-prefix", "tokens that a share of the prompts begin with", "TOKENS:SHARE",
                  "none")};
}

result<simulation_settings> simulation_settings_of(const parsed_flags& flags) {
  simulation_settings out;
  DI_TRY_VOID(take_count(flags, "depth", 1, depth_limit, out.depth));
  DI_TRY_VOID(take_count(flags, "num-drafts", 0, most_drafts, out.num_drafts));
  DI_TRY_VOID(take_count(flags, "blocks", 1, most, out.num_kv_blocks));
  DI_TRY_VOID(take_count(flags, "block-size", 1, 4096, out.block_size));
  DI_TRY_VOID(take_count(flags, "chunk-size", 0, most, out.chunk_size));
  DI_TRY_VOID(take_count(flags, "max-num-seqs", 1, 65536, out.max_num_seqs));
  DI_TRY_VOID(take_count(flags, "max-num-batched-tokens", 1, 1 << 20, out.max_num_batched_tokens));
  DI_TRY(const auto rules, with_policy(flags));
  DI_TRY_VOID(take_count(rules, "min-decode-gap", 0, most, out.policy.min_decode_gap));
  DI_TRY_VOID(take_count(flags, "max-prefill-run", 0, most, out.policy.max_prefill_run));
  DI_TRY_VOID(take_name(rules, "victim", victims, out.policy.victim));
  DI_TRY_VOID(take_name(rules, "preempt-output", preempt_outputs, out.policy.preempt_output));
  DI_TRY_VOID(take_host_time(flags, "plan-us", out.plan_ns));
  DI_TRY_VOID(take_host_time(flags, "settle-us", out.settle_ns));
  DI_TRY_VOID(take_parsed(flags, "step-model", parse_step_model, out.steps));
  DI_TRY_VOID(take_parsed(flags, "acceptance", parse_acceptance, out.acceptance));
  DI_TRY_VOID(take_seed(flags, out.seed));
  out.prefix_cache = flags.is_on("prefix-cache", true);
  out.mixed_steps = flags.is_on("mixed-steps");
  DI_TRY_VOID(check_simulation(out));
  return out;
}

result<std::vector<workload_request>> workload_of(const parsed_flags& flags) {
  if (const auto file = flags.text("workload"); file && *file != "synthetic") {
    for (const auto name : workload_flags)
      if (flags.has(std::string(name)))
        return fail(errc::bad_config,
                    fmt::format("--{}: found beside --workload, expected one of them", name));
    DI_TRY(auto out, read_workload(*file));
    std::int64_t tokens = 0;
    for (const auto& it : out) tokens += it.prompt_tokens + it.output_tokens;
    if (std::ssize(out) <= most_requests && tokens <= most_workload_tokens) return out;
    return fail(errc::bad_config,
                fmt::format("{}: found {} requests with {} tokens, expected at most {} with {}",
                            *file, out.size(), tokens, most_requests, most_workload_tokens));
  }
  synthetic_workload like;
  DI_TRY_VOID(take_count(flags, "requests", 1, most_requests, like.requests));
  DI_TRY(const auto rate, flags.number("rate", 0.0, 1e9));
  like.rate = rate.value_or(0.0);
  DI_TRY_VOID(take_parsed(flags, "prompt", parse_length_range, like.prompt));
  DI_TRY_VOID(take_parsed(flags, "output", parse_length_range, like.output));
  DI_TRY_VOID(take_shared_prefix(flags, like));
  DI_TRY_VOID(take_seed(flags, like.seed));
  const auto longest =
    std::int64_t{like.prompt.mean} + like.prompt.spread + like.output.mean + like.output.spread;
  if (longest > most_workload_tokens / like.requests)
    return fail(errc::bad_config,
                fmt::format("--requests, --prompt, --output: found {} requests of up to {} tokens, "
                            "expected at most {} tokens in all",
                            like.requests, longest, most_workload_tokens));
  return draw_workload(like);
}

result<std::vector<std::pair<std::string, parsed_flags>>> compared_runs(const parsed_flags& flags) {
  std::vector<std::pair<std::string, parsed_flags>> out;
  const auto given = flags.text("compare");
  if (!given) {
    out.emplace_back("", flags);
    return out;
  }
  const auto equals = std::min(given->find('='), given->size());
  const auto key = given->substr(0, equals);
  const auto known = simulation_flags();
  const auto found =
    std::find_if(known.begin(), known.end(), [&](const flag& it) { return it.name == key; });
  if (found == known.end()) {
    std::vector<std::string> names;
    for (const auto& it : known) names.push_back(it.name);
    return fail(errc::bad_config, fmt::format("--compare: found '{}', expected KEY=V1,V2,... with "
                                              "a flag of this command{}",
                                              *given, did_you_mean(key, names)));
  }
  const auto values = equals < given->size() ? given->substr(equals + 1) : std::string();
  const char apart = values.find(';') == std::string::npos ? ',' : ';';
  for (const auto& value : split(values, apart)) {
    const bool is_switch = found->value_name.empty();
    if (value.empty() || (is_switch && value != "true" && value != "false"))
      return fail(errc::bad_config,
                  fmt::format("--compare: found '{}' as a value of {}, expected "
                              "{}",
                              value, key, is_switch ? "true or false" : found->value_name));
    auto run = flags;
    run.values[key] = {value};
    out.emplace_back(key + "=" + value, std::move(run));
  }
  return out;
}

json::object settings_object(const parsed_flags& flags) {
  json::object out;
  const auto rules = with_policy(flags).value_or(flags);
  for (const auto& it : simulation_flags()) {
    const bool is_switch = it.value_name.empty();
    const auto switched = it.name == "prefix-cache" ? "true" : "false";  // unless it is given
    const auto usual = is_switch ? std::string(switched) : it.default_text;
    out[it.name] = rules.text(it.name).value_or(usual);
  }
  return out;
}

}  // namespace deepinfer
