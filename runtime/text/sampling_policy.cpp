#include "runtime/text/sampling_policy.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/positive_float.hpp"

namespace deepinfer {
namespace {

constexpr std::int64_t chat_limit = 8192;
constexpr std::int64_t thinking_limit = 65536;
constexpr std::int64_t deepest_thinking_limit = 131072;
constexpr double service_top_p = 0.95;

bool thinks_deepest(const chat_conversation& c) {
  return c.effort_number ? *c.effort_number == 100 : c.effort == effort_level::max;
}

std::int64_t default_limit(const chat_conversation& c) {
  if (!c.thinking) return chat_limit;
  return thinks_deepest(c) ? deepest_thinking_limit : thinking_limit;
}

/// top_p as DeepSeek's service sets it.
double service_top_p_of(const chat_request& request) {
  const auto& wished = request.sampling.top_p;
  const bool v41 = request.variant == chat_variant::v41;
  if (!request.conversation.thinking) return v41 ? 1.0 : wished.value_or(1.0);
  if (!v41) return request.conversation.tools.empty() ? 1.0 : service_top_p;
  return wished ? std::max(*wished, service_top_p) : 1.0;
}

}  // namespace

std::string_view name_of(sampling_policy policy) {
  return policy == sampling_policy::deepseek ? "deepseek" : "as_requested";
}

result<sampling_policy> sampling_policy_named(std::string_view name) {
  for (const auto policy : {sampling_policy::as_requested, sampling_policy::deepseek})
    if (name == name_of(policy)) return policy;
  return fail(errc::invalid_argument,
              fmt::format("sampling policy: found {}, expected as_requested or deepseek", name),
              "sampling_policy");
}

effective_sampling effective_sampling_of(const chat_request& request, sampling_policy policy) {
  const auto& wished = request.sampling;
  effective_sampling given;
  if (policy == sampling_policy::deepseek) {
    if (!request.conversation.thinking) given.temperature = wished.temperature.value_or(1.0);
    given.top_p = service_top_p_of(request);
    given.max_tokens = wished.max_tokens;
    return given;
  }
  given.temperature = wished.temperature.value_or(1.0);
  given.top_p = wished.top_p.value_or(1.0);
  given.max_tokens =
    wished.max_completion_tokens ? wished.max_completion_tokens : wished.max_tokens;
  return given;
}

result<std::int64_t> resolve_max_tokens(const chat_request& request,
                                        std::optional<std::int64_t> wanted,
                                        std::int64_t prompt_tokens, std::int64_t context_tokens) {
  if (prompt_tokens > context_tokens)
    return fail(
      errc::context_length_exceeded,
      fmt::format("the prompt has {} tokens, but the context holds {}: shorten the messages",
                  prompt_tokens, context_tokens),
      "messages");
  const auto left = context_tokens - prompt_tokens;
  if (!wanted)
    return std::max<std::int64_t>(1, std::min(default_limit(request.conversation), left));
  if (*wanted > left)
    return fail(
      errc::context_length_exceeded,
      fmt::format("the prompt has {} tokens and {} more are asked for, {} in all, but the "
                  "context holds {}: shorten the messages or lower max_tokens",
                  prompt_tokens, *wanted, prompt_tokens + *wanted, context_tokens),
      "max_tokens");
  return *wanted;
}

result<sampling_params> resolve_sampling(const chat_request& request, sampling_policy policy,
                                         std::int64_t prompt_tokens, std::int64_t context_tokens,
                                         std::uint64_t seed) {
  const auto& wished = request.sampling;
  const auto effective = effective_sampling_of(request, policy);
  DI_TRY(const auto limit,
         resolve_max_tokens(request, effective.max_tokens, prompt_tokens, context_tokens));
  const auto least = wished.min_tokens.value_or(0);
  if (least > limit)
    return fail(errc::invalid_argument,
                fmt::format("min_tokens: found {}, expected at most the limit of {}", least, limit),
                "min_tokens");
  sampling_params params;
  params.temperature = static_cast<float>(effective.temperature);
  params.top_p = positive_float(effective.top_p);
  params.top_k = static_cast<std::int32_t>(wished.top_k.value_or(0));
  params.min_p = static_cast<float>(wished.min_p.value_or(0.0));
  params.presence_penalty = static_cast<float>(wished.presence_penalty.value_or(0.0));
  params.frequency_penalty = static_cast<float>(wished.frequency_penalty.value_or(0.0));
  params.repetition_penalty = positive_float(wished.repetition_penalty.value_or(1.0));
  params.seed = wished.seed.value_or(seed);
  params.max_tokens = static_cast<std::int32_t>(limit);
  params.min_tokens = static_cast<std::int32_t>(least);
  params.logprobs = wished.logprobs ? static_cast<std::int32_t>(wished.top_logprobs) : -1;
  params.ignore_eos = wished.ignore_eos;
  params.stop_token_ids = wished.stop_token_ids;
  params.logit_bias = wished.logit_bias;
  return params;
}

}  // namespace deepinfer
